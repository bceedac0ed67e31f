// What differs between runs: settings, code and packages.

import { getJson, query } from "./api.js";
import { element, labelled, replace } from "./dom.js";
import { startPage } from "./layout.js";
import { runPath } from "./run_actions.js";

const main = await startPage({ title: "Differences" });
const runs = new URLSearchParams(location.search).getAll("run");
const results = element("div");
const search = element("input", { type: "search", placeholder: "learning_rate", autocomplete: "off" });
main.append(
  element("div", { class: "title" }, element("h1", {}, "Differences"), element("a", { class: "button", href: `/curves?${query({ run: runs })}` }, "Curves")),
  element("div", { class: "toolbar" }, labelled("Find a setting", search)),
  results,
);

try {
  const found = await getJson(`/api/diff?${query({ run: runs })}`);
  const show = () => {
    const text = search.value.trim().toLowerCase();
    const chosen = (rows) => rows.filter((row) => row.key.toLowerCase().includes(text));
    replace(
      results,
      table("Settings", found.runs, chosen(found.settings), "The settings are the same, names and seeds aside."),
      table("Code", found.runs, chosen(found.code), "The commit is the same."),
      table("Packages", found.runs, chosen(found.packages), "The packages are the same."),
    );
  };
  search.addEventListener("input", show);
  show();
} catch (error) {
  replace(results, element("p", { class: "wrong", role: "alert" }, error.message));
}

function table(title, of, rows, none) {
  const heads = of.map((run) => element("th", { scope: "col" }, element("a", { href: runPath(run.id) }, run.id), element("div", { class: "quiet small" }, `${run.environment} · ${run.algorithm} · seed ${run.seed ?? "–"}`)));
  const lines = rows.map((row) => {
    const first = row.values[0];
    const cells = row.values.map((value) => element("td", { class: value === first ? null : "differs" }, value));
    return element("tr", {}, element("th", { scope: "row" }, row.key), ...cells);
  });
  const content = rows.length
    ? element("div", { class: "scroll" }, element("table", { class: "words" }, element("thead", {}, element("tr", {}, element("th", {}, "Key"), ...heads)), element("tbody", {}, ...lines)))
    : element("p", { class: "quiet" }, none);
  return element("section", { class: "card" }, element("h2", {}, title), content);
}
