// The table of runs: filter, sort, select, tags and groups, live.

import { Polled, getJson, query } from "./api.js";
import { announce, button, element, labelled, replace } from "./dom.js";
import { age, duration, moment, number, setting, short } from "./format.js";
import { keepLooking, startPage } from "./layout.js";
import { editGroup, editTags, runPath, status, tagList } from "./run_actions.js";

const COLUMNS = [
  { key: "status", name: "Status", cell: (run) => status(run.status), wide: true },
  { key: "name", name: "Run", cell: nameCell, wide: false },
  { key: "environment", name: "Environment", cell: (run) => run.environment ?? "–", wide: true },
  { key: "algorithm", name: "Algorithm", cell: (run) => run.algorithm ?? "–", wide: true },
  { key: "seed", name: "Seed", cell: (run) => number(run.seed), number: true, wide: true },
  { key: "env_steps", name: "Steps", cell: progressCell, number: true, wide: false },
  { key: "best", name: "Best", cell: (run) => number(run.best), number: true, wide: false, title: (run) => run.best_metric },
  { key: "last", name: "Last", cell: (run) => number(run.last), number: true, wide: true },
  { key: "elapsed_s", name: "Took", cell: (run) => duration(run.elapsed_s), number: true, wide: true },
  { key: "created", name: "Created", cell: (run) => age(run.created), number: true, wide: true, title: (run) => moment(run.created) },
  { key: "group", name: "Group", cell: (run) => run.group ?? "", wide: true },
  { key: "tags", name: "Tags", cell: (run) => tagList(run.tags), wide: true },
];
const ADDED_AT = 8; // beside the results
const SELECTED_KEY = "etude-selected";

const words = new URLSearchParams(location.search);
const state = {
  filter: words.get("filter") ?? "",
  sort: words.get("sort") ?? "",
  reverse: words.get("reverse") === "1",
  columns: words.getAll("column"),
  selected: new Set(JSON.parse(sessionStorage.getItem(SELECTED_KEY) ?? "[]")),
  answer: null,
};
const rows = new Map();
const polled = new Polled();
const main = await startPage({ title: "Runs" });

const filter = element("input", {
  id: "filter", type: "search", value: state.filter, list: "keys", autocomplete: "off", spellcheck: "false",
  placeholder: "algorithm=ppo eval/return>400 tag=paper age<7d", "aria-describedby": "filter-help",
});
const keys = element("datalist", { id: "keys" });
const wrong = element("p", { class: "wrong", role: "alert" });
const count = element("p", { class: "quiet count", "aria-live": "off" });
const addColumn = element("input", { list: "column-keys", size: "18", placeholder: "metric or setting", autocomplete: "off" });
const columnKeys = element("datalist", { id: "column-keys" });
const chips = element("span", { class: "chips" });
const chosenBar = element("div", { class: "chosen", role: "toolbar", "aria-label": "Selected runs", hidden: true });
const head = element("tr");
const body = element("tbody");
const everyone = element("input", { type: "checkbox", "aria-label": "Select all runs shown" });

main.append(
  element("div", { class: "title" }, element("h1", {}, "Runs"), count),
  element(
    "form",
    { class: "toolbar", submit: (event) => { event.preventDefault(); apply(); } },
    labelled("Filter", filter, { class: "field grow" }), keys,
    labelled("Add a column", addColumn, { class: "field wide-only" }), columnKeys, chips,
  ),
  element("p", { id: "filter-help", class: "unseen" }, "Key, one of = != > >= < <=, and a value, as in etude runs list --filter; other words are searched for."),
  wrong,
  chosenBar,
  element("div", { class: "scroll table" }, element("table", { class: "runs" }, element("thead", {}, head), body)),
);

filter.addEventListener("input", debounce(apply, 250));
addColumn.addEventListener("change", () => {
  const key = addColumn.value.trim();
  if (key && !state.columns.includes(key)) state.columns.push(key);
  addColumn.value = "";
  changed();
});
everyone.addEventListener("change", () => {
  for (const run of state.answer?.runs ?? []) everyone.checked ? state.selected.add(run.id) : state.selected.delete(run.id);
  selectionChanged();
  draw();
});
body.addEventListener("keydown", moveBetweenRows);

