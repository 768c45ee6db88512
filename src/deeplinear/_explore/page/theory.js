// Asks the server for theory: for the curve that follows the controls first, and for the pinned ones when it is there.

import { Refused, run } from "./api.js";
import { find, inTime, say, showProgress } from "./dom.js";

const PATIENCE = 400; // milliseconds without an answer before progress is shown
const KEPT = 200; // answers that are kept

export class Theory {
  // `wanted()` and `pinned()` say what is to be shown now, as requests {task, body, key}; `draw` shows it;
  // `refuse(error)` shows an error beside its control, if it has one, and `accept` takes such errors away.
  constructor({ wanted, pinned, draw, refuse, accept }) {
    Object.assign(this, { wanted, pinned, draw, refuse, accept });
    this.answers = new Map();
    this.partial = null; // the first steps of the newest run, until all of one are there
    this.refused = null; // key of the last request that was not allowed
    this.notice = ""; // what the user should know beside the status
    this.running = null;
    this.others = null;
    this.since = 0; // when what is wanted now was asked for
  }

  get(key) {
    return this.answers.get(key);
  }

  // Is called after every change, with true while a slider is being dragged.
  refresh(isMoving) {
    const wanted = this.wanted();
    this.since = performance.now();
    this.draw();
    if (this.answers.has(wanted.key)) {
      this.stop();
      this.accept();
      say(this.notice);
      this.loadPinned();
      return;
    }
    this.others?.abort();
    if (this.running && (this.running.key === wanted.key || this.running.isSoon)) {
      this.running.isMoving &&= isMoving;
      return; // it is about to end, and what is wanted then comes next
    }
    this.running?.controller.abort();
    this.ask(wanted, isMoving);
  }

  cancel() {
    this.others?.abort();
    this.stop();
    say("Cancelled. Move a control to solve again.");
  }

  stop() {
    this.running?.controller.abort();
    this.running = null;
    this.partial = null;
    showProgress(find("#progress"), null);
  }

  async ask(request, isMoving) {
    const job = { ...request, isMoving, controller: new AbortController(), isSoon: true }; // until the server says otherwise
    this.running = job;
    const { signal } = job.controller;
    const started = this.since; // also what was waited before this could be asked
    const isLate = () => this.running === job && performance.now() - started > PATIENCE;
    const patience = setTimeout(() => isLate() && showProgress(find("#progress"), { stage: "solving" }), PATIENCE + 1);
    const onProgress = (progress) => {
      if (progress.soon === false) job.isSoon = false;
      if (this.running === job && !job.isSoon && this.wanted().key !== job.key) this.refresh(job.isMoving);
      else if (isLate()) showProgress(find("#progress"), progress);
    };
    try {
      const result = await (job.task === "solve" ? this.solve(job, onProgress) : run(job.task, job.body, { signal, onProgress }));
      if (!result) return; // has moved on meanwhile
      this.partial = null;
      this.keep(job.key, result);
      this.accept();
      say(`${this.notice}${job.task === "solve" ? "Solved" : "Done"} in ${inTime((performance.now() - started) / 1000)}.`);
    } catch (error) {
      if (signal.aborted) return;
      this.partial = null;
      this.refused = job.key;
      this.report(error);
    } finally {
      clearTimeout(patience);
      if (this.running === job) this.next(job);
    }
  }

  // What to do when a request has ended.
  next({ key, isMoving }) {
    this.running = null;
    showProgress(find("#progress"), null);
    this.draw();
    const wanted = this.wanted();
    if (wanted.key !== key && !this.answers.has(wanted.key)) this.ask(wanted, isMoving);
    else this.loadPinned();
  }

  report(error) {
    if (!(error instanceof Refused)) say(`No answer from the server; is it still running? (${error.message})`, true);
    else say(this.refuse(error) ? `See the control: ${error.message}` : error.message, true);
  }

  // The first steps of a run do not depend on what follows: where the server says that all of them would take long, they
  // are drawn before the rest is known, for which a control that is being moved does not ask before it has seen them.
  async solve(job, onProgress) {
    const { signal } = job.controller;
    let whole = null;
    const ask = () => (whole ??= run("solve", job.body, { signal, onProgress }));
    const onFirst = (progress) => {
      onProgress(progress);
      if ("first" in progress && !job.isMoving && !signal.aborted) ask().catch(() => {}); // which is seen where it is waited for
    };
    const first = await run("solve", { ...job.body, brief: true }, { signal, onProgress: onFirst });
    if (first.steps === job.body.problem.steps) return first;
    if (this.running === job) {
      this.partial = first;
      this.draw();
    }
    return this.wanted().key === job.key ? ask() : null;
  }

  async loadPinned() {
    this.others?.abort();
    const controller = new AbortController();
    this.others = controller;
    const { signal } = controller;
    const box = find("#progress");
    for (const { task, body, key } of this.pinned().filter((each) => !this.answers.has(each.key))) {
      const patience = setTimeout(() => signal.aborted || showProgress(box, { stage: "pinned curves" }), PATIENCE);
      try {
        this.keep(key, await run(task, body, { signal }));
        this.draw();
      } catch (error) {
        if (!signal.aborted) say(`A pinned curve could not be drawn: ${error.message}`, true);
      } finally {
        clearTimeout(patience);
        if (this.others === controller && !this.running) showProgress(box, null);
      }
      if (signal.aborted) return;
    }
  }

  keep(key, result) {
    this.answers.set(key, result);
    if (this.answers.size > KEPT) this.answers.delete(this.answers.keys().next().value);
  }
}
