// The slider of a budget, and what is best for it.

import { element } from "./dom.js";
import { short } from "./words.js";

const STEPS = 400; // positions of the slider

// Ends of the budgets that a plan knows: the cheapest run, and the dearest.
const ends = ({ costs }) => [Math.min(...costs.flat()), Math.max(...costs.flat())];

export function budgetOf({ budget }, data) {
  const [low, high] = ends(data);
  return low * (high / low) ** budget * (1 + 1e-12); // never just below a run because of rounding
}

// The run with the least loss among those that the budget pays for.
export function bestFor(budget, { widths, updates, costs, losses, lrs }) {
  let best = null;
  widths.forEach((width, i) => updates.forEach((count, j) => {
    const loss = losses[i][j];
    if (costs[i][j] <= budget && loss !== null && !(best?.loss <= loss)) best = { width, steps: count + 1, lr: lrs[i][j], cost: costs[i][j], loss };
  }));
  return best;
}

export class Budget {
  // `state()` is that of the page, `data()` the plan that is shown; `changed` is called as the slider moves, and
  // `take(run)` puts what is best into the controls.
  constructor(root, { state, data, changed, take }) {
    Object.assign(this, { root, state, data });
    this.slider = element("input", { type: "range", min: 0, max: STEPS, step: 1, id: "budget" });
    this.words = element("output", { htmlFor: "budget" });
    this.button = element("button", { type: "button", className: "button small", id: "take", textContent: "Take these settings" });
    this.slider.addEventListener("input", () => {
      this.state().budget = Number(this.slider.value) / STEPS;
      changed();
    });
    this.button.addEventListener("click", () => take(bestFor(budgetOf(this.state(), this.data()), this.data())));
    root.append(element("label", { htmlFor: "budget", textContent: "Budget" }), this.slider, this.words, this.button);
  }

  show() {
    const data = this.data();
    this.slider.value = Math.round(STEPS * this.state().budget);
    this.slider.style.setProperty("--part", `${100 * this.state().budget}%`);
    this.slider.disabled = this.button.disabled = !data;
    this.words.textContent = data ? short(budgetOf(this.state(), data)) : "";
    this.slider.setAttribute("aria-valuetext", this.words.textContent);
  }
}
