// The steps of an episode as a table of which only the rows in view are drawn: ten thousand are as quick as ten.

import { element } from "./dom.js";
import { short } from "./inspector_chart.js";

const ROW = 28;
const SPARE = 12;

export class StepTable {
  // `jump(step)` is called where a row is clicked.
  constructor(jump) {
    this.jump = jump;
    this.rows = [];
    this.columns = [];
    this.step = 0;
    this.head = element("thead");
    this.body = element("tbody");
    this.above = element("div");
    this.below = element("div");
    this.table = element("table", { class: "steps", "aria-label": "Steps" }, this.head, this.body);
    this.node = element("div", { class: "rows", tabindex: "0" }, this.above, this.table, this.below);
    this.node.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  // Columns: [name, row => text, is of the other future]; rows are those of the longer episode.
  show(columns, rows) {
    this.columns = columns;
    this.rows = rows;
    const cells = columns.map(([name, , other]) => element("th", { scope: "col", class: other ? "other" : null }, name));
    this.head.replaceChildren(element("tr", {}, ...cells));
    this.drawn = null;
    this.draw();
  }

  moveTo(step) {
    this.step = step;
    const place = step * ROW;
    const { scrollTop, clientHeight } = this.node;
    if (place < scrollTop || place > scrollTop + clientHeight - 3 * ROW) {
      this.node.scrollTop = Math.max(0, place - clientHeight / 2);
    }
    this.draw();
    this.body.querySelector("tr.now")?.classList.remove("now");
    this.body.querySelector(`tr[data-step="${step}"]`)?.classList.add("now");
  }

  draw() {
    const first = Math.max(0, Math.floor(this.node.scrollTop / ROW) - SPARE);
    const count = Math.ceil((this.node.clientHeight || 400) / ROW) + 2 * SPARE;
    const last = Math.min(this.rows.length, first + count);
    const key = `${first}-${last}`;
    if (this.drawn === key) return;
    this.drawn = key;
    this.above.style.height = `${first * ROW}px`;
    this.below.style.height = `${(this.rows.length - last) * ROW}px`;
    this.body.replaceChildren(...this.rows.slice(first, last).map((row, place) => this.row(row, first + place)));
  }

  row(row, step) {
    const cells = this.columns.map(([, read, other]) => element("td", { class: other ? "other" : null }, text(read(row))));
    const kinds = [step === this.step ? "now" : "", row.first?.forced || row.second?.forced ? "forced" : ""];
    return element(
      "tr",
      { class: kinds.join(" ").trim() || null, "data-step": step, click: () => this.jump(step) },
      ...cells,
    );
  }
}

function text(value) {
  if (Array.isArray(value)) return value.map(short).join("  ");
  return typeof value === "string" ? value : value === undefined ? "" : short(value);
}

// What is known of each step of this algorithm, and of the other future beside it.
export function columnsOf(first, second, words) {
  const sample = first.steps[0] ?? {};
  const has = (name) => sample[name] !== undefined;
  const action = (step) => (step ? (step.action_label ?? step.action) : undefined);
  const made = [
    ["step", (row) => row.step],
    ["action", (row) => action(row.first)],
  ];
  const plain = [
    ["reward", "reward"],
    ["return", "return"],
    ["MC return", "mc_return"],
    ["value", "value"],
    ["advantage", "advantage"],
    ["Q", "q"],
    ["predicted reward", "predicted_reward"],
    ["goes on", "predicted_continue"],
  ];
  for (const [title, name] of plain) if (has(name)) made.push([title, (row) => row.first?.[name]]);
  for (const name of ["probabilities", "q_values", "mean", "std"]) {
    if (!has(name)) continue;
    [sample[name]].flat(Infinity).slice(0, 8).forEach((_, place) => {
      const title = { probabilities: "P", q_values: "Q", mean: "mean", std: "std" }[name];
      made.push([`${title} ${words[place] ?? place}`, (row) => [row.first?.[name] ?? []].flat(Infinity)[place]]);
    });
  }
  made.push(["done", (row) => ending(row.first)]);
  if (second) {
    made.push(["action", (row) => action(row.second), true]);
    for (const [title, name] of [plain[0], plain[1], plain[3], plain[5]]) {
      if (has(name)) made.push([title, (row) => row.second?.[name], true]);
    }
    made.push(["done", (row) => ending(row.second), true]);
  }
  return made;
}

function ending(step) {
  if (!step) return "";
  return step.terminated ? "terminated" : step.truncated ? "truncated" : "";
}
