// The figure of each view, for Plotly: its traces, and the layout around them.

import { oneColumn } from "./dom.js";
import { GEOMETRY } from "./draw-geometry.js";
import { LOSSES } from "./draw-losses.js";
import { PLANS } from "./draw-plans.js";
import { css } from "./look.js";

const DRAW = { ...LOSSES, ...GEOMETRY, ...PLANS };
const FREE = new Set(["correlations", "sharpness", "weights", "landscape"]); // views whose curves set the range of values
const LONG = 30; // letters of a name beyond which it takes several lines
const NARROW = 560; // pixels of width below which the legend stands above the curves

// Curves are {name, color, data, networks}: what theory says and what networks did; where only the first steps are known
// also {isBegun, before}, the curve shown until now; the first may have what somebody measured. The size is that of the place for the figure.
export function figure(view, state, curves, size) {
  const { traces, layout = {}, across = "training step", up, legend = "" } = DRAW[view](state, curves, size);
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
  for (const trace of traces) if (!isNarrow && trace.name?.length > LONG) trace.name = trace.name.replaceAll(", ", ",<br>");
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
      showlegend: listed > 1 || Boolean(legend),
      legend: {
        title: { text: legend.replaceAll(", ", isNarrow ? ", " : "<br>"), side: "top", font: { size: isNarrow ? 11 : 12, color: muted } },
        ...(isNarrow
          ? { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal", font: { size: 11 } }
          : { x: 1.01, xanchor: "left", y: 1, traceorder: "normal", font: { size: 12 } }),
      },
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
  if (FREE.has(view)) return {};
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
