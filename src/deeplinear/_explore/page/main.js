// The page: controls on one side, theory that follows them on the other.

import { Refused, run } from "./api.js";
import { Controls, element } from "./controls.js";
import * as exports from "./exports.js";
import { colorOf, figure, inWords, WORDS } from "./plot.js";
import { AXES, fromAddress, initialState, keyOf, MOST_PINS, toAddress, VIEWS } from "./state.js";

const find = (selector) => document.querySelector(selector);
const TASKS = { loss: "solve", kernel: "solve", decomposition: "solve", correlations: "correlations", rates: "rates" };
const SOON = 150; // milliseconds after which a move of a control should show
const PREVIEW = 60; // milliseconds that the server may take for the first steps of a longer run
const PATIENCE = 400; // milliseconds without an answer before progress is shown
const KEPT = 200; // answers that are kept

const page = await (await fetch("api/page")).json();
const controls = new Controls(find("#controls"), page, onControl);
let state = initialState(controls.problem);
const answers = new Map(); // of the server, by task and request
const networks = new Map(); // results of experiments, by problem
let shown = null; // the last complete answer that was drawn, while a newer one is on its way
let partial = null; // the first steps of the newest answer
let running = null; // the request for the curve that follows the controls
let others = null; // aborts the requests for the pinned curves
let training = null; // the experiment
let refused = null; // the last request that was not allowed
let notice = ""; // what the user should know beside the status
let speed = 0.04; // milliseconds per unit of work, learned from each answer

// --- state ----------------------------------------------------------------------------------------------------

function onControl(isMoving) {
  notice = "";
  state.problem = controls.problem;
  state.preset = "";
  refresh(isMoving);
}

function requestFor(problem) {
  const body = { problem };
  if (state.view === "correlations") Object.assign(body, { kind: state.kind, layer: state.layer });
  return { task: TASKS[state.view], body, key: TASKS[state.view] + JSON.stringify(body) };
}

function curves() {
  const all = [{ name: nameOf(state.problem), problem: state.problem }, ...state.pins];
  if (requestFor(state.problem).key === refused) all[0].name = "last curve that could be drawn";
  const wanted = ["decomposition", "correlations"].includes(state.view) ? all.slice(0, 1) : all;
  return wanted.map(({ name, problem }, index) => ({
    name,
    problem,
    color: colorOf(index),
    data: answers.get(requestFor(problem).key),
    networks: networks.get(keyOf(problem)),
  }));
}

// The live curve is called by what tells it from the pinned ones.
function nameOf(problem) {
  const others = state.pins.map((pin) => pin.problem);
  const differs = page.controls.filter(({ part, name }) => {
    const at = (each) => JSON.stringify((part ? each[part] : each)[name]);
    return others.some((other) => at(other) !== at(problem));
  });
  const told = differs.slice(0, 2).map(({ part, name, label }) => {
    const value = (part ? problem[part] : problem)[name];
    return value === undefined ? null : `${label.toLowerCase()} ${Array.isArray(value) ? value.join("/") : value}`;
  });
  return told.filter(Boolean).join(", ") || "theory";
}

let writing = null;
function writeAddress() {
  clearTimeout(writing);
  writing = setTimeout(() => {
    state.trained = networks.has(keyOf(state.problem));
    history.replaceState(null, "", toAddress(state));
  }, 150);
}

function readAddress() {
  const read = fromAddress(location.hash, initialState(controls.problem));
  if (!read) applyPreset(page.presets[0].id);
  else apply(read);
  notice = read || location.hash.length < 2 ? "" : "This link could not be read; these are the usual settings. ";
  if (read?.trained) train();
}

function apply(next) {
  state = next;
  controls.problem = state.problem;
  state.problem = controls.problem;
  for (const pin of state.pins) pin.problem = controls.complete(pin.problem);
  find("#preset").value = state.preset;
  refresh(false);
}

