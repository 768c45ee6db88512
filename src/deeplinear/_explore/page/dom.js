// Small helpers for the page's elements and words.

export const find = (selector) => document.querySelector(selector);

export const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const inTime = (seconds) => {
  if (seconds < 0.095) return `${Math.max(1, Math.round(1000 * seconds))} ms`;
  return seconds < 90 ? `${seconds.toPrecision(2)} s` : `${Math.round(seconds / 60)} min`;
};

export function say(text, isError = false) {
  find("#status").textContent = text;
  find("#status").classList.toggle("is-error", isError);
}

// Whether there is one column only; as in style.css.
export const oneColumn = matchMedia("(max-width: 720px)");

// Shows how far some work is, in the box with a bar, a text and a button; null hides it.
export function showProgress(box, progress) {
  box.hidden = !progress;
  if (!progress) return;
  const { stage = "working", part, left, estimate } = progress;
  const bar = box.querySelector("progress");
  if (Number.isFinite(part)) bar.value = part;
  else bar.removeAttribute("value");
  const words = [capital(stage)];
  if (Number.isFinite(part)) words.push(`${Math.round(100 * part)} %`);
  if (Number.isFinite(left)) words.push(`about ${inTime(left)} left`);
  else if (Number.isFinite(estimate)) words.push(`about ${inTime(estimate)}`);
  box.querySelector("span").textContent = words.join(" · ");
}
