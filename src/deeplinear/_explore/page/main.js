// The page: controls on one side, theory that follows them on the other.

import { Controls } from "./controls.js";
import { element, find, oneColumn } from "./dom.js";
import { Experiment } from "./experiment.js";
import { buildExport, buildPresets, buildTheme, showPreset } from "./menus.js";
import { namesOf } from "./names.js";
import { colorOf, figure, inWords } from "./plot.js";
import { AXES, fromAddress, initialState, keyOf, MOST_PINS, toAddress, VIEWS } from "./state.js";
import { Theory } from "./theory.js";
import { WORDS } from "./words.js";

const TASKS = { loss: "solve", kernel: "solve", decomposition: "solve", correlations: "correlations", rates: "rates", sharpness: "sharpness" };
const ALONE = new Set(["decomposition", "correlations"]); // views of one curve

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
const theory = new Theory(page.costs, {
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

// --- state ----------------------------------------------------------------------------------------------------

function refresh(isMoving = false) {
  theory.refresh(isMoving);
  writeAddress();
}

function requestFor(problem) {
  const task = TASKS[state.view];
  const body = task === "correlations" ? { problem, kind: state.kind, layer: state.layer } : { problem };
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
  const { problem, pins, view, x, y, train } = preset;
  const { dim, seeds } = state;
  apply({ ...initialState(problem), pins, view, x, y, train, preset: id, dim, seeds });
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
  const isBegun = !isWhole && theory.partial && TASKS[state.view] === "solve";
  if (isWhole) shown = { task: TASKS[state.view], data: live.data };
  const before = shown?.task === TASKS[state.view] ? shown.data : null;
  if (isBegun) Object.assign(live, { data: theory.partial, before, isBegun });
  else if (!isWhole) live.data = before;
  const plot = find("#plot");
  const { traces, layout } = figure(state.view, state, inView(all), plot.getBoundingClientRect());
  Plotly.react(plot, traces, layout, { responsive: true, displayModeBar: oneColumn.matches ? false : "hover", displaylogo: false, modeBarButtons: [BUTTONS] });
  plot.dataset.key = isWhole ? keyOf(state.problem) : "";
  plot.classList.toggle("is-stale", !isWhole && !isBegun);
  showWords(live);
  showPins(all);
  showViews();
  experiment.show();
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
    return chipOf(name, index + 1, ALONE.has(state.view) ? "muted" : "", remove);
  });
  const isRefused = theory.refused === theory.wanted().key;
  find("#pins").replaceChildren(chipOf(isRefused ? "last curve that could be drawn" : `${live.name} (now)`, 0, "live"), ...chips);
  find("#pin").disabled = state.pins.length >= MOST_PINS || state.pins.some((pin) => keyOf(pin.problem) === keyOf(state.problem));
}

const chipOf = (name, index, kind, ...more) => element("span", { className: `chip ${kind}` }, element("i", { style: `background:${colorOf(index)}` }), name, ...more);

find("#pin").addEventListener("click", () => {
  state.pins.push({ problem: structuredClone(state.problem) });
  refresh();
});

// --- views ----------------------------------------------------------------------------------------------------

function setView(view) {
  if (view === state.view) return;
  Object.assign(state, { view, ...AXES[view] });
  refresh();
}

function buildViews() {
  for (const [view, label] of Object.entries(VIEWS)) {
    const tab = element("button", { type: "button", textContent: label, id: `view-${view}` });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "plot");
    tab.addEventListener("click", () => setView(view));
    find("#views").append(tab);
  }
  find("#views").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = Object.keys(VIEWS);
    const next = names[(names.indexOf(state.view) + step + names.length) % names.length];
    setView(next);
    find(`#view-${next}`).focus();
    event.preventDefault();
  });
  const flip = (axis) => () => (state[axis] = state[axis] === "log" ? "linear" : "log");
  find("#axes").append(
    toggle("train-loss", "train loss", () => (state.train = !state.train)),
    toggle("log-x", "log x", flip("x")),
    toggle("log-y", "log y", flip("y")),
  );
  const kinds = element("select", { id: "kind" }, ...Object.keys(page.correlations).map((value) => element("option", { value, textContent: WORDS[value] })));
  kinds.addEventListener("change", () => {
    Object.assign(state, { kind: kinds.value, layer: null });
    refresh();
  });
  const layers = element("select", { id: "layer" });
  layers.addEventListener("change", () => {
    state.layer = Number(layers.value);
    refresh();
  });
  const relative = toggle("relative", "relative to their size", () => (state.relative = !state.relative));
  find("#chooser").append(element("label", { textContent: "Show " }, kinds), element("label", { textContent: "in layer " }, layers), relative);
}

function toggle(id, label, flip) {
  const button = element("button", { type: "button", id, className: "toggle", textContent: label });
  button.addEventListener("click", () => {
    flip();
    refresh();
  });
  return button;
}

function showViews() {
  for (const view of Object.keys(VIEWS)) {
    const tab = find(`#view-${view}`);
    tab.setAttribute("aria-selected", String(view === state.view));
    tab.tabIndex = view === state.view ? 0 : -1;
  }
  const pressed = { "train-loss": state.train, "log-x": state.x === "log", "log-y": state.y === "log", relative: state.relative };
  for (const [id, isPressed] of Object.entries(pressed)) find(`#${id}`).setAttribute("aria-pressed", String(isPressed));
  const isHeat = state.view === "correlations";
  find("#axes").hidden = isHeat;
  find("#chooser").hidden = !isHeat;
  find("#train-loss").hidden = !["loss", "rates"].includes(state.view);
  find("#relative").hidden = state.kind.endsWith("response");
  find("#kind").value = state.kind;
  if (isHeat) showLayers(theory.get(theory.wanted().key));
  showPreset(state.preset);
}

function showLayers(data) {
  const select = find("#layer");
  if (!data || document.activeElement === select) return;
  select.parentElement.hidden = !data.layers.length;
  select.replaceChildren(...data.layers.map((layer) => element("option", { value: layer, textContent: layer })));
  if (data.layers.length) select.value = data.layer;
}

// --- start ----------------------------------------------------------------------------------------------------

// The experiment stands below the picture, or in one column below the controls, for the keyboard too.
function place() {
  find(oneColumn.matches ? ".columns" : "main").append(find(".experiment"));
}

find("#progress button").addEventListener("click", () => theory.cancel());
buildPresets(page.presets, (id) => {
  theory.notice = "";
  applyPreset(id);
});
buildViews();
buildExport(() => ({ state, curves: inView(curves()), link: location.href.split("#")[0] + address() }));
oneColumn.addEventListener("change", place);
place();
window.addEventListener("hashchange", readAddress);
window.addEventListener("resize", draw);
readAddress();
buildTheme(draw);
