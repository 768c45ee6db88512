// The controls: one for each field of a problem, made from their descriptions.

import { run } from "./api.js";
import { element } from "./dom.js";
import { fileButton, nameOf, send } from "./files.js";
import { short } from "./words.js";

const STEPS = 400; // positions of a slider

export class Controls {
  // `changed(isMoving)` is called whenever a value changes, with true while a slider is being dragged.
  constructor(root, { parts, controls, limits }, changed) {
    this.root = root;
    this.limits = limits;
    this.files = new Map(); // what is in each file of data
    this.parts = parts;
    this.controls = controls;
    this.changed = changed;
    this.kinds = {};
    this.values = {}; // by "part.name", also of those that are hidden now
    this.rows = new Map();
    for (const part of Object.keys(parts)) this.kinds[part] = parts[part].kinds[0][0];
    for (const control of controls) this.values[idOf(control)] = control.default;
    this.build();
  }

  get counts() {
    return ["PowerLaw", "Uploaded"].includes(this.kinds.data) || (this.kinds.data === "Spectrum" && !this.values["data.proportional"]);
  }

  get problem() {
    const problem = Object.fromEntries(Object.keys(this.parts).map((part) => [part, { type: this.kinds[part] }]));
    for (const control of this.controls) {
      if (this.isShown(control)) put(problem, control, this.values[idOf(control)]);
    }
    return brief(problem);
  }

  set problem(problem) {
    for (const part of Object.keys(this.parts)) this.kinds[part] = this.kindOf(part, problem);
    for (const control of this.controls) {
      if (this.isShown(control)) this.values[idOf(control)] = valueIn(problem, control);
    }
    this.show();
  }

  // The problem as the controls would write it: with the default of every field that it does not give.
  complete(problem) {
    const whole = Object.fromEntries(Object.keys(this.parts).map((part) => [part, { type: this.kindOf(part, problem) }]));
    for (const control of this.controls) {
      if (!control.part || control.kinds.includes(whole[control.part].type)) put(whole, control, valueIn(problem, control));
    }
    return brief(whole);
  }

  kindOf(part, problem) {
    const kinds = this.parts[part].kinds.map(([kind]) => kind);
    return kinds.includes(problem[part]?.type) ? problem[part].type : kinds[0];
  }

  isShown(control) {
    return !control.part || control.kinds.includes(this.kinds[control.part]);
  }

  // Changes some values at once, by "part.name".
  set(values, isMoving = false) {
    Object.assign(this.values, values);
    this.show();
    this.changed(isMoving);
  }

  build() {
    const first = this.controls.filter((control) => control.first);
    this.root.append(element("section", { className: "card group", ariaLabel: "Learning rate and steps" }, ...first.map((control) => this.row(control))));
    for (const [part, { label, help, kinds }] of Object.entries(this.parts)) {
      const own = this.controls.filter((control) => (control.part || "optimizer") === part && !control.first);
      const group = element("details", { className: "card group", open: true }, element("summary", {}, element("h2", { textContent: label })));
      group.append(element("p", { className: "muted", textContent: help }));
      if (kinds.length > 1) group.append(this.kindChooser(part, label, kinds));
      const plain = own.filter((control) => !control.more);
      const more = own.filter((control) => control.more);
      group.append(...plain.map((control) => this.row(control)));
      if (more.length) {
        const box = element("details", { className: "more" }, element("summary", { textContent: "More" }), ...more.map((control) => this.row(control)));
        group.append(box);
      }
      this.root.append(group);
    }
    this.show();
  }

  kindChooser(part, label, kinds) {
    const select = element("select", { id: `${part}-type` }, ...kinds.map(([value, text]) => element("option", { value, textContent: text })));
    select.setAttribute("aria-label", `Kind of ${label.toLowerCase()}`);
    select.addEventListener("change", () => {
      const counted = this.counts;
      this.changeKind(part, select.value);
      if (counted !== this.counts) this.changeUnits();
      this.show();
      this.changed(false);
    });
    this.rows.set(`${part}.type`, { show: () => (select.value = this.kinds[part]), error: element("span") });
    return element("div", { className: "kind" }, select);
  }

  // Values that are defaults of some kind become those of the new one.
  changeKind(part, kind) {
    this.kinds[part] = kind;
    for (const control of this.controls.filter((each) => each.part === part && kind in each.defaults)) {
      const id = idOf(control);
      if (Object.values(control.defaults).includes(this.values[id])) this.values[id] = control.defaults[kind];
    }
  }

