// What is drawn: traces and layout of each view, for Plotly.

import { oneColumn } from "./dom.js";
import { WORDS } from "./words.js";

const IN_SIGHT = 2.5; // times the largest curvature up to which the limit of stable steps is drawn
const NARROW = 560; // pixels of width below which the legend stands above the curves

const PALETTE = {
  // Okabe and Ito's colours, which colour-blind readers can tell apart, and lighter ones of the same hues on dark ground.
  light: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9", "#5B5B5B", "#7A3E9D", "#8C6D31"],
  dark: ["#5BB8F0", "#FF8F4F", "#35CDA2", "#EFA3CC", "#F0C05A", "#A9D6FF", "#B8B8B8", "#C79BEA", "#D8B979"],
};
const PARTS = {
  bias: ["left to learn", 6],
  width: ["random weights", 2],
  data: ["finite data", 3],
  label_noise: ["label noise", 4],
};
const NAMES = { test_loss: "test", train_loss: "train" };

export const isDark = () => {
  const wanted = document.documentElement.dataset.theme;
  return wanted ? wanted === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

export const colorOf = (index) => PALETTE[isDark() ? "dark" : "light"][index % 9];

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const faded = (color, alpha) => {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
};

const line = (x, y, name, color, extra = {}) => ({
  type: "scatter",
  mode: "lines",
  x,
  y,
  name,
  line: { color, width: 2.4, dash: "7px,4px", ...extra.line },
  hovertemplate: "%{y:.4g}",
  ...Object.fromEntries(Object.entries(extra).filter(([key]) => key !== "line")),
});

// Curves are {name, color, data, networks}: what theory says and what networks did; where only the first steps are known
// also {isBegun, before}, the curve shown until now. The size is that of the place for the figure.
export function figure(view, state, curves, size) {
  const { traces, layout = {}, across = "training step", up } = DRAW[view](state, curves, size);
  const isNarrow = size.width < NARROW;
  const upwards = isNarrow ? up.split(" (")[0] : up;
  const logRange = range(traces, state.y, view);
  const ink = css("--ink");
  const muted = css("--muted");
  const axis = (title, type, extent, more = {}) => ({
    title: { text: title, standoff: 10, font: { size: 13, color: muted } },
    type,
    gridcolor: css("--grid"),
    zeroline: false,
    linecolor: css("--line"),
    tickfont: { color: muted, size: 12 },
    exponentformat: "power",
    automargin: true,
    visible: traces.length > 0,
    autorange: !more.range, // else a range that was given once stays
    ...(type === "log" ? ticks(extent) : {}),
    ...more,
  });
  const listed = traces.filter((trace) => trace.showlegend !== false && trace.type === "scatter").length;
  return {
    traces,
    layout: {
      font: { family: css("--font"), size: 13, color: ink },
      paper_bgcolor: css("--card"),
      plot_bgcolor: css("--card"),
      margin: { l: isNarrow ? 48 : 64, r: 16, t: 12, b: isNarrow ? 40 : 48 },
      dragmode: oneColumn.matches ? false : "zoom", // a finger on the picture scrolls the page
      hovermode: "x unified",
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: ink, size: 12 } },
      showlegend: listed > 1,
      legend: isNarrow
        ? { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal", font: { size: 11 } }
        : { x: 1.01, xanchor: "left", y: 1, traceorder: "normal", font: { size: 12 } },
      uirevision: `${view} ${state.x} ${state.y} ${state.preset}`,
      ...layout,
      xaxis: axis(across, view === "correlations" ? "linear" : state.x, span(traces, "x"), { ...toEnd(state, curves), ...layout.xaxis, ...(layout.yaxis2 ? { anchor: "y2" } : {}) }),
      yaxis: axis(upwards, view === "correlations" ? "linear" : state.y, logRange.range ? logRange.range.map((end) => 10 ** end) : span(traces, "y"), { ...logRange, ...layout.yaxis }),
      ...(layout.yaxis2 ? { yaxis2: axis(layout.yaxis2.title, "linear", null, { ...layout.yaxis2, title: { text: isNarrow ? "z" : layout.yaxis2.title, font: { size: 12, color: muted } } }) } : {}),
    },
  };
}

