// What to look at, and what to change: the form that records an episode, and the one that branches another future off it.

import { getJson } from "./api.js";
import { attempt, button, element, labelled, replace, select } from "./dom.js";

const MODES = [
  ["auto", "as evaluated"],
  ["greedy", "greedy"],
  ["sample", "sampled"],
];

export class RecordForm {
  constructor(record, stop) {
    this.run = element("select", { id: "run", change: () => attempt(() => this.loadCheckpoints()) });
    this.checkpoint = element("select", { id: "checkpoint" });
    this.mode = select(MODES, "auto", () => undefined, { id: "mode" });
    this.seed = element("input", { id: "seed", type: "number", min: "0", step: "1", value: "0" });
    this.steps = element("input", { id: "max-steps", type: "number", min: "1", max: "10000", step: "1", value: "1000" });
    this.pictures = element("input", { type: "checkbox", id: "pictures", checked: true });
    this.start = element("button", { type: "submit", class: "main", id: "record" }, "Record");
    this.stop = button("Stop", stop, { id: "stop", hidden: true });
    this.progress = element("span", { class: "doing", role: "status" });
    this.node = element(
      "form",
      {
        class: "controls",
        submit: (event) => {
          event.preventDefault();
          record(this.values());
        },
      },
      labelled("Run", this.run, { class: "field across" }),
      labelled("Checkpoint", this.checkpoint),
      labelled("Actions", this.mode),
      labelled("Seed", this.seed),
      labelled("Steps at most", this.steps),
      element("label", { class: "check-label", title: "A simulated world can be seen in 3-D without" }, this.pictures, "Pictures"),
      element("div", { class: "go" }, this.start, this.stop, this.progress),
    );
  }

  async load(wanted) {
    const { runs } = await getJson("/api/runs?limit=500");
    this.runs = runs;
    replace(this.run, ...runs.map((run) => element("option", { value: run.id }, nameOf(run))));
    if (!runs.length) this.progress.textContent = "There are no runs here yet.";
    const given = wanted.get("run");
    if (given && runs.some((run) => run.id === given)) this.run.value = given;
    if (wanted.get("seed")) this.seed.value = wanted.get("seed");
    if (wanted.get("max_steps")) this.steps.value = wanted.get("max_steps");
    if (wanted.get("pictures") === "false") this.pictures.checked = false;
    if (wanted.get("mode")) this.mode.value = wanted.get("mode");
    if (runs.length) await this.loadCheckpoints(wanted.get("checkpoint"));
  }

  async loadCheckpoints(given = null) {
    const found = await checkpointsOf(this.run.value);
    const words = [["", "last"], ...found.map((saved) => [saved.name, checkpointName(saved)])];
    if (found.some((saved) => saved.best)) words.splice(1, 0, ["best", "best"]);
    if (given && !words.some(([value]) => value === given)) words.push([given, given]);
    replace(this.checkpoint, ...words.map(([value, text]) => element("option", { value }, text)));
    this.checkpoint.value = given ?? "";
  }

  values() {
    return {
      run: this.run.value,
      checkpoint: this.checkpoint.value,
      mode: this.mode.value,
      seed: Number(this.seed.value || 0),
      max_steps: Number(this.steps.value || 1000),
      pictures: this.pictures.checked,
    };
  }

  busy(text) {
    this.start.disabled = text !== null;
    this.stop.hidden = text === null;
    this.progress.textContent = text ?? "";
  }
}

