// The page: controls on one side, theory that follows them on the other.

import { Budget } from "./budget.js";
import { Controls } from "./controls.js";
import { element, find, oneColumn } from "./dom.js";
import { Experiment } from "./experiment.js";
import { colorOf } from "./look.js";
import { Measured } from "./measured.js";
import { buildExport, buildPresets, buildTheme, showPreset } from "./menus.js";
import { namesOf } from "./names.js";
import { figure } from "./plot.js";
import { Runs } from "./runs.js";
import { Schedule } from "./schedule.js";
import { ALONE, AXES, fromAddress, initialState, keyOf, MOST_PINS, toAddress, VIEWS } from "./state.js";
import { Theory } from "./theory.js";
import { Views } from "./views.js";
import { inWords } from "./wording.js";

const TASKS = { loss: "solve", kernel: "solve", decomposition: "solve", schedule: "solve" }; // others are called as their view
const taskOf = (view) => TASKS[view] ?? view;
const OPTIONS = { solve: ["average"], correlations: ["kind", "layer"], landscape: ["along"] }; // what a view asks for beside the problem

const page = await (await fetch("api/page")).json();
const controls = new Controls(find("#controls"), page, (isMoving) => {
  state.problem = controls.problem;
  state.preset = "";
  theory.notice = "";
  refresh(isMoving);
});
let state = initialState(controls.problem);
let shown = null; // the last complete answer that was drawn

const refuse = ({ field, message }) => controls.showError(field, message);
const theory = new Theory({
  wanted: () => requestFor(state.problem),
  pinned: () => (ALONE.has(state.view) ? [] : state.pins.map(({ problem }) => requestFor(problem))),
  draw,
  refuse,
  accept: () => controls.showError(null),
});
const experiment = new Experiment(page.limits, {
  state: () => state,
  changed: writeAddress,
  trained: () => {
    setView("loss");
    draw();
    writeAddress();
  },
  refuse,
});
const measured = new Measured(page.limits.file, {
  state: () => state,
  changed: (isNew) => {
    if (isNew) setView("loss");
    draw();
  },
});
const runs = new Runs(page.limits.file);
const schedule = new Schedule(find("#schedule"), page.limits, {
  state: () => state,
  rates: () => shown?.data?.rates,
  draw: (knots, isMoving) => controls.set({ "optimizer.schedule": "drawn", "optimizer.knots": knots }, isMoving),
  shape: (name) => controls.set({ "optimizer.schedule": name, "optimizer.warmup": 0, "optimizer.shape": null }),
  found: (problem, { lr, knots }) => {
    const isSame = keyOf(problem) === keyOf(state.problem);
    if (isSame) controls.set({ "optimizer.lr": lr, "optimizer.schedule": "drawn", "optimizer.knots": knots });
    return isSame;
  },
});
const budget = new Budget(find("#budget-bar"), {
  state: () => state,
  data: () => theory.get(requestFor(state.problem).key),
  changed: () => {
    draw();
    writeAddress();
  },
  take: ({ width, steps, lr }) => {
    setView("loss");
    controls.set({ "network.width": width, steps, "optimizer.lr": Number(lr.toPrecision(4)) });
  },
});
const views = new Views({ kinds: Object.keys(page.correlations), state: () => state, setView, changed: () => refresh() });

// --- state ----------------------------------------------------------------------------------------------------

function refresh(isMoving = false) {
  theory.refresh(isMoving);
  if (!isMoving) measured.follow();
  writeAddress();
}

function requestFor(problem) {
  const task = taskOf(state.view);
  const body = { problem, ...Object.fromEntries((OPTIONS[task] ?? []).map((name) => [name, state[name]])) };
  return { task, body, key: task + JSON.stringify(body) };
}

// The curve that follows the controls, and the pinned ones.
function curves() {
  const problems = [state.problem, ...state.pins.map(({ problem }) => problem)];
  return namesOf(problems, page).map((name, index) => ({
    name,
    problem: problems[index],
    color: colorOf(index),
    data: theory.get(requestFor(problems[index]).key),
    networks: experiment.get(problems[index]),
    measured: index === 0 ? measured.curves : null,
  }));
}

const inView = (all) => (ALONE.has(state.view) ? all.slice(0, 1) : all);

let writing = null;
function writeAddress() {
  clearTimeout(writing);
  writing = setTimeout(() => history.replaceState(null, "", address()), 150);
}

function address() {
  const isTrained = ({ problem }) => Boolean(experiment.get(problem));
  return toAddress({ ...state, trained: isTrained(state), pins: state.pins.map((pin) => ({ ...pin, trained: isTrained(pin) })) });
}

function readAddress() {
  const read = fromAddress(location.hash, initialState(controls.problem));
  const isBroken = !read && location.hash.length > 1;
  theory.notice = isBroken ? "This link could not be read; these are the usual settings. " : "";
  if (read) apply(read);
  else applyPreset(page.presets[0].id);
  if (read) trainAgain([read.trained, ...read.pins.map((pin) => pin.trained)]);
}

