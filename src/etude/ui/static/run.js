// The page of one run, live: how it stands, its curves, settings, alerts, files, checkpoints and where it came from.

import { Polled, getJson, query } from "./api.js";
import { button, element, replace } from "./dom.js";
import { age, duration, moment, number } from "./format.js";
import { keepLooking, startPage } from "./layout.js";
import { Panels } from "./panels.js";
import { ask, editGroup, editTags, resumeRun, status, stopRun, tagList, apiPath } from "./run_actions.js";
import { alerts, checkpoints, commands, config, evaluations, files, provenance, shares } from "./run_sections.js";

const MAIN_METRICS = ["eval/return_mean", "collect/return_mean", "train/loss", "train/policy_loss", "train/value_loss", "train/q_loss", "train/entropy"];
const id = new URLSearchParams(location.search).get("run") ?? "";
const main = await startPage({ title: id });
const polled = new Polled();
const wrong = element("p", { class: "wrong", role: "alert" });
const head = element("div", { class: "run-head" });
const problems = element("div");
const chartArea = element("div", { class: "panels" });
const chartNote = element("p", { class: "quiet small", role: "status" });
const log = element("pre", { class: "log", tabindex: "0", "aria-label": "The end of run.log" });
const SECTIONS = { alerts: "Alerts", curves: "Curves", files: "Videos and pictures", time: "Time", checkpoints: "Checkpoints", evaluations: "Evaluations", config: "Settings", provenance: "Provenance", commands: "Commands", log: "Log" };
const parts = Object.fromEntries(Object.keys(SECTIONS).map((key) => [key, element("div")]));
const looks = {};

main.append(
  wrong, head, problems,
  element("nav", { class: "sections", "aria-label": "Sections" }, ...Object.entries(SECTIONS).map(([key, name]) => element("a", { href: `#${key}` }, name))),
  ...Object.entries(SECTIONS).map(([key, name]) => element("section", { class: "card", id: key, "aria-label": name }, element("h2", {}, name), parts[key])),
);
parts.curves.append(chartNote, chartArea);
parts.log.append(log);

const panels = new Panels({
  container: chartArea,
  selection: () => ({ run: [id] }),
  settings: () => ({ axis: "env_steps", by: "run", band: "runs", smooth: 0, logX: false, logY: false }),
  onError: (text) => { chartNote.textContent = text; },
});

const look = keepLooking(async () => {
  try {
    const run = await polled.read(apiPath(id));
    wrong.textContent = "";
    if (run) draw(run);
    return run?.status === "running" || head.dataset.status === "running" ? 2000 : 4000;
  } catch (error) {
    wrong.textContent = error.message;
    return 5000;
  }
});

function draw(run) {
  head.dataset.status = run.status;
  // A section is drawn when what it shows has changed, so that an open list stays open and a video goes on.
  drawPart("head", [run.status, run.tags, run.group, run.env_steps, run.best, run.elapsed_s, run.name], () => replace(head, ...headOf(run)));
  drawPart("problems", run.problems, () => replace(problems, ...run.problems.map((text) => element("p", { class: "problem" }, text))));
  drawPart("alerts", [run.alerts, run.active_alerts], () => replace(parts.alerts, alerts(run)));
  drawPart("files", [run.media, run.report], () => replace(parts.files, files(run)));
  drawPart("time", [run.shares, run.elapsed_s], () => replace(parts.time, shares(run)));
  drawPart("checkpoints", run.checkpoints, () => replace(parts.checkpoints, checkpoints(run)));
  drawPart("evaluations", run.evaluations, () => replace(parts.evaluations, evaluations(run)));
  drawPart("config", [run.config, run.asked, run.changes], () => replace(parts.config, config(run)));
  drawPart("provenance", [run.provenance, run.config_hash], () => replace(parts.provenance, provenance(run)));
  drawPart("commands", run.commands, () => replace(parts.commands, commands(run)));
  const names = MAIN_METRICS.filter((name) => name in run.metrics).slice(0, 4);
  if (run.best_metric in run.metrics && !names.includes(run.best_metric)) names.unshift(run.best_metric);
  drawPart("curves", names, () => panels.show(names));
  if (run.log) readLog();
  else log.textContent = "There is no run.log.";
}