function applyPreset(id) {
  const preset = page.presets.find((each) => each.id === id);
  if (!preset) return;
  const { problem, pins, view, x, y, train: showTrain } = preset;
  apply({ ...initialState(problem), problem, pins: pins.map((pin) => ({ ...pin })), view, x, y, train: showTrain, preset: id, dim: state.dim, seeds: state.seeds });
}

// --- asking the server ----------------------------------------------------------------------------------------

function refresh(isMoving) {
  const wanted = requestFor(state.problem);
  draw();
  writeAddress();
  if (answers.has(wanted.key)) {
    running?.controller.abort();
    running = null;
    showProgress("#progress", null);
    controls.showError(null);
    say("");
    loadPins();
    return;
  }
  others?.abort();
  if (running && (running.key === wanted.key || running.expected < SOON)) {
    running.isMoving &&= isMoving;
    return; // it is about to end, and what is wanted then comes next
  }
  running?.controller.abort();
  ask(wanted, isMoving);
}

async function ask(wanted, isMoving) {
  const job = { ...wanted, isMoving, controller: new AbortController(), expected: speed * workOf(wanted.body.problem) };
  running = job;
  const { signal } = job.controller;
  const started = performance.now();
  const patience = setTimeout(() => showProgress("#progress", { stage: "solving" }), PATIENCE);
  try {
    if (job.task === "solve" && job.expected > SOON - 50) {
      const first = preview(job, signal);
      if (isMoving) await first;
      if (requestFor(state.problem).key !== job.key) return; // has moved on meanwhile
    }
    const result = await run(job.task, job.body, {
      signal,
      onProgress: (progress) => running === job && performance.now() - started > PATIENCE && showProgress("#progress", progress),
    });
    keep(job.key, result);
    if (result.seconds && result.method === "dense") speed = 0.5 * speed + (0.5 * 1000 * result.seconds) / workOf(job.body.problem);
    if (running === job) {
      partial = null;
      shown = result;
      controls.showError(null);
      say(`${notice}${job.task === "solve" ? "Solved" : "Done"} in ${inTime((performance.now() - started) / 1000)}.`);
    }
  } catch (error) {
    if (signal.aborted) return;
    partial = null;
    refused = job.key;
    const beside = controls.showError(error.field, error.message);
    say(error instanceof Refused ? (beside ? `See the control: ${error.message}` : error.message) : `No answer from the server: ${error.message}`, true);
    if (requestFor(state.problem).key === job.key) running = null;
  } finally {
    clearTimeout(patience);
    if (running === job || running === null) {
      running = null;
      showProgress("#progress", null);
      draw();
      const next = requestFor(state.problem);
      if (next.key !== job.key && !answers.has(next.key)) ask(next, job.isMoving);
      else loadPins();
    }
  }
}

// The first steps of a run do not depend on what follows them: they are asked for, and drawn, before the rest is known.
async function preview(job, signal) {
  const { problem } = job.body;
  const per = workOf({ ...problem, steps: 1 }) / 1.01;
  const only = Math.floor(50 * (Math.sqrt(1 + (4 * PREVIEW) / speed / per / 100) - 1));
  if (only < 8 || only >= problem.steps) return;
  try {
    const first = await run("solve", { ...job.body, only }, { signal });
    if (running === job && !answers.has(job.key)) {
      partial = { key: job.key, data: first };
      draw();
    }
  } catch {
    // The whole run is on its way, and reports what is wrong.
  }
}

// Time of a dense solve up to a factor: fitted to runs of 100 to 300 steps and 1 to 4 layers.
function workOf({ network, data, steps }) {
  const layers = Number(network.depth) || 21;
  const outputs = Array.isArray(data.target_gram) ? data.target_gram.length : 1;
  const size = steps * outputs;
  return (2 + layers * (network.type === "ResNet" ? 3 : 1) + (data.type === "PowerLaw" ? 6 : 0)) * size * (1 + size / 100);
}

