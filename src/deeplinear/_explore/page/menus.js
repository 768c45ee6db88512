// The menus of the header: presets, colours and exports.

import { element, find, say } from "./dom.js";
import * as exports from "./exports.js";
import { isDark } from "./look.js";

export function buildPresets(presets, choose) {
  const select = find("#preset");
  for (const group of new Set(presets.map((preset) => preset.group))) {
    const own = presets.filter((preset) => preset.group === group);
    const options = own.map(({ id, name }) => element("option", { value: id, textContent: name }));
    select.append(element("optgroup", { label: group }, ...options));
  }
  select.addEventListener("change", () => choose(select.value));
  for (const { id, name } of presets.filter(({ group }) => group === presets[0].group)) {
    const chip = element("button", { type: "button", value: id, className: "toggle", textContent: name });
    chip.addEventListener("click", () => choose(id));
    find("#tour").append(chip);
  }
}

export function showPreset(id) {
  find("#preset").value = id;
  for (const chip of find("#tour").children) chip.setAttribute("aria-pressed", String(chip.value === id));
}

// Every click changes the colours; the choice is forgotten where it is what the system wants anyway.
export function buildTheme(changed) {
  const button = find("#theme");
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    const words = isDark() ? "Light colours" : "Dark colours";
    button.title = words;
    button.setAttribute("aria-label", words);
    button.firstChild.textContent = isDark() ? "☀" : "☾";
    changed();
  };
  button.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    if (system.matches === (next === "dark")) {
      delete root.dataset.theme;
      localStorage.removeItem("theme");
    } else {
      root.dataset.theme = next;
      localStorage.setItem("theme", next);
    }
    show();
  });
  system.addEventListener("change", show);
  show();
}

// `view()` is what is shown: {state, curves, link}.
export function buildExport(view) {
  find("#export-menu").addEventListener("click", async (event) => {
    const kind = event.target.closest("[data-export]")?.dataset.export;
    if (!kind) return;
    find("#export-menu").hidePopover();
    const shown = view();
    if (kind !== "link" && !shown.curves[0].data) {
      say("There is nothing to export yet.", true);
      return;
    }
    try {
      await EXPORTS[kind](shown);
    } catch (error) {
      say(`The export failed: ${error.message}`, true);
    }
  });
  find("#copy").addEventListener("click", () => copy(find("#python code").textContent, "The code has been copied."));
}

const EXPORTS = {
  png: (shown) => exports.picture(find("#plot"), shown, "png"),
  svg: (shown) => exports.picture(find("#plot"), shown, "svg"),
  csv: ({ state, curves }) => exports.save(exports.table(state.view, curves), "deeplinear.csv", "text/csv"),
  networks: ({ curves }) => exports.networks(curves[0].networks),
  link: ({ link }) => copy(link, "The link has been copied."),
  netcdf: async ({ state }) => {
    say("Writing the file ...");
    await exports.netcdf(state.problem);
    say("");
  },
  python: async ({ state, curves }) => {
    find("#python code").textContent = await exports.python(state, curves);
    find("#python").showModal();
  },
};

async function copy(text, done) {
  try {
    await navigator.clipboard.writeText(text);
    say(done);
  } catch {
    say("The browser does not allow copying: take the address from its bar, or select the text.", true);
  }
}