// While only the first steps are known there is room for the others.
function toEnd(state, [{ isBegun }, ...pinned]) {
  if (!isBegun) return {};
  const end = Math.max(state.problem.steps - 1, ...pinned.map(({ data }) => data?.times.at(-1) ?? 0));
  return { range: state.x === "log" ? [0, Math.log10(end)] : [0, end] };
}

const positive = (values) => values.filter((value) => Number.isFinite(value) && value > 0);

function span(traces, axis) {
  const values = positive(traces.filter((trace) => (trace.yaxis ?? "y") === "y").flatMap((trace) => trace[axis]));
  return [Math.min(...values), Math.max(...values)];
}

// Over a few decades 1, 2 and 5 are marked, over more the powers of ten.
function ticks([low, high]) {
  if (!(Math.log10(high / low) < 2.5)) return { dtick: 1 };
  const tickvals = [];
  for (let power = Math.floor(Math.log10(low)) - 1; power <= Math.ceil(Math.log10(high)); power++) {
    tickvals.push(...[1, 2, 5].map((digit) => Number(`${digit}e${power}`)));
  }
  return { tickmode: "array", tickvals, ticktext: tickvals.map((value) => (value < 1e-4 || value >= 1e5 ? value.toExponential(0) : String(value))) };
}

// A run that blows up, or reaches rounding errors, must not squeeze all others.
function range(traces, type, view) {
  if (view === "correlations" || view === "sharpness") return {};
  const shown = traces.filter((trace) => (trace.yaxis ?? "y") === "y" && trace.type === "scatter");
  const values = positive(shown.flatMap((trace) => trace.y));
  const first = Math.max(0, ...shown.map((trace) => positive(trace.y)[0] ?? 0));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const most = view === "rates" ? Math.max(15 * low, 1.1 * first) : 5 * first;
  const floor = 1e-8 * first;
  if (!values.length || (high <= most && low >= floor)) return type === "linear" ? { rangemode: "tozero" } : {};
  const [from, to] = [Math.max(low, floor), Math.min(high, most)];
  const room = (to / from) ** 0.05;
  return type === "log" ? { range: [Math.log10(from / room), Math.log10(to * room)] } : { range: [0, 1.05 * to] };
}