async function loadPins() {
  others?.abort();
  const controller = new AbortController();
  others = controller;
  for (const { problem } of curves().slice(1)) {
    const { task, body, key } = requestFor(problem);
    if (answers.has(key)) continue;
    try {
      const slow = setTimeout(() => !controller.signal.aborted && showProgress("#progress", { stage: "pinned curves" }), PATIENCE);
      keep(key, await run(task, body, { signal: controller.signal }).finally(() => clearTimeout(slow)));
    } catch (error) {
      if (controller.signal.aborted) return;
      say(`A pinned curve could not be drawn: ${error.message}`, true);
    }
    if (others === controller) {
      if (!running) showProgress("#progress", null);
      draw();
    }
  }
}

function keep(key, result) {
  answers.set(key, result);
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
}

// --- experiment -----------------------------------------------------------------------------------------------

const fields = {};
function buildExperiment() {
  const form = find("#experiment");
  const field = (name, label, symbol, help) => {
    const input = element("input", { type: "text", inputMode: "numeric", id: `experiment.${name}`, autocomplete: "off" });
    const error = element("p", { className: "error", hidden: true, id: `experiment.${name}-error` });
    input.setAttribute("aria-describedby", `experiment.${name}-help experiment.${name}-error`);
    input.addEventListener("input", () => {
      state[name] = Number.isInteger(Number(input.value)) && input.value.trim() ? Number(input.value) : input.value;
      writeAddress();
    });
    fields[name] = { input, error };
    const text = element("label", { htmlFor: input.id, textContent: label });
    text.append(" ", element("var", { textContent: symbol }));
    return element("div", { className: "field" }, text, input, element("p", { className: "help", id: `experiment.${name}-help`, textContent: help }), error);
  };
  form.append(
    field("dim", "Input dimension", "D", `1 to ${page.limits.dim}; larger is closer to theory`),
    field("seeds", "Networks", "n", `1 to ${page.limits.seeds}; 8 or more for a verdict`),
    element("button", { className: "button primary", type: "submit", id: "train", textContent: "Train real networks" }),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    train();
  });
}

async function train() {
  training?.controller.abort();
  const problem = state.problem;
  const job = { controller: new AbortController() };
  training = job;
  showExperimentError(null);
  find("#experiment-result").textContent = "";
  find("#train").disabled = true;
  showProgress("#experiment-progress", { stage: "starting" });
  try {
    const result = await run("experiment", { problem, dim: state.dim, seeds: state.seeds }, {
      signal: job.controller.signal,
      onProgress: (progress) => training === job && showProgress("#experiment-progress", progress),
    });
    networks.set(keyOf(problem), result);
    setView("loss");
    if (keyOf(problem) !== keyOf(state.problem)) tell("These networks belong to the settings they were started with. Go back to those, or train again.");
    draw();
    writeAddress();
  } catch (error) {
    if (job.controller.signal.aborted) tell("Cancelled.");
    else if (!showExperimentError(error.field, error.message)) tell(error.message, true);
  } finally {
    if (training === job) {
      training = null;
      find("#train").disabled = false;
      showProgress("#experiment-progress", null);
    }
  }
}

function tell(text, isError = false) {
  const at = find("#experiment-result");
  at.textContent = text;
  at.classList.toggle("is-error", isError);
}

function showExperimentError(field, message) {
  for (const { input, error } of Object.values(fields)) {
    error.hidden = true;
    input.removeAttribute("aria-invalid");
  }
  const at = fields[field?.replace("experiment.", "")];
  if (!at) return message ? controls.showError(field, message) : false;
  at.error.textContent = message;
  at.error.hidden = false;
  at.input.setAttribute("aria-invalid", "true");
  return true;
}

const VERDICTS = { agrees: "Theory and networks agree.", close: "Close.", disagrees: "They disagree.", undecided: "Undecided." };