function apply() {
  if (filter.value === state.filter) return;
  state.filter = filter.value;
  changed();
}

function changed() {
  const shown = query({ filter: state.filter, sort: state.sort, reverse: state.reverse ? "1" : "", column: state.columns });
  history.replaceState(null, "", shown ? `/?${shown}` : "/");
  drawHead();
  look();
}

function debounce(action, milliseconds) {
  let waiting;
  return () => {
    clearTimeout(waiting);
    waiting = setTimeout(action, milliseconds);
  };
}

function nameCell(run) {
  const name = element("a", { href: runPath(run.id), class: "run-link" }, run.name || run.id);
  const under = element("span", { class: "narrow-only quiet small" }, status(run.status), ` · ${run.environment ?? "–"} · ${run.algorithm ?? "–"}`);
  return element("span", { class: "name-cell", title: run.id }, name, under);
}

function progressCell(run) {
  const share = run.total_steps ? Math.min(1, (run.env_steps ?? 0) / run.total_steps) : null;
  const text = element("span", {}, short(run.env_steps));
  if (share === null) return text;
  const bar = element("span", { class: `bar ${run.status === "running" ? "live" : ""}`, "aria-hidden": "true" }, element("i", { style: { width: `${100 * share}%` } }));
  return element("span", { class: "progress", title: `${number(run.env_steps)} of ${number(run.total_steps)} environment steps` }, text, bar);
}

function drawHead() {
  const cells = COLUMNS.map((column) => headCell(column.key, column.name, column));
  cells.splice(ADDED_AT, 0, ...state.columns.map((key) => headCell(key, key, { number: true, wide: true })));
  replace(head, element("th", { class: "check" }, everyone), ...cells, element("th", {}, element("span", { class: "unseen" }, "Edit")));
  replace(chips, ...state.columns.map((key) =>
    button(`${key} ×`, () => { state.columns = state.columns.filter((other) => other !== key); changed(); }, { class: "chip", "aria-label": `Remove the column ${key}` }),
  ));
}

function headCell(key, name, column) {
  const sorted = state.sort === key;
  const direction = sorted ? (state.reverse ? "ascending" : "descending") : null;
  const arrow = sorted ? (state.reverse ? " ▴" : " ▾") : "";
  const sort = button(name + arrow, () => {
    if (!sorted) [state.sort, state.reverse] = [key, false];
    else if (!state.reverse) state.reverse = true;
    else [state.sort, state.reverse] = ["", false];
    changed();
    head.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
    announce(state.sort ? `sorted by ${name}${state.reverse ? ", reversed" : ""}` : "newest first");
  }, { class: "sort", "data-key": key });
  return element("th", { scope: "col", class: classes(column), "aria-sort": direction }, sort);
}

const classes = (column) => [column.number ? "number" : "", column.wide ? "wide-only" : ""].join(" ").trim() || null;

function draw() {
  const { runs } = state.answer;
  const kept = new Set();
  const drawn = runs.map((run) => {
    kept.add(run.id);
    const look = JSON.stringify([run, state.columns, state.selected.has(run.id), age(run.created)]);
    const known = rows.get(run.id);
    if (known?.look === look) return known.row;
    const row = makeRow(run);
    if (known?.row.contains(document.activeElement)) restoreFocus(known.row, row);
    rows.set(run.id, { look, row });
    return row;
  });
  for (const id of [...rows.keys()]) if (!kept.has(id)) rows.delete(id);
  const same = drawn.length === body.children.length && drawn.every((row, place) => body.children[place] === row);
  if (!same) {
    const focused = document.activeElement;
    body.replaceChildren(...(drawn.length ? drawn : [emptyRow()]));
    if (focused && body.contains(focused)) focused.focus();
  }
  const { total, found, running } = state.answer;
  count.textContent = `${found === total ? total : `${found} of ${total}`} runs${running ? ` · ${running} running` : ""}${found > runs.length ? ` · the first ${runs.length} shown` : ""}`;
  everyone.checked = runs.length > 0 && runs.every((run) => state.selected.has(run.id));
}

