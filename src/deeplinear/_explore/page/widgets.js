// What a control is made of: a slider, a choice, a switch, a text or a file.

import { run } from "./api.js";
import { element } from "./dom.js";
import { fileButton, nameOf, send } from "./files.js";
import { short } from "./words.js";

const STEPS = 400; // positions of a slider

export const idOf = ({ part, name }) => (part ? `${part}.${name}` : name);

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

// Each is called with the controls as `this`, and with what takes a new value; it returns its nodes, the main one of them,
// and what shows a value, except in the field `keep` that is being typed into.
export const BUILD = {
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