function showVerdict(result) {
  if (!result) {
    if (find("#experiment-result").dataset.verdict) tell("");
    delete find("#experiment-result").dataset.verdict;
    return;
  }
  const at = find("#experiment-result");
  const z = result.max_z === null ? "" : ` Largest z-score of the test loss: ${result.max_z.toFixed(1)}.`;
  const blown = result.diverged ? ` ${result.diverged} of them blew up.` : "";
  at.dataset.verdict = result.verdict;
  at.classList.remove("is-error");
  const badge = element("strong", { className: `verdict ${result.verdict}`, textContent: VERDICTS[result.verdict] });
  at.replaceChildren(badge, ` ${capital(result.explanation)}.${z} ${result.seeds} networks of input dimension ${result.dim}, trained in ${inTime(result.seconds)}.${blown}`);
}

// --- drawing --------------------------------------------------------------------------------------------------

let drawing = 0;
function draw() {
  cancelAnimationFrame(drawing);
  drawing = requestAnimationFrame(drawNow);
}

function drawNow() {
  const all = curves();
  const live = all[0];
  const isWhole = Boolean(live.data);
  if (isWhole) shown = live.data;
  else if (partial && partial.key === requestFor(state.problem).key) Object.assign(live, { data: partial.data, before: shown?.test_loss ? shown : null });
  else if (shown && fits(shown)) live.data = shown;
  const { traces, layout } = figure(state.view, state, all);
  const plot = find("#plot");
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], doubleClick: "reset" };
  Plotly.react(plot, traces, layout, config);
  plot.dataset.key = isWhole ? keyOf(state.problem) : "";
  plot.dataset.drawn = String(Number(plot.dataset.drawn ?? 0) + 1);
  plot.classList.toggle("is-stale", !isWhole && !partial);
  const preset = page.presets.find(({ id, view }) => id === state.preset && view === state.view);
  const words = inWords(state.view, state, live);
  find("#see").replaceChildren(...(preset ? [element("strong", { textContent: preset.see }), " "] : []), words);
  plot.setAttribute("aria-label", `${VIEWS[state.view]}. ${words}`);
  showPins(all);
  showViews();
  showVerdict(live.networks);
  for (const [name, { input }] of Object.entries(fields)) if (document.activeElement !== input) input.value = state[name];
  find('[data-export="networks"]').disabled = !live.networks;
}

const fits = (answer) => (state.view === "rates" ? answer.lrs : state.view === "correlations" ? answer.values : answer.kernel);

function showPins(all) {
  const only = all.length === 1 && state.pins.length ? [all[0], ...state.pins.map((pin, index) => ({ ...pin, color: colorOf(index + 1), isHidden: true }))] : all;
  const chips = only.map(({ name, color, isHidden }, index) => {
    const chip = element("span", { className: `chip${index ? "" : " live"}${isHidden ? " muted" : ""}` }, element("i", { style: `background:${color}` }), index ? name : `${name} (now)`);
    if (index) {
      const remove = element("button", { type: "button", textContent: "×", title: "Remove" });
      remove.setAttribute("aria-label", `Remove ${name}`);
      remove.addEventListener("click", () => {
        state.pins.splice(index - 1, 1);
        state.preset = "";
        refresh(false);
        find("#pin").focus();
      });
      chip.append(remove);
    }
    return chip;
  });
  find("#pins").replaceChildren(...chips);
  find("#pin").disabled = state.pins.length >= MOST_PINS || state.pins.some((pin) => keyOf(pin.problem) === keyOf(state.problem));
}

function pin() {
  const name = state.pins.length ? nameOf(state.problem) : summary(state.problem);
  const taken = state.pins.filter((each) => each.name === name || each.name.startsWith(`${name} #`)).length;
  state.pins.push({ name: taken ? `${name} #${taken + 1}` : name, problem: structuredClone(state.problem) });
  refresh(false);
}

const summary = ({ network, optimizer }) => `depth ${network.depth}, width ${network.width}, rate ${optimizer.lr}`;