function restoreFocus(from, to) {
  const place = [...from.querySelectorAll("a, button, input")].indexOf(document.activeElement);
  queueMicrotask(() => to.querySelectorAll("a, button, input")[place]?.focus());
}

function emptyRow() {
  const text = state.answer.total
    ? "No run meets the filter."
    : "There are no runs here yet. Start one with “New run”, or with `etude train CartPole-v1:ppo`.";
  return element("tr", {}, element("td", { colspan: 20, class: "empty quiet" }, text));
}

function makeRow(run) {
  const box = element("input", {
    type: "checkbox", "aria-label": `Select ${run.id}`, checked: state.selected.has(run.id),
    change: () => {
      box.checked ? state.selected.add(run.id) : state.selected.delete(run.id);
      selectionChanged();
      row.classList.toggle("selected", box.checked);
    },
  });
  const cells = COLUMNS.map((column) => element("td", { class: classes(column), title: column.title?.(run) ?? null }, column.cell(run)));
  const more = state.columns.map((key) => {
    const value = run.more?.[key];
    return element("td", { class: "number wide-only" }, typeof value === "number" ? number(value) : value === null || value === undefined ? "–" : setting(value));
  });
  cells.splice(ADDED_AT, 0, ...more);
  const edit = button("✎", async () => { if (await editTags([run.id], run.tags)) look(); }, { class: "quiet edit needs-token", "aria-label": `Edit the tags of ${run.id}`, title: "Edit tags" });
  const row = element("tr", { class: state.selected.has(run.id) ? "selected" : null }, element("td", { class: "check" }, box), ...cells, element("td", {}, edit));
  return row;
}

function selectionChanged() {
  sessionStorage.setItem(SELECTED_KEY, JSON.stringify([...state.selected]));
  const ids = [...state.selected];
  chosenBar.hidden = ids.length === 0;
  const chosen = query({ run: ids });
  const known = new Map((state.answer?.runs ?? []).map((run) => [run.id, run]));
  replace(
    chosenBar,
    element("strong", {}, `${ids.length} selected`),
    element("a", { class: "button", href: `/curves?${chosen}` }, "Curves"),
    ids.length >= 2 ? element("a", { class: "button", href: `/diff?${chosen}` }, "Differences") : null,
    button("Tag…", async () => { if (await editTags(ids, known.get(ids[0])?.tags ?? [])) look(); }, { class: "needs-token" }),
    button("Group…", async () => { if (await editGroup(ids, known.get(ids[0])?.group, state.answer?.groups)) look(); }, { class: "needs-token" }),
    button("Clear", () => { state.selected.clear(); rows.clear(); selectionChanged(); draw(); filter.focus(); }, { class: "quiet" }),
  );
}

function moveBetweenRows(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const row = event.target.closest("tr");
  if (!step || !row) return;
  const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
  const same = [...row.querySelectorAll("a, button, input")].indexOf(event.target);
  const target = next?.querySelectorAll("a, button, input")[same];
  if (target) {
    event.preventDefault();
    target.focus();
  }
}

async function ask() {
  const path = `/api/runs?${query({ filter: state.filter, sort: state.sort, reverse: state.reverse ? "1" : "", column: state.columns })}`;
  try {
    const answer = await polled.read(path);
    wrong.textContent = answer?.problems.length ? answer.problems[0] : answer ? "" : wrong.textContent;
    if (answer) {
      state.answer = answer;
      draw();
      selectionChanged();
    }
  } catch (error) {
    wrong.textContent = error.message;
    if (error.status === 0) return 5000;
  }
  return state.answer?.running ? 2000 : 4000;
}

drawHead();
const look = keepLooking(ask);
getJson("/api/keys").then(({ facts, metrics, settings }) => {
  replace(keys, ...facts.map((key) => element("option", { value: `${key}=` })), ...metrics.map((key) => element("option", { value: `${key}>` })));
  replace(columnKeys, ...[...metrics, ...settings].map((key) => element("option", { value: key })));
}).catch(() => undefined);
