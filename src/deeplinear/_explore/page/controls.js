// The controls: one for each field of a problem, made from their descriptions.

import { element } from "./dom.js";
import { BUILD, idOf } from "./widgets.js";

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
