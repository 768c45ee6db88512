// Real training runs: the law fitted to their losses, and the best schedule of another run.

import { run } from "./api.js";
import { element, find } from "./dom.js";
import { fileButton, forget, send } from "./files.js";
import { colorOf, css, faded, line } from "./look.js";

const MOST = 6; // files, as many as the server keeps

export class Runs {
  constructor(most) {
    this.most = most;
    this.files = [];
    this.answer = null;
    this.asked = null; // as it was asked for
    this.job = null;
    const [button, input] = fileButton("runs-files", "Choose files of runs", ".csv,text/csv", (files, signal) => this.choose(files, signal), true);
    this.away = element("button", { type: "button", className: "button", id: "runs-away", textContent: "Remove", hidden: true });
    this.away.addEventListener("click", () => this.remove());
    find("#runs-form").prepend(button, input, this.away);
    find("#runs-form").addEventListener("change", ({ target }) => target.type !== "file" && this.ask());
    find("#runs-form").addEventListener("submit", (event) => event.preventDefault());
  }

  async choose(chosen, signal) {
    if (chosen.length > MOST) return this.tell(`Choose at most ${MOST} files.`, true);
    const files = [];
    try {
      for (const each of chosen) files.push(await send(each, this.most, signal));
    } catch (error) {
      files.forEach(forget);
      return this.tell(signal.aborted ? "Cancelled." : error.message, !signal.aborted);
    }
    this.files.forEach(forget);
    this.files = files;
    await this.ask(signal);
  }

  async ask(signal) {
    const number = (id) => Number(find(id).value);
    const body = { files: this.files, steps: number("#runs-steps"), warmup: number("#runs-warmup"), shape: find("#runs-shape").value };
    const asked = JSON.stringify(body);
    if (!this.files.length || asked === this.asked) return; // a field that is left says that it changed
    this.job?.abort();
    const job = (this.job = new AbortController());
    signal?.addEventListener("abort", () => job.abort());
    this.asked = asked;
    if (!this.answer) this.tell("Fitting the runs ..."); // else the last answer keeps its place
    try {
      this.answer = await run("runs", body, { signal: job.signal });
    } catch (error) {
      if (this.asked === asked) this.asked = null;
      if (!job.signal.aborted || signal?.aborted) this.tell(job.signal.aborted ? "Cancelled." : error.message, !job.signal.aborted);
      return;
    }
    this.away.hidden = false;
    this.tell(this.answer.best);
    find("#runs-fit").textContent = this.answer.fit;
    find("#runs-details").hidden = false;
    this.draw();
  }

  remove() {
    this.job?.abort();
    this.files.forEach(forget);
    this.files = [];
    this.answer = this.asked = null;
    this.away.hidden = true;
    find("#runs-details").hidden = true;
    find("#runs-plot").hidden = true;
    this.tell("");
  }

  draw() {
    if (!this.answer) return;
    const { runs, forecast, lr } = this.answer;
    const plot = find("#runs-plot");
    plot.hidden = false;
    const traces = runs.flatMap(({ name, steps, loss, law }, index) => [
      line(steps, loss, name, colorOf(index), { line: { dash: "solid" } }),
      line(steps, law, `law, ${name}`, css("--ink"), { showlegend: false, line: { width: 1.2 }, hoverinfo: "skip" }),
    ]);
    const next = colorOf(runs.length);
    const band = { mode: "lines", line: { width: 0 }, showlegend: false, hoverinfo: "skip" };
    traces.push({ ...line(forecast.steps, forecast.low, "", next), ...band });
    traces.push({ ...line(forecast.steps, forecast.high, "", next), ...band, fill: "tonexty", fillcolor: faded(next, 0.2) });
    traces.push(line(forecast.steps, forecast.loss, "predicted", next));
    traces.push(line(lr.steps, lr.values, "its learning rate", css("--muted"), { yaxis: "y2", line: { width: 1.4, dash: "dot" } }));
    const values = runs.flatMap(({ steps, loss }) => loss.filter((_, index) => steps[index] > 0.1 * steps.at(-1)));
    const [low, high] = [Math.min(...values, forecast.loss.at(-1)), Math.max(...values)];
    const axis = { gridcolor: css("--grid"), linecolor: css("--line"), zeroline: false, automargin: true, tickfont: { color: css("--muted") } };
    const layout = {
      height: 340,
      font: { family: css("--font"), size: 12, color: css("--ink") },
      paper_bgcolor: css("--card"),
      plot_bgcolor: css("--card"),
      margin: { l: 56, r: 56, t: 8, b: 44 },
      hovermode: "x unified",
      legend: { orientation: "h", y: -0.2 },
      xaxis: { ...axis, title: { text: "training step" }, rangemode: "tozero" },
      yaxis: { ...axis, title: { text: "loss" }, range: [low - 0.05 * (high - low), high + 0.05 * (high - low)] },
      yaxis2: { ...axis, title: { text: "learning rate" }, overlaying: "y", side: "right", showgrid: false, nticks: 5, exponentformat: "power", range: [0, 1.1 * Math.max(...lr.values)] },
    };
    Plotly.react(plot, traces, layout, { responsive: true, displayModeBar: false });
  }

  tell(text, isError = false) {
    find("#runs-result").textContent = text;
    find("#runs-result").classList.toggle("is-error", isError);
  }
}