// The networks that a link shows are trained again: the same seeds make the same networks.
async function trainAgain(wanted) {
  const problems = [state, ...state.pins].map(({ problem }) => problem);
  for (const problem of problems.filter((_, index) => wanted[index])) await experiment.train(problem);
}

function apply(next) {
  controls.problem = next.problem;
  const pins = next.pins.map(({ problem }) => ({ problem: controls.complete(problem) }));
  state = { ...next, problem: controls.problem, pins };
  refresh();
}

function applyPreset(id) {
  const preset = page.presets.find((each) => each.id === id);
  if (!preset) return;
  const { problem, pins, view, x, y, train, dim, seeds } = preset;
  apply({ ...initialState(problem), pins, view, x, y, train, preset: id, dim: dim ?? state.dim, seeds: seeds ?? state.seeds });
}

// --- drawing --------------------------------------------------------------------------------------------------

const BUTTONS = ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]; // Plotly has one that sends data away

let drawing = 0;
function draw() {
  cancelAnimationFrame(drawing);
  drawing = requestAnimationFrame(drawNow);
}

function drawNow() {
  const all = curves();
  const [live] = all;
  const isWhole = Boolean(live.data);
  const isBegun = !isWhole && theory.partial && taskOf(state.view) === "solve";
  if (isWhole) shown = { task: taskOf(state.view), data: live.data };
  const before = shown?.task === taskOf(state.view) ? shown.data : null;
  if (isBegun) Object.assign(live, { data: theory.partial, before, isBegun });
  else if (!isWhole) live.data = before;
  const plot = find("#plot");
  const { traces, layout } = figure(state.view, state, inView(all), plot.getBoundingClientRect());
  Plotly.react(plot, traces, layout, { responsive: true, displayModeBar: oneColumn.matches ? false : "hover", displaylogo: false, modeBarButtons: [BUTTONS] });
  plot.dataset.key = isWhole ? keyOf(state.problem) : "";
  plot.classList.toggle("is-stale", !isWhole && !isBegun);
  showWords(live);
  showPins(all);
  views.show(live.data);
  showPreset(state.preset);
  if (state.view === "schedule") schedule.show();
  if (state.view === "plan") budget.show();
  experiment.show();
  measured.show();
  find('[data-export="networks"]').disabled = !live.networks;
}

function showWords(live) {
  const preset = page.presets.find(({ id, view }) => id === state.preset && view === state.view);
  const words = inWords(state.view, state, live);
  find("#see").replaceChildren(...(preset ? [element("strong", { textContent: preset.see }), " "] : []), words);
  find("#plot").setAttribute("aria-label", `${VIEWS[state.view]}. ${words}`);
}

// --- pinned curves --------------------------------------------------------------------------------------------

function showPins([live, ...pins]) {
  const chips = pins.map(({ name }, index) => {
    const remove = element("button", { type: "button", textContent: "×", title: "Remove" });
    remove.setAttribute("aria-label", `Remove ${name}`);
    remove.addEventListener("click", () => {
      state.pins.splice(index, 1);
      state.preset = "";
      refresh();
      find("#pin").focus();
    });
    return chipOf(name, index + 1, "", remove);
  });
  const isAlone = ALONE.has(state.view);
  const isRefused = theory.refused === theory.wanted().key;
  find("#pins").replaceChildren(chipOf(isRefused ? "last curve that could be drawn" : `${isAlone ? "theory" : live.name} (now)`, 0, "live"), ...(isAlone ? [] : chips));
  find("#pin").hidden = isAlone;
  find("#pin").disabled = state.pins.length >= MOST_PINS || state.pins.some((pin) => keyOf(pin.problem) === keyOf(state.problem));
}

const chipOf = (name, index, kind, ...more) => element("span", { className: `chip ${kind}` }, element("i", { style: `background:${colorOf(index)}` }), name, ...more);

find("#pin").addEventListener("click", () => {
  state.pins.push({ problem: structuredClone(state.problem) });
  refresh();
});

// --- start ----------------------------------------------------------------------------------------------------

// Networks stand below the picture, or in one column below the controls, for the keyboard too.
function place() {
  find(oneColumn.matches ? ".columns" : "main").append(find(".experiment"), ...document.querySelectorAll(".yours"));
}

function setView(view) {
  if (view === state.view) return;
  Object.assign(state, { view, ...AXES[view] });
  refresh();
}

function reset() {
  history.pushState(null, "", address()); // where the browser's Back leads
  measured.remove();
  theory.notice = "";
  state = initialState(state.problem);
  applyPreset(page.presets[0].id);
}

find("#documentation").href = page.documentation;
find("#reset").addEventListener("click", reset);
find("#progress button").addEventListener("click", () => theory.cancel());
buildPresets(page.presets, (id) => {
  theory.notice = "";
  applyPreset(id);
});
buildExport(() => ({ state, curves: inView(curves()), link: location.href.split("#")[0] + address() }));
oneColumn.addEventListener("change", place);
place();
window.addEventListener("hashchange", readAddress);
window.addEventListener("resize", draw);
readAddress();
buildTheme(() => {
  draw();
  runs.draw();
});
