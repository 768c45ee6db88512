// Asks the server for theory: for the curve that follows the controls first, and for the pinned ones when it is there.

import { Refused, run } from "./api.js";
import { find, inTime, say, showProgress } from "./dom.js";

const SOON = 150; // milliseconds after which a move of a control should show
const LONG = 135; // milliseconds of work, which end in time, beyond which the first steps are asked for beforehand
const PREVIEW = 60; // milliseconds that the server may take for them
const PATIENCE = 400; // milliseconds without an answer before progress is shown
const KEPT = 200; // answers that are kept
const MODES = { PowerLaw: 94, Uploaded: 50 }; // that usually stand for infinitely many, and for a data set

export class Theory {
  // `wanted()` and `pinned()` say what is to be shown now, as requests {task, body, key}; `draw` shows it;
  // `refuse(error)` shows an error beside its control, if it has one, and `accept` takes such errors away.
  // `costs` are the matrices that a step reads, by layer and mode, as the library counts them.
  constructor(costs, { wanted, pinned, draw, refuse, accept }) {
    Object.assign(this, { costs, wanted, pinned, draw, refuse, accept });
    this.answers = new Map();
    this.partial = null; // the first steps of the newest run, until all of one are there
    this.refused = null; // key of the last request that was not allowed
    this.notice = ""; // what the user should know beside the status
    this.running = null;
    this.others = null;
    this.since = 0; // when what is wanted now was asked for
    this.speed = 0.0023; // milliseconds per unit of work, learned from each answer
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
    if (this.running && (this.running.key === wanted.key || this.running.expected < SOON)) {
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
    const { problem } = request.body;
    const job = { ...request, isMoving, controller: new AbortController(), expected: this.speed * workOf(problem, this.costs) };
    this.running = job;
    const { signal } = job.controller;
    const started = this.since; // also what was waited before this could be asked
    const isLate = () => this.running === job && performance.now() - started > PATIENCE;
    const patience = setTimeout(() => isLate() && showProgress(find("#progress"), { stage: "solving" }), PATIENCE + 1);
    try {
      if (job.task === "solve" && job.expected > LONG) {
        const first = this.preview(job);
        if (isMoving) await first;
        if (this.wanted().key !== job.key) return; // has moved on meanwhile
      }
      const onProgress = (progress) => isLate() && showProgress(find("#progress"), progress);
      const result = await run(job.task, job.body, { signal, onProgress });
      this.partial = null;
      this.keep(job.key, result);
      if (result.method === "dense") this.speed = (this.speed + (1000 * result.seconds) / workOf(problem, this.costs)) / 2;
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

  // The first steps of a run do not depend on what follows: they are asked for, and drawn, before the rest is known.
  async preview(job) {
    const only = stepsWithin(PREVIEW / this.speed, job.body.problem, this.costs);
    if (only < 8 || only >= job.body.problem.steps) return;
    try {
      const data = await run("solve", { ...job.body, only }, { signal: job.controller.signal });
      if (this.running !== job) return;
      this.partial = data;
      this.draw();
    } catch {
      // The whole run is on its way, and reports what is wrong.
    }
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

// Time of a dense solve up to a factor, fitted to runs of 100 to 300 steps and 1 to 4 layers.
function workOf({ network, data, steps }, costs) {
  const size = steps * outputsOf(data);
  return perStep({ network, data }, costs) * size * (1 + size / 100);
}

function stepsWithin(work, { network, data }, costs) {
  const size = 50 * (Math.sqrt(1 + (4 * work) / perStep({ network, data }, costs) / 100) - 1);
  return Math.floor(size / outputsOf(data));
}

function perStep({ network, data }, costs) {
  const modes = MODES[data.type] ?? data.eigenvalues?.length ?? 1;
  const layer = network.type === "ResNet" ? costs.skip_layer : costs.layer;
  const layers = Number(network.depth);
  const chain = layers ? costs.first + layer * (layers - 1) : costs.infinite;
  return chain + costs.mode * (modes - 1);
}

const outputsOf = ({ target_gram: gram }) => (Array.isArray(gram) ? gram.length : 1);