function setView(view) {
  if (view === state.view) return;
  Object.assign(state, { view, ...AXES[view] });
  partial = null;
  refresh(false);
}

function buildViews() {
  const tabs = Object.entries(VIEWS).map(([view, label]) => {
    const tab = element("button", { type: "button", textContent: label, id: `view-${view}` });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "plot");
    tab.addEventListener("click", () => setView(view));
    return tab;
  });
  find("#views").append(...tabs);
  find("#views").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = Object.keys(VIEWS);
    const next = names[(names.indexOf(state.view) + step + names.length) % names.length];
    setView(next);
    find(`#view-${next}`).focus();
    event.preventDefault();
  });
  const toggle = (id, label, isOn, flip) => {
    const button = element("button", { type: "button", id, className: "toggle", textContent: label });
    button.addEventListener("click", () => {
      flip();
      refresh(false);
    });
    button.show = () => button.setAttribute("aria-pressed", String(isOn()));
    return button;
  };
  const flip = (axis) => () => (state[axis] = state[axis] === "log" ? "linear" : "log");
  find("#axes").append(
    toggle("train-loss", "train loss", () => state.train, () => (state.train = !state.train)),
    toggle("log-x", "log x", () => state.x === "log", flip("x")),
    toggle("log-y", "log y", () => state.y === "log", flip("y")),
  );
}

function showViews() {
  for (const view of Object.keys(VIEWS)) {
    const tab = find(`#view-${view}`);
    tab.setAttribute("aria-selected", String(view === state.view));
    tab.tabIndex = view === state.view ? 0 : -1;
  }
  for (const button of find("#axes").children) button.show();
  find("#axes").hidden = state.view === "correlations";
  find("#train-loss").hidden = !["loss", "rates"].includes(state.view);
  for (const chip of find("#tour").children) chip.setAttribute("aria-pressed", String(chip.value === state.preset));
  find("#preset").value = state.preset;
  showChooser();
}

function showChooser() {
  const box = find("#chooser");
  box.hidden = state.view !== "correlations";
  if (box.hidden) return;
  if (!box.children.length) {
    const kinds = element("select", { id: "kind" }, ...Object.keys(page.correlations).map((value) => element("option", { value, textContent: WORDS[value] })));
    kinds.addEventListener("change", () => {
      Object.assign(state, { kind: kinds.value, layer: null });
      refresh(false);
    });
    const layers = element("select", { id: "layer" });
    layers.addEventListener("change", () => {
      state.layer = Number(layers.value);
      refresh(false);
    });
    const relative = element("button", { type: "button", id: "relative", className: "toggle", textContent: "relative to their size" });
    relative.addEventListener("click", () => {
      state.relative = !state.relative;
      refresh(false);
    });
    box.append(element("label", { textContent: "Of " }, kinds), element("label", { textContent: "in layer " }, layers), relative);
  }
  find("#kind").value = state.kind;
  find("#relative").setAttribute("aria-pressed", String(state.relative));
  find("#relative").hidden = state.kind.endsWith("response");
  const data = curves()[0].data;
  if (!data) return;
  find("#layer").parentElement.hidden = !data.layers.length;
  if (document.activeElement === find("#layer")) return;
  find("#layer").replaceChildren(...data.layers.map((layer) => element("option", { value: layer, textContent: layer })));
  if (data.layers.length) find("#layer").value = data.layer;
}

