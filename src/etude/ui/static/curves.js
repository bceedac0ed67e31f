// Curves of many runs over each other: which runs, which metrics, how they are grouped and drawn.

import { getJson, query } from "./api.js";
import { colour, dashes } from "./colours.js";
import { button, element, labelled, replace, select } from "./dom.js";
import { startPage } from "./layout.js";
import { AXES, Panels } from "./panels.js";

const FIRST = ["eval/return_mean", "collect/return_mean", "train/loss", "train/policy_loss", "train/q_loss", "train/entropy"];
const MOST_AT_FIRST = 3;
const words = new URLSearchParams(location.search);
const state = {
  runs: words.getAll("run"),
  filter: words.get("filter") ?? "",
  axis: words.get("axis") ?? "env_steps",
  by: words.get("by") ?? "",
  band: words.get("band") ?? "range",
  smooth: Number(words.get("smooth") ?? 0) || 0,
  logX: words.get("log_x") === "1",
  logY: words.get("log_y") === "1",
  metrics: words.getAll("metric"),
};

const main = await startPage({ title: "Curves" });
const filter = element("input", { type: "search", value: state.filter, placeholder: "algorithm=ppo age<7d", autocomplete: "off", spellcheck: "false" });
const message = element("p", { class: "quiet small", role: "status" });
const chosen = element("p", { class: "quiet small" });
const legend = element("div", { class: "legend", role: "group", "aria-label": "Lines" });
const picker = element("div", { class: "picker" });
const pickerSearch = element("input", { type: "search", placeholder: "find a metric", "aria-label": "Find a metric", autocomplete: "off" });
const area = element("div", { class: "panels" });
const smooth = element("input", { type: "range", min: "0", max: "0.3", step: "0.005", value: String(state.smooth) });
const smoothValue = element("output", {}, percent(state.smooth));
const byKey = element("input", { list: "settings", placeholder: "algorithm.gamma", value: isSetting(state.by) ? state.by : "", autocomplete: "off" });
const settings = element("datalist", { id: "settings" });
// On narrow screens the charts come first, and what is drawn is behind this button.
const toggleSide = button("Settings", () => {
  const open = document.querySelector(".side").classList.toggle("open");
  toggleSide.setAttribute("aria-expanded", String(open));
}, { class: "side-toggle", "aria-expanded": "false", "aria-controls": "side-body" });
let known = [];
let atFirst = new Set(); // what was drawn when the list was made stands first; a list that jumps under the pointer is no list

const panels = new Panels({
  container: area,
  selection: () => (state.runs.length ? { run: state.runs } : { filter: state.filter }),
  settings: () => state,
  onKeys: drawLegend,
  onError: (text) => { message.textContent = text; },
});

main.classList.add("with-side");
main.append(
  element(
    "aside",
    { class: "side", "aria-label": "What is drawn" },
    element("div", { class: "side-title" }, element("h1", {}, "Curves"), toggleSide),
    element(
      "div",
      { class: "side-body", id: "side-body" },
      labelled("Runs", filter),
      chosen,
      labelled("Axis", select(AXES, state.axis, (value) => change({ axis: value }))),
      labelled("Seeds as", select([["range", "mean and range"], ["interval", "mean and 95 % interval"], ["runs", "every run"]], state.band, (value) => change({ band: value }))),
      labelled("A line is", select([["", "a setup"], ["group", "a group"], ["name", "a name"], ["algorithm", "an algorithm"], ["run", "a run"], ["setting", "a value of …"]], isSetting(state.by) ? "setting" : state.by, chooseBy)),
      labelled("Setting", byKey, { class: "field by-setting", hidden: !isSetting(state.by) }), settings,
      labelled("Smoothing", element("span", { class: "row" }, smooth, smoothValue)),
      element(
        "div",
        { class: "row" },
        checkbox("log x", state.logX, (on) => change({ logX: on })),
        checkbox("log y", state.logY, (on) => change({ logY: on })),
      ),
      element("h2", {}, "Lines"), legend,
      element("h2", {}, "Metrics"), pickerSearch, picker,
      element("p", { class: "quiet small" }, "Drag to zoom, double-click to show all, Shift and drag to move."),
    ),
  ),
  element("div", { class: "content" }, message, area),
);

