// Traces of the views of losses, kernel, correlations and learning rates.

import { colorOf, css, DASHED, faded, line } from "./look.js";

export const PARTS = {
  bias: ["bias (left to learn)", 6],
  width: ["random weights", 2],
  data: ["finite data", 3],
  label_noise: ["label noise", 4],
};
const NAMES = { test_loss: "test", train_loss: "train" };

export const LOSSES = {
  loss(state, curves) {
    const traces = [];
    const trained = curves.filter(({ networks }) => networks);
    for (const [index, { name, color, data, before, networks }] of curves.entries()) {
      if (data?.first_task) traces.push(line(data.times, data.first_task, `${name}, first task`, color, { line: { dash: "dashdot", width: 1.4 }, showlegend: curves.length === 1 }));
      if (data?.averaged) traces.push(line(data.times, data.averaged, `${name}, averaged`, color, { line: { dash: "longdash", width: 1.4 }, showlegend: curves.length === 1 }));
      for (const loss of state.train ? ["train_loss", "test_loss"] : ["test_loss"]) {
        // With several curves the text says what is dotted, and the legend only whose it is.
        const listing = { showlegend: loss === "test_loss" || curves.length === 1, legendrank: 2 * index + (loss === "train_loss") };
        const dotted = { ...listing, ...(loss === "train_loss" ? { line: { dash: "2px,3px", width: 2 } } : {}) };
        const label = state.train ? `${name}, ${NAMES[loss]}` : name;
        if (networks) traces.push(...band(networks, loss, curves.length === 1 ? `networks, ${NAMES[loss]}` : `${label}, networks`, color, listing));
        if (before) {
          const from = data.times.length;
          traces.push(line(before.times.slice(from), before[loss].slice(from), label, faded(color, 0.3), { ...dotted, showlegend: false, hoverinfo: "skip", hovertemplate: null }));
        }
        if (data) traces.push(line(data.times, data[loss], label, color, dotted));
      }
    }
    const { measured } = curves[0];
    if (measured) traces.push(...(state.train ? ["test_loss", "train_loss"] : ["test_loss"]).flatMap((loss) => yours(measured[loss], loss)));
    const up = "loss (mean squared error)";
    const legend = [DASHED, ...(trained.length ? ["solid: networks"] : []), ...(measured ? ["dots: yours"] : [])].join(", ");
    if (!trained.length) return { traces, up, legend };
    const z = trained.flatMap(({ name, color, networks }) => (state.train ? ["train_loss", "test_loss"] : ["test_loss"]).map((loss) => ({
      ...line(networks.times, networks[loss].z, `z, ${name}, ${NAMES[loss]}`, color, { line: { dash: loss === "train_loss" ? "2px,3px" : "solid", width: 1.6 } }),
      yaxis: "y2",
      showlegend: false,
      hovertemplate: "%{y:.2f}",
    })));
    const most = Math.max(3, ...z.flatMap((trace) => trace.y.filter(Number.isFinite).map(Math.abs)));
    const layout = {
      yaxis: { domain: [0.27, 1] },
      yaxis2: { title: "z-score", domain: [0, 0.19], range: [-Math.min(most, 8) * 1.1, Math.min(most, 8) * 1.1], nticks: 5 },
      shapes: [{ type: "rect", xref: "paper", x0: 0, x1: 1, yref: "y2", y0: -2, y1: 2, fillcolor: css("--grid"), line: { width: 0 }, layer: "below" }],
    };
    return { traces: [...traces, ...z], layout, up, legend };
  },

  kernel(_, curves) {
    const traces = curves.flatMap(({ name, color, data, before }) => [
      ...(before ? [line(before.times.slice(data.times.length), before.kernel.slice(data.times.length), name, faded(color, 0.3), { showlegend: false, hoverinfo: "skip", hovertemplate: null })] : []),
      ...(data ? [line(data.times, data.kernel, name, color)] : []),
    ]);
    return { traces, up: "tangent kernel", legend: DASHED };
  },

  decomposition(state, [{ data }]) {
    if (!data) return { traces: [], up: "part of the test loss" };
    const stacked = state.y === "linear";
    const parts = Object.entries(PARTS).map(([part, [label, index]]) => line(data.times, data[part], label, colorOf(index), {
      line: { dash: "solid", width: stacked ? 0.5 : 2.2 },
      ...(stacked ? { stackgroup: "parts", fillcolor: faded(colorOf(index), 0.55) } : {}),
    }));
    const drawn = parts.filter((trace) => trace.y.some((value) => value > 0));
    return { traces: [...drawn, line(data.times, data.test_loss, "test loss", css("--ink"))], up: "part of the test loss" };
  },

  correlations(state, [{ data }], size) {
    if (!data) return { traces: [], up: "step t" };
    const isResponse = !data.is_symmetric;
    const isRelative = state.relative && !isResponse;
    const heat = {
      type: "heatmap",
      x: data.times,
      y: data.times,
      z: isRelative ? relative(data.values) : data.values,
      colorscale: isResponse ? "RdBu" : "Cividis",
      ...(isResponse ? { zmid: 0 } : {}),
      ...(isRelative ? { zmax: 1 } : {}),
      hovertemplate: "t = %{y}, t′ = %{x}<br>%{z:.4g}<extra></extra>",
      colorbar: {
        thickness: 12, outlinewidth: 0, len: 1, xpad: 14, ypad: 0,
        tickfont: { color: css("--muted") },
        title: { text: isResponse ? "response" : isRelative ? "likeness" : "correlation", side: "top", font: { size: 12, color: css("--muted") } },
      },
    };
    // A square in the middle, with room for the numbers around it.
    const [left, right, top, bottom] = [56, 90, 12, 44];
    const side = Math.min(size.width - left - right, size.height - top - bottom);
    const [beside, below] = [(size.width - left - right - side) / 2, size.height - top - bottom - side];
    const margin = { l: left + beside, r: right + beside, t: top, b: bottom + below };
    return { traces: [heat], across: "step t′", up: "step t", layout: { margin, hovermode: "closest", xaxis: { nticks: 6 }, yaxis: { nticks: 6 } } };
  },

  rates(state, curves) {
    const traces = [];
    for (const { name, color, data } of curves) {
      if (!data) continue;
      const where = (losses) => losses.map((loss, index) => (data.drawn[index] ? loss : null)); // no line where training is unstable
      if (state.train) traces.push(line(data.lrs, where(data.train_loss), `${name}, train`, color, { line: { dash: "2px,3px", width: 2 }, showlegend: curves.length === 1 }));
      traces.push(line(data.lrs, where(data.test_loss), state.train ? `${name}, test` : name, color));
      if (data.optimum) traces.push(...marks(name, color, data.optimum));
    }
    const live = curves[0].data;
    if (!live) return { traces, across: "learning rate", up: "loss at the last step" };
    const muted = css("--muted");
    const shapes = [
      ...live.unstable.map(([x0, x1]) => ({ type: "rect", x0, x1, yref: "paper", y0: 0, y1: 1, fillcolor: css("--grid"), line: { width: 0 }, layer: "below" })),
      { type: "line", x0: live.present, x1: live.present, yref: "paper", y0: 0, y1: 1, line: { color: muted, width: 1, dash: "dot" } },
    ];
    const label = (x, y, text, xanchor) => ({ x: state.x === "log" ? Math.log10(x) : x, yref: "paper", y, yanchor: "top", xanchor, text, showarrow: false, bgcolor: css("--card"), opacity: 0.85, font: { color: muted, size: 11 } });
    const annotations = [label(live.present, 1, "your setting", "left")];
    if (live.unstable.length) annotations.push(label(live.lrs.at(-1), 0.9, "unstable", "right"));
    return { traces, across: "learning rate", up: "loss at the last step", legend: DASHED, layout: { shapes, annotations, hovermode: "closest" } };
  },
};

