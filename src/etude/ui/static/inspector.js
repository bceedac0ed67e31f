// The inspector: an episode recorded on the server, played, scrubbed and branched here.

import { getBytes, getJson, postJson } from "./api.js";
import { announce, attempt, button, element, labelled, replace, select, toast } from "./dom.js";
import { Chart, COLOURS } from "./inspector_chart.js";
import { Drive } from "./inspector_drive.js";
import { BranchForm, RecordForm } from "./inspector_form.js";
import { Panel } from "./inspector_panel.js";
import { columnsOf, StepTable } from "./inspector_table.js";
import { startPage } from "./layout.js";
import { Camera } from "./world.js";

const POLL_MS = 200;
const LONGEST_LEGEND = 6;
const SPEEDS = [["0.25", "¼×"], ["0.5", "½×"], ["1", "1×"], ["2", "2×"], ["4", "4×"]];

const main = await startPage({ title: "Inspect" });
const state = { session: null, facts: null, recordings: [], episodes: new Map(), poses: new Map(), world: null, look: null, first: null, second: null, step: 0, tab: "steps" };

// ---- the page ----------------------------------------------------------------------------------------------------------

const form = new RecordForm(record, stop);
const branchForm = new BranchForm(branch);
const notes = element("ul", { class: "notes" });
const camera = new Camera();
const panels = [new Panel("Recorded", camera), new Panel("Other future", camera)];
const drive = new Drive({
  draw: (pose) => panels[1].view.show(pose, 0),
  begun: () => {
    pause();
    panels[1].node.hidden = false;
    stage.classList.add("two", "driving");
    panels[1].showDriven(state.world);
  },
  done: async (number) => {
    stage.classList.remove("driving");
    await attempt(async () => {
      const now = await untilDone();
      form.busy(null);
      state.poses.delete(number);
      const made = now.recordings.find((each) => each.number === number);
      await take(now, made && made.length > made.branched_at ? number : state.second);
    });
  },
});
const slider = element("input", { type: "range", min: "0", max: "0", value: "0", id: "slider", "aria-label": "Step" });
slider.addEventListener("input", () => moveTo(Number(slider.value)));
const counter = element("output", { class: "counter", id: "counter" });
const playButton = button("Play", togglePlay, { class: "main", id: "play" });
let speed = 1;
const deciding = element("input", { type: "checkbox", id: "deciding", change: () => moveTo(state.step) });
const decidingField = element("label", { class: "check-label" }, deciding, "What decides");
const look = select([["picture", "As drawn"], ["world", "3-D"]], "picture", (value) => attempt(() => lookAt(value)), { id: "look" });
const lookField = labelled("View", look);
const transport = element(
  "div",
  { class: "transport" },
  button("|◀", () => moveTo(0), { "aria-label": "First step", title: "First step (Home)" }),
  button("◀", () => moveTo(state.step - 1), { "aria-label": "Step back", title: "Step back (←)", id: "back" }),
  playButton,
  button("▶", () => moveTo(state.step + 1), { "aria-label": "Step forward", title: "Step forward (→)", id: "forward" }),
  button("▶|", () => moveTo(length() - 1), { "aria-label": "Last step", title: "Last step (End)" }),
  slider,
  counter,
  lookField,
  labelled("Speed", select(SPEEDS, "1", (value) => (speed = Number(value)))),
  decidingField,
);
const futures = element("div", { class: "futures", role: "list" });
const charts = {
  value: new Chart("Value and return", moveTo),
  reward: new Chart("Reward", moveTo),
  advantage: new Chart("Advantage", moveTo),
  action: new Chart("Actions", moveTo),
};
const chartBox = element("div", { class: "charts" });
const table = new StepTable(moveTo);
const tabs = element("div", { class: "tabs", role: "tablist" });
const tabBody = element("div", { class: "tab-body" });
const exports = element("div", { class: "exports" });
const stage = element("div", { class: "stage" }, panels[0].node, panels[1].node);
const content = element(
  "div",
  { class: "inspector", hidden: true },
  notes,
  transport,
  drive.node,
  element("div", { class: "columns" }, element("div", {}, stage), chartBox),
  element("div", { class: "lower" }, branchForm.node, element("section", { class: "other-futures" }, element("h2", {}, "Futures"), futures)),
  element("div", { class: "tab-row" }, tabs, exports),
  tabBody,
);
const empty = element("p", { class: "nothing" }, "Choose a run and record an episode: every step of it can then be looked at.");
main.append(element("h1", {}, "Inspect"), form.node, empty, content);

