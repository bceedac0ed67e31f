// The sections of a run's page, each from what the server says of the run.

import { colour } from "./colours.js";
import { button, element, replace, toast } from "./dom.js";
import { bytes, duration, moment, number, setting } from "./format.js";

const none = (text) => element("p", { class: "quiet" }, text);

export function alerts(run) {
  if (!run.alerts.length) return none("No alerts.");
  const active = new Set(run.active_alerts);
  const last = new Map(run.alerts.map((alert) => [alert.id, alert]));
  const items = run.alerts.toReversed().map((alert) => {
    const holds = alert.state === "raised" && active.has(alert.id) && last.get(alert.id) === alert;
    return element(
      "li",
      { class: `alert ${holds ? "active" : ""}` },
      element("span", { class: `pill ${holds ? "bad" : ""}` }, holds ? "holds" : alert.state),
      element("div", {}, element("strong", {}, alert.message), alert.tip ? element("div", { class: "quiet" }, alert.tip) : null),
      element("span", { class: "quiet small" }, `${number(alert.env_steps)} steps${alert.metric ? ` · ${alert.metric}` : ""}`),
    );
  });
  return element("ul", { class: "alerts" }, ...items);
}

export function shares(run) {
  const parts = Object.entries(run.shares).filter(([, share]) => share > 0).sort((one, other) => other[1] - one[1]);
  if (!parts.length) return none("No times were logged yet.");
  const rest = 1 - parts.reduce((sum, [, share]) => sum + share, 0);
  if (rest > 0.005) parts.push(["other", rest]);
  const total = run.elapsed_s ?? 0;
  return element(
    "div",
    {},
    element("div", { class: "stacked", "aria-hidden": "true" }, ...parts.map(([, share], place) => element("i", { style: { width: `${100 * share}%`, background: colour(place) } }))),
    element("ul", { class: "shares" }, ...parts.map(([name, share], place) => element("li", {}, element("i", { class: "swatch", style: { background: colour(place) } }), element("span", {}, name), element("b", {}, `${(100 * share).toFixed(1)} %`), element("span", { class: "quiet" }, total ? `about ${duration(total * share)}` : "")))),
  );
}

export function files(run) {
  const path = (medium) => `/files/${encodeURIComponent(run.id)}/${medium.folder}/${encodeURIComponent(medium.name)}`;
  const report = run.report ? element("p", {}, element("a", { class: "button", href: `/files/${encodeURIComponent(run.id)}/report`, target: "_blank", rel: "noopener" }, "Open the report")) : null;
  if (!run.media.length) return element("div", {}, report, none("No videos or pictures."));
  const shown = run.media.map((medium) =>
    element(
      "figure",
      {},
      medium.kind === "video"
        ? element("video", { src: path(medium), controls: true, preload: "metadata", loop: true, muted: true, "aria-label": medium.name })
        : element("img", { src: path(medium), alt: medium.name, loading: "lazy" }),
      element("figcaption", {}, element("a", { href: path(medium), target: "_blank", rel: "noopener" }, medium.name), element("span", { class: "quiet small" }, ` ${bytes(medium.size)}`)),
    ),
  );
  return element("div", {}, report, element("div", { class: "media" }, ...shown));
}

export function checkpoints(run) {
  if (!run.checkpoints.length) return none(run.why_no_checkpoints ?? "No checkpoints.");
  const rows = run.checkpoints.toReversed().map((each) => [
    element("code", {}, each.name),
    element("span", {}, ...[each.best && "best", each.last && "last", each.kind !== "full" && each.kind].filter(Boolean).map((word) => element("span", { class: `pill ${word === "damaged" ? "bad" : ""}` }, word))),
    number(each.counters.env_steps),
    bytes(each.size),
    moment(each.created),
  ]);
  return table(["Name", "", "Steps", "Size", "Saved"], rows, [2, 3]);
}

