// Traces of the views of curvature, of lines in weight space and of weights.

import { colorOf, css, DASHED, line } from "./look.js";

export const IN_SIGHT = 2.5; // times the largest curvature up to which the limit of stable steps is drawn

export const GEOMETRY = {
  sharpness(_, curves) {
    const isOnly = curves.length === 1;
    const known = curves.filter(({ data }) => data);
    const traces = known.flatMap(({ name, color, data }) => ends(name, color, data, isOnly));
    return { traces: [...traces, ...limits(known)], up: "curvature of the training loss", legend: DASHED };
  },

  landscape(_, curves) {
    const isOnly = curves.length === 1;
    const traces = curves.filter(({ data }) => data).flatMap(({ name, color, data }) => [
      line(data.positions, data.test_loss, isOnly ? "test" : `${name}, test`, color),
      line(data.positions, data.train_loss, isOnly ? "train" : `${name}, train`, color, { line: { dash: "2px,3px", width: 2 }, showlegend: isOnly }),
    ]);
    const ends = { line: "first weights (0) to last weights (1)", ema: "last weights (0) to their average (1)", twins: "one run (0) to the other (1)" };
    const across = ends[curves[0].data?.along] ?? "distance from the last weights, in units of the next step";
    return { traces, across, up: "loss (mean squared error)", legend: isOnly ? DASHED : `${DASHED}, dotted: train` };
  },

  // The largest singular value of each layer over the end of its bulk, dots for all that are beyond it, and dotted the
  // largest of what was learned.
  weights(_, [{ data }]) {
    const up = "singular value over end of bulk";
    if (!data) return { traces: [], up };
    const layers = data.edge[0].map((_, layer) => layer).filter((layer) => data.edge.some((row) => row[layer] !== null));
    const traces = layers.flatMap((layer, index) => {
      const color = colorOf(index);
      const over = data.times.map((_, at) => data.outliers[at][layer].map((value) => value / data.edge[at][layer]));
      const beyond = over.flatMap((values, at) => values.map((value) => [data.times[at], value]));
      return [
        line(data.times, over.map((values) => values[0] ?? 1), `layer ${layer}`, color),
        line(data.times, data.learned.map((row, at) => row[layer] / data.edge[at][layer]), `layer ${layer}, learned`, color, { line: { dash: "2px,3px", width: 2 }, showlegend: false }),
        { type: "scatter", mode: "markers", x: beyond.map(([x]) => x), y: beyond.map(([, y]) => y), name: `layer ${layer}, beyond the bulk`, showlegend: false, marker: { size: 7, color }, hoverinfo: "skip" },
      ];
    });
    const shapes = [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: css("--muted"), width: 1 } }];
    return { traces, up, layout: { shapes }, legend: DASHED };
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

// The edges of stability, above which steps overshoot, unless they are far above all that is seen; equal ones once.
function limits(curves) {
  const near = curves.filter(({ data }) => Math.min(...data.limit.filter(Number.isFinite)) < IN_SIGHT * Math.max(...data.largest.filter(Number.isFinite)));
  const distinct = [...new Map(near.map((curve) => [String(curve.data.limit), curve])).values()];
  return distinct.map(({ name, data }) => line(data.times, data.limit, distinct.length === 1 ? "edge of stability" : `${name}, edge of stability`, css("--ink"), { line: { dash: "8px,3px,2px,3px", width: 1.4 } }));
}