// ---- recording ---------------------------------------------------------------------------------------------------------

async function record(values) {
  await attempt(async () => {
    pause();
    await drive.stop();
    if (state.session) await postJson(`/api/inspect/${state.session}/close`).catch(() => undefined);
    form.busy("opening");
    const { session } = await postJson("/api/inspect", values);
    Object.assign(state, { session, recordings: [], first: null, second: null, step: 0, world: null, look: null });
    state.episodes.clear();
    state.poses.clear();
    const done = await untilDone();
    if (!done.is_open) throw new Error(done.error ?? "nothing could be recorded");
    if (done.error) toast(done.error, "wrong");
    state.facts = await getJson(`/api/inspect/${session}/facts`);
    if (state.facts.drive) state.facts.drive.shapes = (await world())?.shapes.length ?? 0;
    await branchForm.show(state.facts, form.runs ?? []);
    drive.show(state.facts, session);
    await take(done, null);
    history.replaceState(null, "", `/inspect?${new URLSearchParams(Object.entries(values).filter(([, value]) => value !== ""))}`);
  });
  form.busy(null);
}

async function branch(values) {
  if (state.first === null) return;
  await attempt(async () => {
    pause();
    await drive.stop();
    const from = state.second !== null && branchesOffSecond() ? state.second : state.first;
    const before = new Set(state.recordings.map((each) => each.number));
    form.busy("branching");
    const steps = Number(form.steps.value || 1000);
    await postJson(`/api/inspect/${state.session}/${from}/branch`, { ...values, max_steps: steps });
    const done = await untilDone();
    if (done.error) throw new Error(done.error);
    const made = done.recordings.find((each) => !before.has(each.number));
    await take(done, made?.number ?? null);
    announce("the other future is there");
  });
  form.busy(null);
}

async function goOn(number) {
  await attempt(async () => {
    pause();
    await drive.stop();
    form.busy("recording");
    const had = summaryOf(number).length;
    const steps = Math.min(10000, had + Number(form.steps.value || 1000));
    await postJson(`/api/inspect/${state.session}/${number}/more`, { max_steps: steps });
    const done = await untilDone();
    if (done.error) throw new Error(done.error);
    state.episodes.delete(number);
    state.poses.delete(number);
    await take(done, state.second);
  });
  form.busy(null);
}

// A branch is of the future that is chosen on the right only where that one is asked for.
const branchesOffSecond = () => document.getElementById("off-second")?.checked ?? false;

async function stop() {
  if (state.session) await attempt(() => postJson(`/api/inspect/${state.session}/stop`));
}

