// Pictures, tables, files and Python lines of what is shown.

import { post } from "./api.js";
import { figure } from "./plot.js";

export function save(content, name, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// The plot as it is zoomed, in a size that is large enough to print.
export async function picture(plot, { state, curves }, format) {
  const { width, height } = plot.getBoundingClientRect();
  const size = { width: Math.max(width, 700), height: Math.max(height, 420) };
  const { margin, legend } = figure(state.view, state, curves, size).layout;
  const picture = { data: plot.data, layout: { ...plot.layout, margin, legend } };
  await Plotly.downloadImage(picture, { format, scale: format === "png" ? 3 : 1, filename: "deeplinear", ...size });
}

const QUANTITIES = {
  loss: ["test_loss", "train_loss"],
  kernel: ["kernel"],
  decomposition: ["test_loss", "bias", "width", "data", "label_noise"],
  rates: ["test_loss", "train_loss"],
  sharpness: ["largest", "lowest", "edge", "limit"],
  landscape: ["test_loss", "train_loss"],
  schedule: ["test_loss", "train_loss", "rates"],
};

// What stands across, where that is not the step.
const ACROSS = { rates: ["lrs", "learning_rate"], landscape: ["positions", "position"] };

export function table(view, curves) {
  const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  if (view === "correlations") {
    const { times, values, kind, layer } = curves[0].data;
    const rows = times.flatMap((t, i) => times.map((s, j) => [t, s, values[i][j]].join(",")));
    return [`t,t_prime,${kind}${layer === null ? "" : `_${layer}`}`, ...rows].join("\n") + "\n";
  }
  if (view === "plan") {
    const { widths, updates, costs, losses, lrs } = curves[0].data;
    const runs = widths.flatMap((width, i) => updates.map((count, j) => [width, count + 1, lrs[i][j], costs[i][j], losses[i][j] ?? "inf"].join(",")));
    return ["width,steps,learning_rate,compute,loss", ...runs].join("\n") + "\n";
  }
  if (view === "weights") {
    const { times, edge, outliers } = curves[0].data;
    const values = times.flatMap((t, i) => edge[i].flatMap((end, layer) => [[t, layer, "edge", end ?? ""], ...outliers[i][layer].map((value) => [t, layer, "outlier", value])].map((row) => row.join(","))));
    return ["step,layer,quantity,singular_value", ...values].join("\n") + "\n";
  }
  const [across, title] = ACROSS[view] ?? ["times", "step"];
  const rows = [`curve,quantity,${title},value,standard_error`];
  for (const { name, data, networks } of curves.filter((curve) => curve.data)) {
    for (const quantity of [...QUANTITIES[view], ...(view === "loss" && data.averaged ? ["averaged"] : [])]) {
      const missing = view === "sharpness" ? "" : "inf";
      data[across].forEach((x, i) => rows.push([quote(name), quantity, x, data[quantity][i] ?? missing, ""].join(",")));
    }
    if (view === "rates" && data.optimum) rows.push([quote(name), "optimum", data.optimum.lr, data.optimum.loss, ""].join(","));
    if (view === "rates" && data.optimum?.safe) rows.push([quote(name), "optimum with a margin", data.optimum.safe.lr, data.optimum.safe.loss, ""].join(","));
    if (view !== "loss" || !networks) continue;
    for (const loss of QUANTITIES.loss) {
      networks.times.forEach((x, i) => rows.push([quote(name), `networks_${loss}`, x, networks[loss].mean[i] ?? "inf", networks[loss].standard_error[i] ?? ""].join(",")));
    }
  }
  return rows.join("\n") + "\n";
}

export async function netcdf(problem) {
  const response = await post("netcdf", { problem });
  save(await response.blob(), "theory.nc", "application/x-netcdf");
}

export function networks({ netcdf: encoded }) {
  save(Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0)), "networks.nc", "application/x-netcdf");
}

export async function python(state, curves) {
  const response = await post("python", {
    view: state.view,
    x: state.x,
    y: state.y,
    train: state.train,
    kind: state.kind,
    relative: state.relative,
    along: state.along,
    average: state.average,
    layer: curves[0].data?.layer ?? state.layer,
    curves: curves.map(({ name, color, problem, networks, data }) => ({
      name,
      color,
      problem,
      ...(networks ? { experiment: { dim: networks.dim, seeds: networks.seeds } } : {}),
      ...(state.view === "rates" && data ? { rates: data.lrs.filter((_, index) => data.drawn[index]) } : {}),
    })),
  });
  return (await response.json()).python;
}