function showProgress(selector, progress) {
  const box = find(selector);
  box.hidden = !progress;
  if (!progress) return;
  const bar = box.querySelector("progress");
  if (Number.isFinite(progress.part)) bar.value = progress.part;
  else bar.removeAttribute("value");
  const left = Number.isFinite(progress.left) ? `about ${inTime(progress.left)} left` : Number.isFinite(progress.estimate) ? `about ${inTime(progress.estimate)}` : "";
  const part = Number.isFinite(progress.part) ? `${Math.round(100 * progress.part)} %` : "";
  box.querySelector("span").textContent = [capital(progress.stage ?? "working"), part, left].filter(Boolean).join(" · ");
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const inTime = (seconds) => (seconds < 0.095 ? `${Math.max(1, Math.round(1000 * seconds))} ms` : seconds < 90 ? `${seconds.toPrecision(2)} s` : `${Math.round(seconds / 60)} min`);

function say(text, isError = false) {
  const at = find("#status");
  at.textContent = text;
  at.classList.toggle("is-error", isError);
}

// --- presets, theme, export -----------------------------------------------------------------------------------

function buildPresets() {
  const select = find("#preset");
  for (const group of [...new Set(page.presets.map((preset) => preset.group))]) {
    const options = page.presets.filter((preset) => preset.group === group).map(({ id, name }) => element("option", { value: id, textContent: name }));
    select.append(element("optgroup", { label: group }, ...options));
  }
  select.addEventListener("change", () => applyPreset(select.value));
  const tour = page.presets.filter(({ group }) => group === page.presets[0].group);
  find("#tour").append(
    ...tour.map(({ id, name }) => {
      const chip = element("button", { type: "button", value: id, className: "toggle", textContent: name });
      chip.addEventListener("click", () => applyPreset(id));
      return chip;
    }),
  );
}

const THEMES = { "": "Colours follow the system", light: "Light colours", dark: "Dark colours" };

function buildTheme() {
  const button = find("#theme");
  const show = () => {
    const theme = document.documentElement.dataset.theme ?? "";
    button.title = THEMES[theme];
    button.setAttribute("aria-label", THEMES[theme]);
    button.firstChild.textContent = { "": "◐", light: "☀", dark: "☾" }[theme];
    draw();
  };
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length];
    if (next) document.documentElement.dataset.theme = next;
    else delete document.documentElement.dataset.theme;
    localStorage.setItem("theme", next);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}

const EXPORTS = {
  png: () => exports.picture(find("#plot"), "png"),
  svg: () => exports.picture(find("#plot"), "svg"),
  csv: () => exports.save(exports.table(state.view, curves()), "deeplinear.csv", "text/csv"),
  netcdf: async () => {
    say("Writing the file ...");
    await exports.netcdf(state.problem);
    say("");
  },
  networks: () => exports.networks(networks.get(keyOf(state.problem))),
  python: async () => {
    find("#python code").textContent = await exports.python(state, curves());
    find("#python").showModal();
  },
  link: async () => {
    history.replaceState(null, "", toAddress(state));
    await copy(location.href, "The link is in the clipboard.");
  },
};

async function copy(text, done) {
  try {
    await navigator.clipboard.writeText(text);
    say(done);
  } catch {
    say("The browser does not allow copying; take it from the address bar or select it.", true);
  }
}

function buildExport() {
  find("#export-menu").addEventListener("click", async (event) => {
    const kind = event.target.closest("[data-export]")?.dataset.export;
    if (!kind) return;
    find("#export-menu").hidePopover();
    if (kind !== "link" && !curves()[0].data) return say("There is nothing to export yet.", true);
    try {
      await EXPORTS[kind]();
    } catch (error) {
      say(`The export failed: ${error.message}`, true);
    }
  });
  find("#copy").addEventListener("click", () => copy(find("#python code").textContent, "The lines are in the clipboard."));
}

// --- start ----------------------------------------------------------------------------------------------------

find("#pin").addEventListener("click", pin);
find("#progress button").addEventListener("click", () => {
  running?.controller.abort();
  others?.abort();
  running = null;
  partial = null;
  showProgress("#progress", null);
  say("Cancelled. Move a control to solve again.");
});
find("#experiment-progress button").addEventListener("click", () => training?.controller.abort());
buildPresets();
buildViews();
buildExperiment();
buildExport();
window.addEventListener("hashchange", readAddress);
readAddress();
buildTheme();