async function untilDone() {
  for (;;) {
    const now = await getJson(`/api/inspect/${state.session}`);
    if (now.busy === null) return now;
    form.busy(now.steps ? `${now.busy}: step ${now.steps.toLocaleString("en")}` : now.busy);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

async function take(done, second) {
  state.recordings = done.recordings;
  state.first ??= done.recordings[0]?.number ?? null;
  state.second = second;
  if (state.first === null) throw new Error("nothing was recorded");
  await loadShown();
  content.hidden = false;
  empty.hidden = true;
  show();
}

async function episodeOf(number) {
  if (!state.episodes.has(number)) {
    state.episodes.set(number, await getJson(`/api/inspect/${state.session}/${number}/steps`));
  }
  return state.episodes.get(number);
}

// What both panels need: the steps, and where the shapes are if the world is looked at.
async function loadShown() {
  const shown = [state.first, state.second].filter((number) => number !== null);
  for (const number of shown) await episodeOf(number);
  await world();
  const drawn = shown.every((number) => state.episodes.get(number).frames);
  state.look ??= state.facts.has_world && (state.facts.drive || !drawn) ? "world" : "picture";
  if (!drawn && state.facts.has_world) state.look = "world";
  if (state.look === "world" && !panels.every((panel) => panel.view.load(state.world))) state.look = "picture";
  if (state.look === "world") for (const number of shown) await posesOf(number);
  look.value = state.look;
  lookField.hidden = !state.facts.has_world;
}

async function world() {
  if (state.facts.has_world) state.world ??= await getJson(`/api/inspect/${state.session}/world`);
  return state.world;
}

async function posesOf(number) {
  if (!state.poses.has(number)) state.poses.set(number, new Float32Array(await getBytes(`${placeOf(number)}/poses`)));
  return state.poses.get(number);
}

async function lookAt(value) {
  state.look = value;
  await loadShown();
  if (value === "world" && state.look !== "world") toast("this browser draws no WebGL, so there is no 3-D view", "wrong");
  show();
}

// ---- showing -----------------------------------------------------------------------------------------------------------

const first = () => state.episodes.get(state.first);
const second = () => (state.second === null ? null : state.episodes.get(state.second));
const summaryOf = (number) => state.recordings.find((each) => each.number === number);
const placeOf = (number) => `/api/inspect/${state.session}/${number}`;
const looked = (number) => (state.look === "world" ? state.poses.get(number) : null);
const length = () => Math.max(first()?.steps.length ?? 0, second()?.steps.length ?? 0);

function show() {
  replace(notes, ...state.facts.notes.map((line) => element("li", {}, line)));
  notes.hidden = !state.facts.notes.length;
  panels[0].show(summaryOf(state.first), first(), placeOf(state.first), state.facts, looked(state.first));
  panels[1].node.hidden = state.second === null;
  stage.classList.toggle("two", state.second !== null);
  if (state.second !== null) panels[1].show(summaryOf(state.second), second(), placeOf(state.second), state.facts, looked(state.second));
  decidingField.hidden = !state.facts.sees_pictures;
  slider.max = String(Math.max(0, length() - 1));
  showFutures();
  showCharts();
  showTabs();
  const begin = state.second === null ? state.step : (summaryOf(state.second).branched_at ?? 0);
  moveTo(Math.min(begin, length() - 1));
}

function showFutures() {
  const lines = state.recordings.map((each) => {
    const isFirst = each.number === state.first;
    const what = isFirst ? "recorded" : `${each.driven ? "driven " : ""}from step ${each.branched_at}${each.forced === null ? "" : `, action ${wordsOf(each.forced)}`}`;
    const whose = !isFirst && each.policy === summaryOf(state.first).policy ? "same policy" : each.policy;
    const line = element("span", {}, `${what} · return ${each.return.toFixed(2)} · ${each.length} steps · ${whose} · ${each.mode}`);
    const shown = each.number === state.second;
    const further = isOver(each) ? null : button("Go on", () => goOn(each.number), { class: "quiet", title: "Record further" });
    const choose = button(shown ? "Hide" : "Show beside", () => choose2(shown ? null : each.number), { class: "quiet" });
    return element("div", { class: shown ? "line shown" : "line", role: "listitem" }, line, element("span", {}, further, isFirst ? null : choose));
  });
  const off = element("label", { class: "check-label" }, element("input", { type: "checkbox", id: "off-second" }), "Branch off the future at the right");
  replace(futures, ...lines, state.second === null ? null : off);
}

const isOver = (recording) => recording.ending === "terminated" || recording.ending === "truncated";
const wordsOf = (action) => (Array.isArray(action) ? action.flat(Infinity).map((value) => value.toFixed(2)).join(", ") : (state.facts.action_labels[action] ?? action));

async function choose2(number) {
  await attempt(async () => {
    state.second = number;
    await loadShown();
    show();
  });
}

function showCharts() {
  const column = (name, place = null) => (episode) => episode.steps.map((step) => (place === null ? step[name] : [step[name]].flat(Infinity)[place]));
  const begins = second()?.branched_at ?? 0; // before that, both are the same
  const lines = (wanted) =>
    wanted.flatMap(([name, read], index) => {
      const colour = COLOURS[index % COLOURS.length];
      const made = [{ name, values: read(first()), colour, dashed: false }];
      if (second()) made.push({ name, values: read(second()).map((value, step) => (step < begins ? null : value)), colour, dashed: true });
      return made.filter((line) => line.values.some((value) => value !== undefined && value !== null));
    });
  const sample = first().steps[0] ?? {};
  const kind = ["probabilities", "q_values", "mean"].find((name) => sample[name] !== undefined) ?? "action";
  const words = state.facts.action_labels;
  const count = Math.min(LONGEST_LEGEND, [sample[kind] ?? []].flat(Infinity).length);
  const each = Array.from({ length: count }, (_, place) => [words[place] ?? `${place}`, column(kind, place)]);
  const wanted = {
    value: [["value", column("value")], ["MC return", column("mc_return")], ["Q", column("q")]],
    reward: [["reward", column("reward")], ["predicted", column("predicted_reward")]],
    advantage: [["advantage", column("advantage")]],
    action: each,
  };
  const titles = { probabilities: "Probabilities", q_values: "Q-values", mean: "Action, mean", action: "Action" };
  charts.action.node.querySelector("figcaption").firstChild.textContent = titles[kind];
  const shown = Object.entries(charts).filter(([name, chart]) => {
    const series = lines(wanted[name]);
    chart.show(series, length());
    return series.length;
  });
  replace(chartBox, ...shown.map(([, chart]) => chart.node));
}

function showTabs() {
  const names = ["steps", ...Object.keys(state.facts.tabs)];
  replace(
    tabs,
    ...names.map((name) =>
      button(name[0].toUpperCase() + name.slice(1), () => chooseTab(name), {
        role: "tab",
        "aria-selected": String(name === state.tab),
        class: name === state.tab ? "tab open" : "tab",
      }),
    ),
  );
  const shown = state.second === null ? [[state.first, ""]] : [[state.first, " (left)"], [state.second, " (right)"]];
  replace(
    exports,
    ...shown.flatMap(([number, which]) =>
      ["csv", "json"].map((kind) =>
        element("a", { class: "button", href: `${placeOf(number)}/episode.${kind}`, download: "" }, `Export ${kind.toUpperCase()}${which}`),
      ),
    ),
  );
  if (state.tab === "steps") {
    const rows = Array.from({ length: length() }, (_, step) => ({ step, first: first().steps[step], second: second()?.steps[step] }));
    table.show(columnsOf(first(), second(), state.facts.action_labels), rows);
    replace(tabBody, table.node);
    table.moveTo(state.step);
  } else {
    const lines = state.facts.tabs[state.tab].flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
    replace(tabBody, element("dl", { class: "facts" }, ...lines));
  }
}

function chooseTab(name) {
  state.tab = name;
  showTabs();
}

// ---- moving ------------------------------------------------------------------------------------------------------------

function moveTo(step) {
  if (!first()) return Promise.resolve();
  state.step = Math.max(0, Math.min(step, length() - 1));
  slider.value = String(state.step);
  counter.textContent = `step ${state.step} of ${length() - 1}`;
  later();
  branchForm.moveTo(Math.min(state.step, first().steps.length - 1), first().steps[Math.min(state.step, first().steps.length - 1)]);
  drive.moveTo(state.first, Math.min(state.step, first().steps.length - 1));
  const options = { deciding: deciding.checked };
  const shown = [panels[0].moveTo(state.step, options)];
  if (second()) shown.push(panels[1].moveTo(state.step, options));
  return Promise.all(shown);
}

// The frame comes first; charts and table follow it once for all moves of one instant.
let isDue = false;

function later() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    for (const chart of Object.values(charts)) chart.moveTo(state.step);
    if (state.tab === "steps") table.moveTo(state.step);
  });
}

let playing = false;

async function togglePlay() {
  if (playing) return pause();
  playing = true;
  playButton.textContent = "Pause";
  if (state.step >= length() - 1) await moveTo(0);
  while (playing && state.step < length() - 1) {
    const began = performance.now();
    await moveTo(state.step + 1);
    const rest = 1000 / (30 * speed) - (performance.now() - began);
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, rest)));
  }
  return pause();
}

function pause() {
  playing = false;
  playButton.textContent = "Play";
}

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input:not([type=range]), select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const moves = { ArrowLeft: -1, ArrowRight: 1 };
  if (moves[event.key]) moveTo(state.step + moves[event.key]);
  else if (event.key === "Home") moveTo(0);
  else if (event.key === "End") moveTo(length() - 1);
  else if (event.key === " " && !event.target.closest("button")) togglePlay();
  else return;
  event.preventDefault();
});

const wanted = new URLSearchParams(location.search);
await attempt(() => form.load(wanted));
if (wanted.get("run")) await record(form.values());