export class BranchForm {
  constructor(branch) {
    this.branch = branch;
    this.title = element("h2", {}, "Branch from here");
    this.action = element("div", { class: "action" });
    this.by = element("select", { id: "branch-by", change: () => attempt(() => this.loadOther()) });
    this.checkpoint = element("select", { id: "branch-checkpoint" });
    this.mode = select([["", "as recorded"], ["greedy", "greedy"], ["sample", "sampled"]], "", () => undefined, { id: "branch-mode" });
    this.go = element("button", { type: "submit", class: "main", id: "branch" }, "Branch");
    this.note = element("p", { class: "quiet" });
    this.node = element(
      "form",
      {
        class: "branch",
        submit: (event) => {
          event.preventDefault();
          this.branch(this.values());
        },
      },
      this.title,
      element(
        "div",
        { class: "fields" },
        labelled("Action at this step", this.action),
        labelled("Then by", this.by),
        labelled("Checkpoint", this.checkpoint),
        labelled("Actions", this.mode),
        element("div", { class: "go" }, this.go),
      ),
      this.note,
    );
  }

  async show(facts, runs) {
    this.facts = facts;
    const own = [["", "this policy"], ["checkpoint", "this run, another checkpoint"]];
    const others = runs.filter((run) => run.environment === facts.environment && run.id !== facts.run);
    replace(
      this.by,
      ...own.map(([value, text]) => element("option", { value }, text)),
      ...others.map((run) => element("option", { value: run.id }, nameOf(run))),
    );
    if (facts.discrete_actions !== null) {
      const words = [["", "the policy's own"]];
      for (let each = 0; each < facts.discrete_actions; each += 1) words.push([String(each), facts.action_labels[each] ?? `${each}`]);
      this.inputs = [select(words, "", () => undefined, { id: "branch-action" })];
    } else {
      const count = Math.min(32, facts.low?.length ?? 0);
      this.inputs = Array.from({ length: count }, (_, place) =>
        element("input", {
          type: "number",
          step: "any",
          placeholder: facts.action_labels[place] ?? `${place}`,
          "aria-label": `Action ${facts.action_labels[place] ?? place}`,
          min: facts.low[place],
          max: facts.high[place],
        }),
      );
    }
    replace(this.action, ...this.inputs);
    const none = facts.can_branch ? "" : "This environment's state can't be saved, so no other future can begin amid an episode.";
    this.note.textContent = none || (facts.discrete_actions === null ? "Leave the action empty for the policy's own." : "");
    this.go.disabled = !facts.can_branch;
    await this.loadOther();
  }

  moveTo(step, row) {
    this.step = step;
    this.row = row;
    this.title.textContent = `Branch from step ${step}`;
  }

  async loadOther() {
    const other = this.by.value;
    this.checkpoint.closest("label").hidden = other === "";
    if (other === "") return;
    const run = other === "checkpoint" ? this.facts.run : other;
    const found = await checkpointsOf(run);
    replace(this.checkpoint, ...found.map((saved) => element("option", { value: saved.name }, checkpointName(saved))));
  }

  values() {
    const other = this.by.value;
    const given = this.inputs.map((input) => input.value);
    let action = null;
    if (this.facts.discrete_actions !== null) action = given[0] === "" ? null : Number(given[0]);
    else if (given.some((text) => text !== "")) {
      const own = [this.row?.action ?? []].flat(Infinity);
      action = given.map((text, place) => (text === "" ? own[place] : Number(text)));
    }
    return {
      step: this.step,
      action,
      run: other === "" || other === "checkpoint" ? null : other,
      checkpoint: other === "" ? null : this.checkpoint.value,
      mode: this.mode.value || null,
    };
  }
}

async function checkpointsOf(run) {
  const { checkpoints } = await getJson(`/api/run/${encodeURIComponent(run)}`);
  return checkpoints.filter((saved) => saved.kind !== "damaged").reverse();
}

function nameOf(run) {
  return [run.name && run.name !== run.id ? run.name : null, run.id].filter(Boolean).join(" · ");
}

function checkpointName(saved) {
  const marks = [saved.best ? "best" : null, saved.last ? "last" : null, saved.kind === "full" ? null : "policy alone"].filter(Boolean);
  const done = saved.counters.env_steps;
  const steps = done === undefined ? saved.name : `${done.toLocaleString("en")} steps`;
  return marks.length ? `${steps} (${marks.join(", ")})` : steps;
}
