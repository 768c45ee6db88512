// A schedule that is drawn by hand: dots that can be dragged, with straight lines between them.

import { Refused, run } from "./api.js";
import { element, inTime, showProgress } from "./dom.js";
import { short } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 132;
const [LEFT, RIGHT, TOP, BOTTOM] = [44, 14, 12, 22];
const ROOM = 1.25; // of the highest factor
const MOST_FACTOR = 10;
const FEW = 5; // dots of a schedule that nobody has drawn yet, if it is constant
const MANY = 9; // and if it is not
const DOUBLE = 500; // milliseconds between the clicks of a double click
const APART = 0.002; // least distance of dots, as a fraction of training
const SHAPES = { constant: "Flat", linear: "Linear", cosine: "Cosine", wsd: "Stable, then decay" };

const NAMED = { wsd: "stable-then-decay" }; // others are called as they are

const svg = (tag, attributes, ...children) => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const round = (value) => Number(value.toPrecision(4));

export class Schedule {
  // `state()` is that of the page and `rates()` are those of the run that is shown; `draw(knots, isMoving)` takes what
  // was drawn, `shape(name)` a named schedule, and `found(problem, best)` the best one, if
  // it is still that of the problem that is shown.
  constructor(root, limits, { state, rates, draw, shape, found }) {
    Object.assign(this, { root, limits, state, rates, draw, found });
    this.dragged = null; // number of the dot that is being dragged
    this.job = null;
    this.top = ROOM;
    this.picture = svg("svg", { class: "schedule-picture", width: "100%", height: HEIGHT, role: "group", "aria-label": "Learning rate over training, as a factor" });
    this.words = element("p", { className: "muted", id: "schedule-words" });
    this.words.setAttribute("aria-live", "polite");
    this.box = element("div", { className: "progress", hidden: true }, element("progress", { max: 1, ariaLabel: "Finding the best schedule" }), element("span"), element("button", { type: "button", className: "button small", textContent: "Cancel" }));
    this.box.querySelector("button").addEventListener("click", () => this.job?.abort());
    this.best = element("button", { type: "button", className: "button small", id: "best-schedule", textContent: "Find the best" });
    this.best.addEventListener("click", () => this.search());
    const shapes = Object.entries(SHAPES).map(([name, text]) => {
      const button = element("button", { type: "button", className: "toggle", value: name, textContent: text });
      button.addEventListener("click", () => shape(name));
      return button;
    });
    this.shapes = element("span", { className: "chips" }, ...shapes);
    root.append(element("div", { className: "schedule-head" }, this.shapes, this.best), this.box, this.picture, this.words);
    this.picture.addEventListener("pointerdown", (event) => this.press(event));
    this.picture.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) this.picture.addEventListener(end, () => this.release());
    this.picture.addEventListener("keydown", (event) => this.pressKey(event));
  }

  // The dots: those of a schedule that was drawn, or some on the present one.
  get knots() {
    const { schedule, knots, warmup = 0 } = this.state().problem.optimizer;
    if (schedule === "drawn" && isKnots(knots)) return knots.map(([at, factor]) => [at, factor]);
    const rates = this.rates();
    const count = schedule || warmup ? MANY : FEW;
    const places = Array.from({ length: count }, (_, index) => index / (count - 1));
    const peak = rates ? Math.max(...rates) : 1;
    return places.map((at) => [at, rates ? round(rates[Math.round(at * (rates.length - 1))] / peak) : 1]);
  }

  show() {
    const { optimizer, steps } = this.state().problem;
    const name = optimizer.schedule ?? "constant";
    for (const button of this.shapes.children) button.setAttribute("aria-pressed", String(button.value === name));
    this.best.disabled = Boolean(this.job);
    const knots = this.knots;
    if (this.dragged === null) this.top = ROOM * Math.max(1, ...knots.map(([, factor]) => factor));
    const width = this.picture.getBoundingClientRect().width || 600;
    this.scale = { x: (at) => LEFT + at * (width - LEFT - RIGHT), y: (factor) => TOP + (1 - factor / this.top) * (HEIGHT - TOP - BOTTOM), width };
    const { x, y } = this.scale;
    const rates = this.rates();
    const peak = rates && (name === "drawn" ? optimizer.lr : Math.max(...rates));
    const exact = rates && name !== "drawn" ? rates.map((rate, index) => `${x(index / Math.max(rates.length - 1, 1))},${y(rate / peak)}`).join(" ") : "";
    const focused = this.indexOf(document.activeElement);
    this.picture.replaceChildren(
      ...[0, 1].map((factor) => svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(factor), y2: y(factor) })),
      text(LEFT - 8, y(0) + 4, "0", "end"),
      text(LEFT - 8, y(1) + 4, short(optimizer.lr), "end"),
      text(LEFT, HEIGHT - 5, "step 0"),
      text(width - RIGHT, HEIGHT - 5, `step ${steps - 1}`, "end"),
      svg("polyline", { class: "drawn", points: exact || knots.map(([at, factor]) => `${x(at)},${y(factor)}`).join(" ") }),
      ...knots.map(([at, factor], index) => this.dot(at, factor, index, steps)),
    );
    if (focused !== null) this.picture.querySelector(`[data-index="${focused}"]`)?.focus();
  }

  dot(at, factor, index, steps) {
    const { x, y } = this.scale;
    const where = `step ${Math.round(at * (steps - 1))}, ${round(factor)} times the learning rate`;
    return svg("circle", { class: "dot", cx: x(at), cy: y(factor), r: 7, "data-index": index, tabindex: 0, role: "slider", "aria-label": `Dot ${index + 1}`, "aria-valuenow": round(factor), "aria-valuemin": 0, "aria-valuemax": MOST_FACTOR, "aria-valuetext": where }, svg("title", {}, where));
  }

  indexOf(target) {
    const index = target?.dataset?.index;
    return index === undefined ? null : Number(index);
  }

  place(event) {
    const box = this.picture.getBoundingClientRect();
    const at = (event.clientX - box.left - LEFT) / (this.scale.width - LEFT - RIGHT);
    const factor = this.top * (1 - (event.clientY - box.top - TOP) / (HEIGHT - TOP - BOTTOM));
    return [Math.min(Math.max(at, 0), 1), Math.min(Math.max(factor, 0), MOST_FACTOR)];
  }

  press(event) {
    event.preventDefault();
    let index = this.indexOf(event.target);
    const isAgain = index !== null && index === this.before?.index && event.timeStamp - this.before.at < DOUBLE && !this.hasMoved;
    this.before = { index, at: event.timeStamp }; // the browser's own double click loses dots, which are drawn anew
    if (isAgain) return this.remove(index);
    this.hasMoved = index === null;
    if (index === null) {
      const knots = this.knots;
      if (knots.length >= this.limits.knots) return;
      const [at, factor] = this.place(event);
      if (knots.some(([other]) => Math.abs(other - at) < APART)) return;
      index = knots.findIndex(([other]) => other > at);
      knots.splice(index, 0, [round(at), round(factor)]);
      this.draw(knots, true);
    }
    this.dragged = index;
    this.picture.setPointerCapture(event.pointerId);
    this.picture.querySelector(`[data-index="${index}"]`)?.focus({ preventScroll: true });
  }

  move(event) {
    if (this.dragged === null) return;
    this.hasMoved = true;
    this.put(this.dragged, ...this.place(event), true);
  }

  release() {
    if (this.dragged === null) return;
    this.dragged = null;
    if (this.hasMoved) this.draw(this.knots, false);
  }

  // Moves a dot, which stays between its neighbours; the first and the last one stay at the ends.
  put(index, at, factor, isMoving) {
    const knots = this.knots;
    const isEnd = index === 0 || index === knots.length - 1;
    const free = isEnd ? knots[index][0] : Math.min(Math.max(at, knots[index - 1][0] + APART), knots[index + 1][0] - APART);
    knots[index] = [isEnd ? free : round(free), round(factor)];
    this.draw(knots, isMoving);
  }

  remove(index) {
    const knots = this.knots;
    if (!(index > 0 && index < knots.length - 1)) return;
    this.draw(knots.filter((_, other) => other !== index), false);
  }

  pressKey(event) {
    const index = this.indexOf(event.target);
    const step = { ArrowUp: [0, 0.05], ArrowDown: [0, -0.05], ArrowRight: [0.02, 0], ArrowLeft: [-0.02, 0] }[event.key];
    if (index === null || !(step || event.key === "Delete")) return;
    event.preventDefault();
    if (!step) return this.remove(index);
    const [at, factor] = this.knots[index];
    this.put(index, at + step[0], Math.min(Math.max(factor + step[1], 0), MOST_FACTOR), false);
  }

  async search() {
    const job = (this.job = new AbortController());
    const started = performance.now();
    const { problem } = this.state();
    this.words.textContent = "";
    this.words.classList.remove("is-error");
    this.show();
    showProgress(this.box, { stage: "finding the best schedule" });
    try {
      const onProgress = (progress) => showProgress(this.box, progress);
      const best = await run("schedule", { problem: withoutSchedule(problem) }, { signal: job.signal, onProgress });
      const isTaken = this.found(problem, best);
      this.words.textContent = inWords(best, (performance.now() - started) / 1000) + (isTaken ? "" : " The settings have changed since, so it was not taken.");
    } catch (error) {
      this.words.textContent = job.signal.aborted ? "Cancelled." : error instanceof Refused ? error.message : `No answer from the server (${error.message}).`;
      this.words.classList.toggle("is-error", !job.signal.aborted);
    } finally {
      this.job = null;
      showProgress(this.box, null);
      this.show();
    }
  }
}

const isKnots = (knots) => Array.isArray(knots) && knots.length > 1 && knots.every((knot) => Array.isArray(knot) && knot.length === 2 && knot.every(Number.isFinite));

function text(x, y, words, anchor = "start") {
  return svg("text", { x, y, "text-anchor": anchor }, words);
}

// The best schedule does not depend on the present one.
function withoutSchedule(problem) {
  const { schedule, knots, warmup, shape, ...optimizer } = problem.optimizer;
  return { ...problem, optimizer };
}

function inWords({ loss, families, at_edge: atEdge }, seconds) {
  const percent = (less) => `${short(Math.max(0, 100 * less))} %`;
  const gains = Object.entries(families).map(([name, other]) => `${percent(1 - loss / other)} less than the best ${NAMED[name] ?? name} one`);
  const edge = atEdge ? " It sits at the edge of stability: with rates a little higher training blows up." : "";
  return `The best schedule ends at ${short(loss)}: ${gains.join(", ")}.${edge} Found in ${inTime(seconds)}.`;
}
