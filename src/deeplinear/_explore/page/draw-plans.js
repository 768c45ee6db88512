// Traces of the views of schedules and budgets.

import { bestFor, budgetOf } from "./budget.js";
import { LOSSES } from "./draw-losses.js";
import { colorOf, css, line } from "./look.js";

export const PLANS = {
  schedule: (state, curves) => LOSSES.loss(state, curves.map((curve) => ({ ...curve, networks: null }))),

  // The loss of each width against what it costs to get there, and the least loss that each budget buys.
  plan(state, [{ data }]) {
    const up = "loss with the best learning rate";
    if (!data) return { traces: [], across: "compute", up };
    const across = data.is_ratio ? "compute (operations, in units of D³)" : "compute (operations)";
    const widths = data.widths.map((width, index) => line(data.costs[index], data.losses[index], `width ${width}`, colorOf(index), { line: { dash: "solid", width: 1.6 } }));
    const frontier = line(data.frontier.compute, data.frontier.loss, "best of all", css("--ink"));
    const budget = budgetOf(state, data);
    const best = bestFor(budget, data);
    const dot = { type: "scatter", mode: "markers", x: [best.cost], y: [best.loss], name: "your budget", showlegend: false, marker: { size: 13, color: css("--ink"), line: { color: css("--card"), width: 2 } }, hovertemplate: "%{y:.4g}" };
    const shapes = [{ type: "line", x0: budget, x1: budget, yref: "paper", y0: 0, y1: 1, line: { color: css("--muted"), width: 1, dash: "dot" } }];
    return { traces: [...widths, frontier, dot], across, up, layout: { shapes, hovermode: "closest" }, legend: "all of it theory" };
  },
};