// The best learning rate as a dot, with a bar where the loss is at most 5 % more; others nearly as good as rings; and the
// best rate with a margin as a diamond.
function marks(name, color, { lr, loss, near, others, safe }) {
  const mark = (what, point, marker) => ({
    type: "scatter", mode: "markers", x: [point.lr], y: [point.loss], name: `${name}, ${what}`, showlegend: false,
    marker: { size: 12, color, line: { color: css("--card"), width: 2 }, ...marker },
    ...(point.near ? { error_x: { type: "data", symmetric: false, array: [point.near[1] - point.lr], arrayminus: [point.lr - point.near[0]], color, thickness: 1.5, width: 4 } } : {}),
    hovertemplate: `${what}: ${point.lr.toPrecision(3)}, loss %{y:.4g}<extra></extra>`,
  });
  return [
    mark("best", { lr, loss, near }, {}),
    ...others.map((other) => mark("nearly as good", other, { size: 10, color: css("--card"), line: { color, width: 2.5 } })),
    ...(safe ? [mark("best with a margin", safe, { symbol: "diamond" })] : []),
  ];
}

// Curves that somebody measured: dots, with a bar of one standard error where there are several runs.
function yours({ times, mean, standard_error: error }, loss) {
  if (!times.length) return [];
  const color = css("--ink");
  const size = Math.max(3, Math.min(7, 400 / times.length));
  const hasError = error.some((value) => value !== null);
  return [{
    type: "scatter", mode: "markers", x: times, y: mean, name: `yours, ${NAMES[loss]}`, hovertemplate: "%{y:.4g}",
    marker: { size, color: loss === "train_loss" ? css("--card") : color, line: { color, width: 1.5 } },
    ...(hasError ? { error_y: { type: "data", array: error, color, thickness: 1, width: 0 } } : {}),
  }];
}

// Correlations over the sizes at both times: 1 on the diagonal.
const relative = (values) => values.map((row, t) => row.map((value, s) => (value === null ? null : value / Math.sqrt(values[t][t] * values[s][s]))));

function band(networks, loss, name, color, listing) {
  const { mean, standard_error: error } = networks[loss];
  const edge = (sign) => mean.map((value, t) => (value === null || error[t] === null ? null : value + sign * error[t]));
  const hidden = { showlegend: false, hoverinfo: "skip", hovertemplate: null };
  return [
    line(networks.times, edge(-1), name, color, { ...hidden, line: { width: 0, dash: "solid" } }),
    line(networks.times, edge(1), name, color, { ...hidden, line: { width: 0, dash: "solid" }, fill: "tonexty", fillcolor: faded(color, 0.22) }),
    line(networks.times, mean, name, faded(color, 0.65), { line: { dash: "solid", width: 3.2 }, ...listing }),
  ];
}
