// What is shown, in words.

import { bestFor, budgetOf } from "./budget.js";
import { IN_SIGHT } from "./draw-geometry.js";
import { PARTS } from "./draw-losses.js";
import { OF_WHAT, short } from "./words.js";

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
    if (data.diverged_at !== null) return `Training diverges: the loss blows up at step ${data.diverged_at}. Lower the learning rate${batches}.`;
    if ((data.rounding_at ?? null) !== null) return `From step ${data.rounding_at} on, the losses depend on rounding errors and mean nothing. Lower the learning rate${batches}.`;
    const lowest = Math.min(...data.test_loss);
    const at = data.times[data.test_loss.indexOf(lowest)];
    const parts = [`Dashed is the error on new examples: it goes from ${short(start)} to ${short(end)} in ${data.steps} steps.`];
    if (data.first_task) parts.push(`Another task follows, where the error jumps. Dash-dotted is the error on the first one, ${short(last(data.first_task))} at the end: what is forgotten of it.`);
    else if (end > 1.03 * lowest && at > 0) parts.push(`It was lowest at step ${Math.round(at)} (${short(lowest)}); since then the network fits noise.`);
    if (state.train && train < 0.97 * end) parts.push(`Dotted is the error on the training examples, ${short(train)} at the end: the gap is what does not carry over to new ones.`);
    else if (state.train) parts.push("The error on the training examples (dotted) is no lower: there is no gap.");
    if (data.averaged) parts.push(`Thin, with long dashes, is the error of averaged weights, ${short(last(data.averaged))} at the end.`);
    else if (state.average) parts.push("Weights are averaged only in shorter runs, in which every step is solved.");
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
    return data.is_symmetric
      ? `How alike the ${OF_WHAT[data.kind]}${layer} are at two steps of training. ${state.relative ? "Near 1 they have the same pattern, near 0 a new one." : "The diagonal is their size at each step."}`
      : `How the ${OF_WHAT[data.kind]}${layer} at step t react to a push at an earlier step t′; nothing reacts before it is pushed.`;
  },
  rates(data) {
    if (!data.optimum) return data.note ?? "";
    const { lr, loss, at_edge: atEdge, near, others, safe } = data.optimum;
    const factor = data.present / lr;
    const where = Math.abs(Math.log(factor)) < 0.1 ? "yours is about there" : factor > 1 ? `yours is ${short(factor)} times larger` : `yours is ${short(1 / factor)} times smaller`;
    const parts = [`The best learning rate for ${data.steps} steps is ${short(lr)} (dot), with a loss of ${short(loss)}; ${where}.`];
    if (near) parts.push(`From ${short(near[0])} to ${short(near[1])} (bar) the loss is at most 5 % higher.`);
    if (atEdge) parts.push("It lies at the edge of stability: a little more and training blows up.");
    if (safe) parts.push(`To be safe, take ${short(safe.lr)} (diamond, loss ${short(safe.loss)}): there, rates 20 % lower or higher do little harm.`);
    if (others.length) parts.push(`Nearly as good (${others.length > 1 ? "rings" : "ring"}): ${others.map((other) => short(other.lr)).join(", ")}.`);
    if (data.unstable.length) parts.push("Shaded: training is unstable; the loss jumps from rate to rate, or ends above its start.");
    return parts.join(" ");
  },
  sharpness(data, state) {
    const [start, end, limit, low] = [data.largest[0], last(data.largest), last(data.limit), last(data.lowest)];
    const parts = [`How sharply the training loss bends: its largest curvature goes from ${short(start)} to ${short(end)}.`];
    if (data.largest.at(-1) === null) parts.push("After that training blows up.");
    if (limit === undefined) parts.push("For this update rule no curvature is known at which steps overshoot.");
    else if (end > limit) parts.push(`That is above the edge of stability, ${short(limit)} (dash-dotted), where steps overshoot by more each time unless the curvature falls.`);
    else parts.push(`Steps overshoot above ${short(limit)}, the edge of stability${limit < IN_SIGHT * Math.max(...data.largest) ? " (dash-dotted)" : ""}: that is ${short(limit / end)} times as much.`);
    parts.push(last(data.outliers.map((alone, index) => (data.largest[index] === null ? null : alone.length > 0))) ? "At the end it stands alone (filled dot)." : "At the end it is where a continuous range of curvatures ends (open dot).");
    if (low < -0.01 * end) parts.push(`Along some directions${state.pins.length ? "" : " (dotted)"} the loss still bends down: ${short(low)}.`);
    return parts.join(" ");
  },
  landscape(data) {
    const [first, end] = [data.train_loss[0], data.train_loss.at(-1)];
    const lowest = Math.min(...data.train_loss);
    const at = data.positions[data.train_loss.indexOf(lowest)];
    if (data.barrier === null) {
      const where = Math.abs(at) < 1e-9 ? "where training stands" : `${short(Math.abs(at))} steps ${at > 0 ? "further on" : "back"}`;
      const whole = data.along === "gradient" ? "Along the gradient" : "Along the direction in which it bends most";
      return `${whole}, in units of the next step. The loss on the training examples (dotted) is lowest ${where}: ${short(lowest)}.`;
    }
    const between = { line: "Straight from the first weights to the last", ema: "From the last weights to their average", twins: "Between two networks that started alike and saw different batches" }[data.along];
    const barrier = data.barrier > 1e-6 * first ? `over a barrier of ${short(data.barrier)}` : "without a barrier";
    return `${between}, the loss on the training examples (dotted) goes from ${short(first)} to ${short(end)} ${barrier}. Dashed is the loss on new examples.`;
  },
  weights(data) {
    const beyond = data.outliers.at(-1).map((values) => values.length);
    const count = beyond.reduce((sum, each) => sum + each, 0);
    const aligned = data.target_alignment.at(-1);
    const parts = ["Random weights have singular values up to an edge (the line at 1); what is learned pushes some beyond it (dots)."];
    parts.push("Dotted is what was learned, without the random part.");
    parts.push(count ? `At the end there ${count === 1 ? "is one" : `are ${count}`}, in layer${beyond.filter(Boolean).length === 1 ? "" : "s"} ${beyond.map((each, layer) => (each ? layer : null)).filter((layer) => layer !== null).join(", ")}.` : "Here nothing is beyond the edge yet: train for longer, or with more richness.");
    if (aligned !== null) parts.push(`The leading direction of the input weights is ${short(100 * aligned)} % aligned with the target.`);
    return parts.join(" ");
  },
  schedule(data, state) {
    return `${WORDING.loss(data, state, null)} Drag a dot to change the learning rate there; click beside the line for another dot, and double-click a dot to remove it.`;
  },
  plan(data, state) {
    const { width, steps, lr, cost, loss } = bestFor(budgetOf(state, data), data);
    const isEnd = width === data.widths[0] || width === data.widths.at(-1);
    const parts = [`With this budget, width ${short(width)} for ${steps} steps at a rate of ${short(lr)} is best (among rates with ratio 1.19): loss ${short(loss)} at a cost of ${short(cost)}.`];
    if (isEnd) parts.push("That is at the end of the widths tried, a quarter to four times yours: change the width to see others.");
    const { loss: slope, width: wider } = data.exponents;
    if (slope !== null && slope !== undefined) parts.push(`With ten times the budget, the loss${data.label_noise ? " above the noise" : ""} falls to ${short(100 * 10 ** slope)} %${wider ? `, with networks ${short(10 ** wider)} times as wide` : ""}.`);
    return parts.join(" ");
  },
};