  changeUnits() {
    for (const control of this.controls) {
      if (control.count) this.values[idOf(control)] = this.counts ? control.count[0] : control.default;
    }
  }

  row(control) {
    const id = idOf(control);
    const error = element("p", { className: "error", id: `${id}-error`, hidden: true });
    const help = element("p", { className: "help", id: `${id}-help` });
    const made = BUILD[control.widget].call(this, control, (value, isMoving = false) => {
      const counted = this.counts;
      this.values[id] = value;
      if (counted !== this.counts) this.changeUnits();
      this.show(document.activeElement);
      this.changed(isMoving);
    });
    const row = element("div", { className: `control ${control.widget}` }, ...made.nodes, help, error);
    made.main.id = id;
    made.main.setAttribute("aria-describedby", `${id}-help ${id}-error`);
    const show = (keep) => {
      row.hidden = !this.isShown(control);
      help.replaceChildren(...describe(control, this.counts, this.kinds[control.part]));
      made.show(this.values[id], keep);
    };
    this.rows.set(id, { show, row, error, main: made.main });
    return row;
  }

  // Shows every value, except in the field that is being typed into.
  show(keep = null) {
    for (const { show } of this.rows.values()) show(keep);
    for (const box of this.root.querySelectorAll(".more")) box.hidden = !box.querySelector(".control:not([hidden])");
  }

  showError(field, message) {
    for (const { error, main } of this.rows.values()) {
      error.hidden = true;
      main?.removeAttribute("aria-invalid");
    }
    const at = field && this.rows.get(field);
    if (!at || !at.row || at.row.hidden) return false;
    at.error.textContent = message;
    at.error.hidden = false;
    at.main.setAttribute("aria-invalid", "true");
    at.row.closest("details.more")?.setAttribute("open", "");
    at.row.closest("details.group")?.setAttribute("open", "");
    return true;
  }
}

const idOf = ({ part, name }) => (part ? `${part}.${name}` : name);

// What a problem may leave out is then empty.
const valueIn = (problem, { part, name, optional, default: usual, defaults }) => (part ? problem[part] : problem)?.[name] ?? (optional ? null : (defaults[problem[part]?.type] ?? usual));

// One phase is what a problem has that says nothing of them.
function brief(problem) {
  if (problem.phases?.type === "One") delete problem.phases;
  return problem;
}

function put(problem, { part, name }, value) {
  if (name === "knots" && problem.optimizer.schedule !== "drawn") return;
  if (value === null || (name === "schedule" && value === "constant") || (name === "warmup" && value === 0)) return;
  (part ? problem[part] : problem)[name] = value;
}

function describe(control, counts, kind) {
  const help = control.count && !counts ? `${control.help} It is a ratio to the input dimension.` : control.help;
  if (!control.allowed) return [help];
  const infinite = control.infinite.includes(kind) ? ", or infinite" : "";
  return [`${help} `, element("span", { className: "allowed", textContent: `Allowed: ${control.allowed}${infinite}.` })];
}

function label(control, target) {
  const made = element("label", { htmlFor: target, textContent: control.label });
  if (control.symbol) made.append("\u00a0", symbolOf(control.symbol));
  return made;
}

function symbolOf(symbol) {
  const [letter, index] = symbol.split("_");
  const made = element("var", { textContent: letter });
  if (index) made.append(element("sub", { textContent: index }));
  return made;
}