export function evaluations(run) {
  if (!run.evaluations.length) return none("None on request; `etude evaluate` writes them. Those of the training are in the curves.");
  const rows = run.evaluations.toReversed().map((each) => [
    element("code", {}, String(each.checkpoint ?? "–")),
    `${number(each.return_mean)} ± ${number(each.return_std)}`,
    number(each.episodes),
    String(each.mode ?? "–"),
    moment(each.created),
  ]);
  return table(["Checkpoint", "Return", "Episodes", "Actions", "When"], rows, [1, 2]);
}

export function config(run) {
  const search = element("input", { type: "search", placeholder: "find a setting", "aria-label": "Find a setting", autocomplete: "off" });
  const all = element("input", { type: "checkbox" });
  const body = element("tbody");
  const show = () => {
    const text = search.value.trim().toLowerCase();
    const source = all.checked || text ? run.config : Object.fromEntries(Object.entries(run.config).filter(([key]) => key in run.asked));
    const rows = Object.entries(source).filter(([key, value]) => `${key} ${setting(value)}`.toLowerCase().includes(text));
    replace(body, ...rows.map(([key, value]) => element("tr", { class: key in run.asked ? "asked" : null }, element("th", { scope: "row" }, key), element("td", {}, element("code", {}, setting(value))))));
  };
  search.addEventListener("input", show);
  all.addEventListener("change", show);
  show();
  const changes = run.changes.map((each) => element("li", {}, `at ${number(each.env_steps)} steps: ${Array.isArray(each.changes) ? each.changes.join(", ") : ""}`));
  return element(
    "div",
    {},
    element("div", { class: "toolbar" }, search, element("label", { class: "check-label" }, all, `all ${Object.keys(run.config).length} settings, not only what was asked`)),
    changes.length ? element("details", { open: true }, element("summary", {}, "Changed on resuming"), element("ul", {}, ...changes)) : null,
    element("div", { class: "scroll tall" }, element("table", { class: "words" }, body)),
  );
}

export function provenance(run) {
  const { git, environment, command } = run.provenance;
  const facts = [];
  if (command?.argv) facts.push(["Command", ["etude", ...command.argv.slice(1)].join(" ")]);
  if (git?.commit) facts.push(["Commit", `${git.commit.slice(0, 12)} on ${git.branch ?? "no branch"}${git.dirty ? ", with changes" : ""}`]);
  if (environment) facts.push(["Python", String(environment.python ?? "–").split(" ")[0]], ["Machine", [environment.os, environment.cpu?.model, environment.cpu?.count && `${environment.cpu.count} cores`].filter(Boolean).join(" · ")]);
  if (environment?.torch?.version) facts.push(["torch", environment.torch.version]);
  facts.push(["Config", `${run.config_hash ?? "–"}; without its seed ${run.setup_hash ?? "–"}`]);
  const packages = Object.entries(environment?.packages ?? {});
  return element(
    "div",
    {},
    element("dl", { class: "facts long" }, ...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
    packages.length ? element("details", {}, element("summary", {}, `${packages.length} packages`), element("p", { class: "packages" }, ...packages.map(([name, version]) => element("code", {}, `${name} ${version}`)))) : null,
  );
}

export function commands(run) {
  return element("ul", { class: "commands" }, ...Object.values(run.commands).map((line) =>
    element("li", {}, element("code", {}, line), button("Copy", () => navigator.clipboard.writeText(line).then(() => toast("Copied"), () => toast("The browser did not let us copy", "wrong")), { class: "quiet", "aria-label": `Copy ${line}` })),
  ));
}

function table(heads, rows, numbers) {
  const kind = (place) => (numbers.includes(place) ? "number" : null);
  return element(
    "div",
    { class: "scroll tall" },
    element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((head, place) => element("th", { scope: "col", class: kind(place) }, head)))), element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, place) => element("td", { class: kind(place) }, cell)))))),
  );
}