filter.addEventListener("input", debounce(() => { state.runs = []; change({ filter: filter.value }); loadMetrics(); }, 300));
smooth.addEventListener("input", () => { smoothValue.textContent = percent(Number(smooth.value)); });
smooth.addEventListener("input", debounce(() => change({ smooth: Number(smooth.value) }), 120));
byKey.addEventListener("change", () => { if (byKey.value.trim()) change({ by: byKey.value.trim() }); });
pickerSearch.addEventListener("input", drawPicker);

function percent(share) {
  return share ? `${(100 * share).toFixed(1)} %` : "off";
}

function isSetting(by) {
  return by !== "" && !["group", "name", "algorithm", "run", "environment", "seed"].includes(by);
}

function checkbox(text, on, action) {
  const box = element("input", { type: "checkbox", checked: on, change: () => action(box.checked) });
  return element("label", { class: "check-label" }, box, text);
}

function chooseBy(value) {
  document.querySelector(".by-setting").hidden = value !== "setting";
  if (value === "setting") byKey.focus();
  else change({ by: value });
}

function debounce(action, milliseconds) {
  let waiting;
  return () => {
    clearTimeout(waiting);
    waiting = setTimeout(action, milliseconds);
  };
}

function change(values) {
  const other = "by" in values || "filter" in values;
  Object.assign(state, values);
  if (other) {
    panels.forgetKeys();
    drawLegend();
  }
  keepAddress();
  panels.changed();
}

function keepAddress() {
  const { runs, filter: text, axis, by, band, metrics } = state;
  const shown = query({
    run: runs, filter: text, axis: axis === "env_steps" ? "" : axis, by, band: band === "range" ? "" : band,
    smooth: state.smooth || "", log_x: state.logX ? "1" : "", log_y: state.logY ? "1" : "", metric: metrics,
  });
  history.replaceState(null, "", shown ? `/curves?${shown}` : "/curves");
}

function drawLegend() {
  replace(legend, ...[...panels.places].map(([key, place]) => {
    const dashed = dashes(place).length > 0;
    const swatch = element("i", { class: dashed ? "swatch dashed" : "swatch", style: { background: colour(place), borderColor: colour(place) } });
    const on = !panels.hidden.has(key);
    const toggle = button("", () => {
      on ? panels.hidden.add(key) : panels.hidden.delete(key);
      panels.redraw();
    }, { "aria-pressed": String(on), title: key });
    toggle.append(swatch, element("span", {}, key));
    toggle.addEventListener("pointerenter", () => panels.setHighlight(key));
    toggle.addEventListener("pointerleave", () => panels.setHighlight(null));
    toggle.addEventListener("focus", () => panels.setHighlight(key));
    toggle.addEventListener("blur", () => panels.setHighlight(null));
    return toggle;
  }));
}

function drawPicker() {
  const search = pickerSearch.value.trim().toLowerCase();
  const found = known.filter(({ name }) => name.toLowerCase().includes(search));
  const shown = [...found.filter(({ name }) => atFirst.has(name)), ...found.filter(({ name }) => !atFirst.has(name))];
  replace(picker, ...shown.map(({ name, runs }) => {
    const box = element("input", {
      type: "checkbox", checked: state.metrics.includes(name),
      change: () => {
        state.metrics = box.checked ? [...state.metrics, name] : state.metrics.filter((other) => other !== name);
        keepAddress();
        panels.show(state.metrics);
      },
    });
    return element("label", { class: "check-label" }, box, element("span", { class: "grow" }, name), element("span", { class: "quiet small" }, String(runs)));
  }));
}

async function loadMetrics() {
  try {
    const found = await getJson(`/api/metrics?${query(panels.options.selection())}`);
    known = found.metrics;
    chosen.textContent = state.runs.length ? `${found.runs} selected runs` : `${found.runs} runs, at most the newest 300`;
    if (!state.metrics.length) {
      const names = known.map(({ name }) => name);
      const first = FIRST.filter((name) => names.includes(name));
      state.metrics = (first.length ? first : names).slice(0, MOST_AT_FIRST);
    }
    atFirst = new Set(state.metrics);
    drawPicker();
    panels.show(state.metrics);
  } catch (error) {
    message.textContent = error.message;
  }
}

panels.changed();
await loadMetrics();
getJson("/api/keys").then((keys) => replace(settings, ...keys.settings.map((key) => element("option", { value: key })))).catch(() => undefined);