const BUILD = {
  slider(control, set) {
    const text = element("input", { type: "text", inputMode: "decimal", autocomplete: "off", spellcheck: false, className: "number" });
    const slider = element("input", { type: "range", min: 0, max: STEPS, step: 1, tabIndex: 0 });
    slider.setAttribute("aria-label", `${control.label}, slider`);
    const infinite = control.infinite.length ? element("button", { type: "button", className: "infinite", textContent: "∞", title: "Infinite" }) : null;
    infinite?.setAttribute("aria-label", `Infinite ${control.label.toLowerCase()}`);
    const range = () => (this.counts && control.count ? [control.count[1], control.count[2]] : (control.ends[this.kinds[control.part] ?? ""] ?? Object.values(control.ends)[0]));
    const slides = () => {
      const [low, high] = range();
      return control.whole && !control.log ? high - low : STEPS;
    };
    const fromSlider = (position) => {
      const [low, high] = range();
      const part = position / slides();
      const value = control.log ? low * (high / low) ** part : low + (high - low) * part;
      return control.whole || (this.counts && control.count) ? Math.round(value) : Number(value.toPrecision(3));
    };
    const toSlider = (value) => {
      const [low, high] = range();
      const part = control.log ? Math.log(Math.max(value, 1e-300) / low) / Math.log(high / low) : (value - low) / (high - low);
      return Math.round(slides() * Math.min(Math.max(part, 0), 1));
    };
    slider.addEventListener("input", () => set(fromSlider(Number(slider.value)), true));
    slider.addEventListener("change", () => set(fromSlider(Number(slider.value)), false));
    text.addEventListener("input", () => set(control.optional && text.value.trim() === "" ? null : readNumbers(text.value, !control.several)));
    infinite?.addEventListener("click", () => set(this.values[idOf(control)] === "infinite" ? (this.counts && control.count ? control.count[0] : control.default) : "infinite"));
    const show = (value, keep) => {
      if (keep !== text) text.value = Array.isArray(value) ? value.join(", ") : (value ?? "");
      slider.max = slides();
      if (keep !== slider && typeof value === "number") slider.value = toSlider(value);
      slider.disabled = typeof value !== "number" && !(control.optional && value === null);
      slider.setAttribute("aria-valuetext", value === null ? "none" : String(value));
      slider.style.setProperty("--part", `${(100 * slider.value) / slider.max}%`);
      if (infinite) {
        infinite.hidden = !control.infinite.includes(this.kinds[control.part]);
        infinite.setAttribute("aria-pressed", String(value === "infinite"));
      }
    };
    const head = element("div", { className: "head" }, label(control, idOf(control)), ...(infinite ? [infinite] : []), text);
    return { nodes: [head, slider], main: text, show };
  },

  choice(control, set) {
    const select = element("select", {}, ...control.choices.map(([value, words]) => element("option", { value, textContent: words })));
    select.addEventListener("change", () => set(select.value));
    const head = element("div", { className: "head" }, label(control, idOf(control)), select);
    return { nodes: [head], main: select, show: (value) => (select.value = value) };
  },

  switch(control, set) {
    const box = element("input", { type: "checkbox" });
    box.addEventListener("change", () => set(box.checked));
    const head = element("div", { className: "head" }, label(control, idOf(control)), box);
    return { nodes: [head], main: box, show: (value) => (box.checked = value === true) };
  },

  text(control, set) {
    const text = element("input", { type: "text", autocomplete: "off", spellcheck: false });
    text.addEventListener("input", () => set(text.value.trim() === "" ? null : control.rows ? text.value.split(";").map((row) => readList(row)) : readList(text.value)));
    const show = (value, keep) => {
      if (keep !== text) text.value = value === null ? "" : isNamed(value) ? Object.entries(value).map((pair) => pair.join("=")).join(", ") : Array.isArray(value) ? value.map((each) => (Array.isArray(each) ? each.join(", ") : each)).join(control.rows ? "; " : ", ") : value;
    };
    return { nodes: [element("div", { className: "head" }, label(control, idOf(control))), text], main: text, show };
  },

  file(control, set) {
    const id = idOf(control);
    const words = element("p", { className: "file-name" });
    const read = async (chosen, signal) => {
      this.showError(null);
      words.textContent = `Reading ${chosen.name} ...`;
      try {
        const file = await send(chosen, this.limits.file, signal);
        this.files.set(file, await run("data", { file }, { signal }));
        set(file);
      } catch (error) {
        words.textContent = signal.aborted ? "Cancelled." : "";
        if (!signal.aborted) this.showError(id, error.message);
      }
    };
    const [button, input] = fileButton(id, "Choose a file", ".csv,.npz,text/csv", read);
    const show = (value) => (words.textContent = value ? `${nameOf(value)}${this.files.has(value) ? `: ${inFile(this.files.get(value))}` : ""}` : "");
    return { nodes: [element("div", { className: "head" }, label(control, id), button, input), words], main: button, show };
  },
};

// Words of a data set: how large it is, and what a linear rule leaves of its targets.
const inFile = ({ rows, directions, outputs, noise }) => `${rows} examples, ${directions} directions${outputs > 1 ? `, ${outputs} outputs` : ""}, noise ${short(noise)}`;

const isNamed = (value) => typeof value === "object" && !Array.isArray(value); // numbers by name, as files have them

// Text that is no number goes to the server as it is, whose message then says what is allowed.
function readNumber(text) {
  const trimmed = text.trim();
  const number = Number(trimmed);
  return trimmed === "" || Number.isNaN(number) || !Number.isFinite(number) ? trimmed : number;
}

const readList = (text) => text.split(",").map(readNumber);

function readNumbers(text, single) {
  return single || !text.includes(",") ? readNumber(text) : readList(text);
}
