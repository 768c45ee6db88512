// Curves that somebody measured, over those of theory.

import { run } from "./api.js";
import { capital, element, find } from "./dom.js";
import { fileButton, forget, nameOf, send } from "./files.js";
import { keyOf } from "./state.js";
import { short } from "./words.js";

const VERDICTS = { agrees: "Theory and your curves agree.", close: "Close.", disagrees: "They disagree.", undecided: "Undecided." };

export class Measured {
  // `state()` is that of the page; `changed` is called when there is something else to draw.
  constructor(most, { state, changed }) {
    Object.assign(this, { most, state, changed });
    this.file = null;
    this.latest = null; // the last answer: its curves are those of every other
    this.answers = new Map(); // by problem
    this.job = null;
    const [button, input] = fileButton("curves", "Choose a file of curves", ".csv,text/csv", (file, signal) => this.choose(file, signal));
    this.away = element("button", { type: "button", className: "button", id: "curves-away", textContent: "Remove", hidden: true });
    this.away.addEventListener("click", () => this.remove());
    find("#measured").append(button, input, this.away);
  }

  get curves() {
    return this.latest;
  }

  async choose(chosen, signal) {
    const before = this.file;
    let file = null;
    try {
      file = await send(chosen, this.most, signal);
      this.answers.clear();
      await this.ask(file, this.state().problem, signal);
      this.file = file;
      if (before) forget(before);
    } catch (error) {
      if (file) forget(file);
      this.tell(signal.aborted ? "Cancelled." : error.message, !signal.aborted);
      return;
    }
    this.changed(true);
  }

  remove() {
    this.job?.abort();
    if (this.file) forget(this.file);
    this.file = this.latest = null;
    this.answers.clear();
    this.tell("");
    this.changed(false);
  }

  async ask(file, problem, signal) {
    const answer = await run("measured", { file, problem }, { signal });
    this.latest = answer;
    this.answers.set(keyOf(problem), answer);
  }

  // Compares with theory again, when the controls rest at another problem.
  async follow() {
    this.job?.abort();
    const { problem } = this.state();
    if (!this.file || this.answers.has(keyOf(problem))) return;
    const job = (this.job = new AbortController());
    try {
      await this.ask(this.file, problem, job.signal);
      this.show();
    } catch (error) {
      if (!job.signal.aborted && !error.field) this.tell(error.message, true); // others stand beside their control
    }
  }

  show() {
    this.away.hidden = !this.file;
    if (!this.file) return;
    const answer = this.answers.get(keyOf(this.state().problem));
    const what = `${nameOf(this.file)}: ${this.latest.runs} run${this.latest.runs > 1 ? "s" : ""}.`;
    if (!answer) return this.tell(`${what} Comparing with theory ...`);
    if (answer.note) return this.tell(`${what} ${capital(answer.note)}.`);
    const off = Object.entries(answer.off).map(([name, value]) => `${name.replace("_", " ")} off by ${value === null ? "an infinite amount" : `at most ${short(100 * value)} %`}`);
    this.tell(` ${what} ${capital(off.join(", "))}. ${capital(answer.explanation)}.`);
    find("#measured-result").prepend(element("strong", { className: `verdict ${answer.verdict}`, textContent: VERDICTS[answer.verdict] }));
  }

  tell(text, isError = false) {
    find("#measured-result").textContent = text;
    find("#measured-result").classList.toggle("is-error", isError);
  }
}