function drawPart(name, shown, action) {
  const look = JSON.stringify(shown);
  if (looks[name] === look) return;
  looks[name] = look;
  action();
}

async function readLog() {
  const answer = await fetch(`/files/${encodeURIComponent(id)}/log`).catch(() => null);
  const text = answer?.ok ? await answer.text() : "run.log can't be read.";
  if (log.textContent === text) return;
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  log.textContent = text;
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function headOf(run) {
  const running = run.status === "running";
  const actions = [
    running ? button("Stop", () => stopRun(run.id).then(look), { class: "needs-token danger" }) : button("Resume", () => resumeRun(run.id).then(look), { class: "needs-token main" }),
    button("Tags…", async () => { if (await editTags([run.id], run.tags)) look(); }, { class: "needs-token" }),
    button("Group…", async () => { if (await editGroup([run.id], run.group)) look(); }, { class: "needs-token" }),
    button("Compare settings…", compare),
    element("a", { class: "button", href: `/curves?${query({ run: [run.id] })}` }, "All curves"),
    run.checkpoints.length ? element("a", { class: "button", href: `/inspect?${query({ run: run.id })}` }, "Inspect") : null,
  ];
  const share = run.total_steps ? Math.min(1, (run.env_steps ?? 0) / run.total_steps) : 0;
  const facts = [
    ["Environment", run.environment ?? "–"],
    ["Algorithm", run.algorithm ?? "–"],
    ["Seed", number(run.seed)],
    ["Steps", `${number(run.env_steps)} of ${number(run.total_steps)}`],
    ["Best", `${number(run.best)}${run.best_step === null ? "" : ` at ${number(run.best_step)}`}`, `${run.best_metric ?? ""}${run.best_mode === "min" ? ", the lowest" : ""}`],
    ["Last", number(run.last), run.best_metric],
    ["Updates", number(run.updates)],
    ["Episodes", number(run.episodes)],
    ["Took", duration(run.elapsed_s)],
    running ? ["Left", duration(run.metrics["time/eta_s"]), `${number(run.metrics["time/steps_per_second"])} steps a second`] : ["Created", moment(run.created), age(run.created)],
    ["Group", run.group ?? "–"],
    ["Tags", run.tags.length ? tagList(run.tags) : "–"],
  ];
  return [
    element("div", { class: "title" }, element("h1", {}, run.name || run.id), status(run.status), element("span", { class: "quiet" }, run.stop_reason ?? "")),
    element("p", { class: "quiet small path" }, run.path),
    element("span", { class: `bar wide ${running ? "live" : ""}`, role: "progressbar", "aria-label": "Progress", "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": String(Math.round(100 * share)) }, element("i", { style: { width: `${100 * share}%` } })),
    element("dl", { class: "facts" }, ...facts.map(([name, value, title]) => element("div", { title: title || null }, element("dt", {}, name), element("dd", {}, value)))),
    element("div", { class: "buttons", role: "toolbar", "aria-label": "This run" }, ...actions),
  ];
}

async function compare() {
  const { runs } = await getJson("/api/runs?limit=300");
  const others = runs.filter((run) => run.id !== id);
  const list = element("select", { name: "other", size: "12", "aria-label": "The other run" }, ...others.map((run) => element("option", { value: run.id }, `${run.id}  ·  ${run.environment}:${run.algorithm}`)));
  list.selectedIndex = 0;
  const given = await ask("Compare settings with", [list], "Compare");
  if (given?.other) location.href = `/diff?${query({ run: [id, given.other] })}`;
}

