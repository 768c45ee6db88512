// The tabs of the views, and what can be chosen in each of them.

import { element, find } from "./dom.js";
import { VIEWS } from "./state.js";
import { AVERAGES, LINES, WORDS } from "./words.js";

const ABOUT = { loss: "solve", kernel: "Solution", decomposition: "Decomposition", correlations: "Solution", rates: "optimal_lr", sharpness: "sharpness", landscape: "landscape", weights: "weight_spectra", schedule: "optimal_schedule", plan: "plan" };
const HAS_TRAIN = ["loss", "rates", "schedule"];

export class Views {
  // `kinds` are those of correlations; `state()` is that of the page, `setView` shows another view, and `changed` is
  // called when something else was chosen.
  constructor({ kinds, state, setView, changed }) {
    Object.assign(this, { state, setView, changed });
    this.buildTabs();
    const flip = (axis) => () => (state()[axis] = state()[axis] === "log" ? "linear" : "log");
    find("#axes").append(
      this.toggle("train-loss", "train loss", () => (state().train = !state().train)),
      this.toggle("log-x", "log x", flip("x")),
      this.toggle("log-y", "log y", flip("y")),
      element("label", { id: "averages", textContent: "average of weights " }, this.select("average", Object.entries(AVERAGES), (value) => (state().average = value))),
    );
    const kind = this.select("kind", kinds.map((value) => [value, WORDS[value]]), (value) => Object.assign(state(), { kind: value, layer: null }));
    const layer = this.select("layer", [], (value) => (state().layer = Number(value)));
    const relative = this.toggle("relative", "relative to their size", () => (state().relative = !state().relative));
    find("#chooser").append(element("label", { textContent: "Show " }, kind), element("label", { textContent: "in layer " }, layer), relative);
    const along = this.select("along", Object.entries(LINES), (value) => (state().along = value));
    find("#lines").append(element("label", { textContent: "Look " }, along));
  }

  buildTabs() {
    for (const [view, label] of Object.entries(VIEWS)) {
      const tab = element("button", { type: "button", textContent: label, id: `view-${view}` });
      tab.setAttribute("role", "tab");
      tab.setAttribute("aria-controls", "plot");
      tab.addEventListener("click", () => this.setView(view));
      find("#views").append(tab);
    }
    find("#views").addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const names = Object.keys(VIEWS);
      const next = names[(names.indexOf(this.state().view) + step + names.length) % names.length];
      this.setView(next);
      find(`#view-${next}`).focus();
      event.preventDefault();
    });
  }

  toggle(id, label, flip) {
    const button = element("button", { type: "button", id, className: "toggle", textContent: label });
    button.addEventListener("click", () => {
      flip();
      this.changed();
    });
    return button;
  }

  select(id, options, choose) {
    const select = element("select", { id }, ...options.map(([value, textContent]) => element("option", { value, textContent })));
    select.addEventListener("change", () => {
      choose(select.value);
      this.changed();
    });
    return select;
  }

  // Shows what is chosen; `data` is the answer that is drawn.
  show(data) {
    const { view, train, x, y, relative, kind, along, average } = this.state();
    for (const each of Object.keys(VIEWS)) {
      const tab = find(`#view-${each}`);
      tab.setAttribute("aria-selected", String(each === view));
      tab.tabIndex = each === view ? 0 : -1;
    }
    const pressed = { "train-loss": train, "log-x": x === "log", "log-y": y === "log", relative };
    for (const [id, isPressed] of Object.entries(pressed)) find(`#${id}`).setAttribute("aria-pressed", String(isPressed));
    find("#axes").hidden = view === "correlations";
    const boxes = { "#chooser": "correlations", "#lines": "landscape", "#budget-bar": "plan", "#schedule": "schedule" };
    for (const [box, own] of Object.entries(boxes)) find(box).hidden = view !== own;
    find("#log-x").hidden = view === "landscape";
    find("#train-loss").hidden = !HAS_TRAIN.includes(view);
    find("#relative").hidden = kind.endsWith("response");
    find("#kind").value = kind;
    find("#along").value = along;
    find("#average").value = average;
    find("#averages").hidden = view !== "loss";
    find("#about").href = `reference/${ABOUT[view]}`;
    find("#about").textContent = `dl.${ABOUT[view]}`;
    if (view === "correlations") this.showLayers(data);
  }

  showLayers(data) {
    const select = find("#layer");
    if (!data?.layers || document.activeElement === select) return;
    select.parentElement.hidden = !data.layers.length;
    select.replaceChildren(...data.layers.map((layer) => element("option", { value: layer, textContent: layer })));
    if (data.layers.length) select.value = data.layer;
  }
}