const DRAW = {
  loss(state, curves) {
    const traces = [];
    const trained = curves.filter(({ networks }) => networks);
    for (const [index, { name, color, data, before, networks }] of curves.entries()) {
      if (data?.first_task) traces.push(line(data.times, data.first_task, `${name}, first task`, color, { line: { dash: "dashdot", width: 1.4 }, showlegend: curves.length === 1 }));
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
    if (!trained.length) return { traces, up: "loss (mean squared error)" };
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
    return { traces: [...traces, ...z], layout, up: "loss (mean squared error)" };
  },

  kernel(_, curves) {
    const traces = curves.flatMap(({ name, color, data, before }) => [
      ...(before ? [line(before.times.slice(data.times.length), before.kernel.slice(data.times.length), name, faded(color, 0.3), { showlegend: false, hoverinfo: "skip", hovertemplate: null })] : []),
      ...(data ? [line(data.times, data.kernel, name, color)] : []),
    ]);
    return { traces, up: "tangent kernel" };
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
    const isResponse = data.kind.endsWith("response");
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
    return { traces, across: "learning rate", up: "loss at the last step", layout: { shapes, annotations, hovermode: "closest" } };
  },

  sharpness(_, curves) {
    const isOnly = curves.length === 1;
    const traces = curves.filter(({ data }) => data).flatMap(({ name, color, data }) => [...ends(name, color, data, isOnly), ...limitOf(name, color, data, isOnly)]);
    return { traces, up: "curvature of the training loss" };
  },
};

// Ends of a spectrum with their errors; of the upper one, eigenvalues that stand alone are filled, and an edge is open.
function ends(name, color, data, isOnly) {
  const end = (which, listed, dash) => ({
    ...line(data.times, data[which], listed, color, { line: { dash, width: 2 } }),
    mode: "lines+markers",
    marker: { size: 8, color: data.outliers.map((alone) => (which === "largest" && alone.length ? color : css("--card"))), line: { color, width: 2 } },
    error_y: { type: "data", array: data[`${which}_error`], color, thickness: 1.2, width: 3 },
  });
  if (!isOnly) return [end("largest", name, "7px,4px")];
  const alone = data.outliers.flatMap((each, index) => each.slice(1).map((value) => [data.times[index], value]));
  const edge = data.edge.map((value, index) => (data.outliers[index].length ? value : null));
  const more = { type: "scatter", mode: "markers", x: alone.map(([x]) => x), y: alone.map(([, y]) => y), name: "also alone", marker: { size: 6, color }, hovertemplate: "%{y:.4g}" };
  return [
    end("largest", "largest", "7px,4px"),
    ...(alone.length ? [more] : []),
    ...(edge.some((value) => value !== null) ? [line(data.times, edge, "edge of the rest", css("--muted"), { line: { dash: "1px,3px", width: 1.6 }, connectgaps: false })] : []),
    end("lowest", "lowest", "2px,3px"),
  ];
}

// The limit above which steps overshoot, unless it is far above all that is seen.
function limitOf(name, color, data, isOnly) {
  const seen = Math.max(...data.largest.filter(Number.isFinite));
  const nearest = Math.min(...data.limit.filter(Number.isFinite));
  if (!(nearest < IN_SIGHT * seen)) return [];
  return [line(data.times, data.limit, isOnly ? "steps overshoot above" : `${name}, overshoots above`, isOnly ? css("--ink") : color, { line: { dash: "solid", width: 1.4 }, showlegend: isOnly })];
}

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

const short = (value) => (value === null || value === undefined ? "—" : Math.abs(value) >= 0.01 && Math.abs(value) < 1000 ? Number(value.toPrecision(3)).toString() : value.toExponential(1));

// One or two sentences about the curve that follows the controls, for somebody who has never seen one.
export function inWords(view, state, { data, networks, isBegun }) {
  if (!data) return "";
  if (isBegun) return `These are the first ${data.steps} of ${state.problem.steps} steps; the rest is on its way.`;
  return WORDING[view](data, state, networks);
}

const last = (values) => values.findLast((value) => value !== null);

const WORDING = {
  loss(data, state, networks) {
    const [start, end, train] = [data.test_loss[0], last(data.test_loss), last(data.train_loss)];
    const batches = "batch" in state.problem.sampling ? ", or take larger batches" : "";
    if (data.diverged_at !== null) return `Training blows up: the loss leaves all bounds at step ${data.diverged_at}. Lower the learning rate${batches}.`;
    const lowest = Math.min(...data.test_loss);
    const at = data.times[data.test_loss.indexOf(lowest)];
    const parts = [`Dashed is the error on new examples: it goes from ${short(start)} to ${short(end)} in ${data.steps} steps.`];
    if (data.first_task) parts.push(`Another task follows, where the error jumps. Dash-dotted is the error on the first one, ${short(last(data.first_task))} at the end: what is forgotten of it.`);
    else if (end > 1.03 * lowest && at > 0) parts.push(`It was lowest at step ${Math.round(at)} (${short(lowest)}); since then the network fits noise.`);
    if (state.train && train < 0.97 * end) parts.push(`Dotted is the error on the training examples, ${short(train)} at the end: the gap is what does not carry over to new ones.`);
    else if (state.train) parts.push("Training examples (dotted) do no better: there is no gap.");
    if (networks) parts.push("Solid, with a band of one standard error, are real networks; the z-score under the curves says how many standard errors they are off.");
    return parts.join(" ");
  },
  kernel(data) {
    const [start, end] = [data.kernel[0], last(data.kernel)];
    const grows = end / start;
    const word = grows > 1.1 ? `ends at ${short(grows)} times that: the network has learned features` : grows < 0.9 ? `shrinks to ${short(grows)} of that` : "hardly changes: the network is lazy, and learns like a linear model";
    return `How much the output moves for a step of the weights. It starts at ${short(start)} and ${word}.`;
  },
  decomposition(data) {
    const parts = Object.entries(PARTS).map(([part, [label]]) => [label, last(data[part])]).filter(([, value]) => value > 0);
    const [label, value] = parts.reduce((most, part) => (part[1] > most[1] ? part : most), ["nothing", 0]);
    return `Where the test loss comes from, step by step; the parts add up to the dashed line. At the end most of it is ${label} (${short(value)}).`;
  },
  correlations(data, state) {
    const layer = data.layer === null || !data.layers.length ? "" : ` in layer ${data.layer}`;
    return data.kind.endsWith("response")
      ? `How the ${WORDS[data.kind].replace("response of ", "")}${layer} at step t react to a push at an earlier step t′; nothing reacts before it is pushed.`
      : `How alike the ${WORDS[data.kind]}${layer} are at two steps of training. ${state.relative ? "Near 1 they have the same pattern, near 0 a new one." : "The diagonal is their size at each step."}`;
  },
  rates(data) {
    if (!data.optimum) return data.note ?? "";
    const { lr, loss, at_edge: atEdge, near, others, safe } = data.optimum;
    const factor = data.present / lr;
    const where = Math.abs(Math.log(factor)) < 0.1 ? "yours is about there" : factor > 1 ? `yours is ${short(factor)} times larger` : `yours is ${short(1 / factor)} times smaller`;
    const parts = [`The best learning rate for ${data.steps} steps is ${short(lr)} (dot), with a loss of ${short(loss)}; ${where}.`];
    if (near) parts.push(`From ${short(near[0])} to ${short(near[1])} (bar) the loss is at most 5 % more.`);
    if (atEdge) parts.push("It lies at the edge of stability: a little more and training blows up.");
    if (safe) parts.push(`With a margin take ${short(safe.lr)} (diamond, loss ${short(safe.loss)}): there, rates 20 % lower or higher do not hurt much either.`);
    if (others.length) parts.push(`Nearly as good (${others.length > 1 ? "rings" : "ring"}): ${others.map((other) => short(other.lr)).join(", ")}.`);
    if (data.unstable.length) parts.push("Shaded: training is unstable; the loss jumps from rate to rate, or ends above its start.");
    return parts.join(" ");
  },
  sharpness(data, state) {
    const [start, end, limit, low] = [data.largest[0], last(data.largest), last(data.limit), last(data.lowest)];
    const parts = [`How sharply the training loss bends: its largest curvature goes from ${short(start)} to ${short(end)}.`];
    if (data.largest.at(-1) === null) parts.push("After that training blows up.");
    if (limit === undefined) parts.push("For this update rule no curvature is known at which steps overshoot.");
    else if (end > limit) parts.push(`That is above ${short(limit)} (solid line), where steps overshoot by more each time unless the curvature falls.`);
    else parts.push(`Steps overshoot above ${short(limit)}${limit < IN_SIGHT * Math.max(...data.largest) ? " (solid line)" : ""}: that is ${short(limit / end)} times as much.`);
    parts.push(last(data.outliers.map((alone, index) => (data.largest[index] === null ? null : alone.length > 0))) ? "At the end it stands alone (filled dot)." : "At the end it is where a continuous range of curvatures ends (open dot).");
    if (low < -0.01 * end) parts.push(`Along some directions${state.pins.length ? "" : " (dotted)"} the loss still bends down: ${short(low)}.`);
    return parts.join(" ");
  },
};
