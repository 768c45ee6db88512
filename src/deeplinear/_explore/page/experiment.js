// The panel that trains real networks.

import { run } from "./api.js";
import { capital, element, find, inTime, showProgress } from "./dom.js";
import { keyOf } from "./state.js";

const inPercent = (part) => `${Number((100 * part).toPrecision(2))} %`;

const VERDICTS = { agrees: "Theory and networks agree.", close: "Close.", disagrees: "They disagree.", undecided: "Undecided." };

export class Experiment {
  // `state()` is that of the page, `changed` is called when a setting changes and `trained` when networks are there;
  // `refuse(error)` shows an error beside a control of the problem, if it belongs to one.
  constructor(limits, { state, changed, trained, refuse }) {
    Object.assign(this, { state, changed, trained, refuse });
    this.results = new Map(); // by problem
    this.job = null;
    this.fields = {};
    this.box = find("#experiment-progress");
    find("#experiment").append(
      this.field("dim", "Input dimension", "D", `1 to ${limits.dim}; larger is closer to theory`),
      this.field("seeds", "Networks", "n", `1 to ${limits.seeds}; 8 or more for a verdict`),
      element("button", { className: "button primary", type: "submit", id: "train", textContent: "Train real networks" }),
    );
    find("#experiment").addEventListener("submit", (event) => {
      event.preventDefault();
      this.train();
    });
    this.box.querySelector("button").addEventListener("click", () => this.job?.abort());
  }

  get(problem) {
    return this.results.get(keyOf(problem));
  }

  field(name, label, symbol, help) {
    const id = `experiment.${name}`;
    const input = element("input", { type: "text", inputMode: "numeric", id, autocomplete: "off" });
    const error = element("p", { className: "error", hidden: true, id: `${id}-error` });
    input.setAttribute("aria-describedby", `${id}-help ${id}-error`);
    input.addEventListener("input", () => {
      const number = Number(input.value);
      this.state()[name] = input.value.trim() && Number.isInteger(number) ? number : input.value;
      this.changed();
    });
    this.fields[name] = { input, error };
    const words = element("label", { htmlFor: id, textContent: `${label} ` }, element("var", { textContent: symbol }));
    return element("div", { className: "field" }, words, input, element("p", { className: "help", id: `${id}-help`, textContent: help }), error);
  }

  async train(problem = this.state().problem) {
    this.job?.abort();
    const job = new AbortController();
    this.job = job;
    const { dim, seeds } = this.state();
    const started = performance.now();
    this.showError({});
    this.tell("");
    find("#train").disabled = true;
    showProgress(this.box, { stage: "starting" });
    try {
      const onProgress = (progress) => this.job === job && showProgress(this.box, progress);
      const result = await run("experiment", { problem, dim, seeds }, { signal: job.signal, onProgress });
      this.results.set(keyOf(problem), { ...result, waited: (performance.now() - started) / 1000 });
      this.trained();
      if (![this.state(), ...this.state().pins].some((each) => this.get(each.problem))) this.tell("These networks belong to the settings they were started with. Go back to those, or train again.");
    } catch (error) {
      if (job.signal.aborted) this.tell("Cancelled.");
      else if (!this.showError(error)) this.tell(error.message, true);
    } finally {
      if (this.job === job) {
        this.job = null;
        find("#train").disabled = false;
        showProgress(this.box, null);
      }
    }
  }

  // Shows the settings, and the verdict on the networks of the present problem if there are any.
  show() {
    const state = this.state();
    for (const [name, { input }] of Object.entries(this.fields)) if (document.activeElement !== input) input.value = state[name];
    this.fields.dim.input.disabled = state.problem.data.type === "Uploaded"; // which has its own
    const at = find("#experiment-result");
    const result = this.get(state.problem);
    if (!result) {
      if (at.dataset.verdict) this.tell("");
      return;
    }
    const { verdict, explanation, max_z: z, seeds, dim, waited, diverged, method, inputs, off, surrogate_off: surrogate } = result;
    const exact = method === "explicit" ? "" : " exactly, with matrices drawn only where training looks at them,";
    const both = inputs !== "rows" || off === null || surrogate === null ? "" : ` Their test loss is up to ${inPercent(off)} from theory; that of as many networks trained on Gaussian inputs with the same spectrum, which is what theory assumes, up to ${inPercent(surrogate)}.`;
    this.tell(` ${capital(explanation)}.${z === null ? "" : ` Largest z-score of the test loss: ${z.toFixed(1)}.`} ${seeds} networks of input dimension ${dim}, trained${exact}${inputs === "rows" ? " on your own examples" : ""} and compared in ${inTime(waited)}.${both}${diverged ? ` ${diverged} of them blew up.` : ""}`);
    at.dataset.verdict = verdict;
    at.prepend(element("strong", { className: `verdict ${verdict}`, textContent: VERDICTS[verdict] }));
  }

  tell(text, isError = false) {
    const at = find("#experiment-result");
    at.textContent = text;
    at.classList.toggle("is-error", isError);
    delete at.dataset.verdict;
  }

  showError({ field, message }) {
    for (const [name, { input, error }] of Object.entries(this.fields)) {
      const isHere = field === `experiment.${name}`;
      error.textContent = isHere ? message : "";
      error.hidden = !isHere;
      input.setAttribute("aria-invalid", String(isHere));
    }
    return Boolean(field) && (field.startsWith("experiment.") || this.refuse({ field, message }));
  }
}
