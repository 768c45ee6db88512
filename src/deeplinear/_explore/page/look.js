// Colours, and how a line looks.

export const DASHED = "dashed: theory"; // above the names of the curves

const PALETTE = {
  // Okabe and Ito's colours, which colour-blind readers can tell apart, and lighter ones of the same hues on dark ground.
  light: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9", "#5B5B5B", "#7A3E9D", "#8C6D31"],
  dark: ["#5BB8F0", "#FF8F4F", "#35CDA2", "#EFA3CC", "#F0C05A", "#A9D6FF", "#B8B8B8", "#C79BEA", "#D8B979"],
};

export const isDark = () => {
  const wanted = document.documentElement.dataset.theme;
  return wanted ? wanted === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

export const colorOf = (index) => PALETTE[isDark() ? "dark" : "light"][index % 9];

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const faded = (color, alpha) => {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
};

export const line = (x, y, name, color, extra = {}) => ({
  type: "scatter",
  mode: "lines",
  x,
  y,
  name,
  line: { color, width: 2.4, dash: "7px,4px", ...extra.line },
  hovertemplate: "%{y:.4g}",
  ...Object.fromEntries(Object.entries(extra).filter(([key]) => key !== "line")),
});
