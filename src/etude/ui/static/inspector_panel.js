// One future at one step: the frame as drawn, what the network sees of it, and what the algorithm says.

import { element, replace } from "./dom.js";
import { short } from "./inspector_chart.js";
import { WorldView } from "./world.js";

const AHEAD = 4;
const MOST_BARS = 24;

export class Panel {
  constructor(name, camera) {
    this.view = new WorldView(camera);
    this.title = element("h2", {}, name);
    this.about = element("p", { class: "about" });
    this.frame = element("img", { class: "frame", alt: "The environment as drawn", draggable: "false" });
    this.nothing = element("p", { class: "nothing" }, "This environment draws nothing.");
    this.seen = element("div", { class: "seen" });
    this.facts = element("dl", { class: "said" });
    this.node = element(
      "section",
      { class: "future", "aria-label": name },
      element("header", {}, this.title, this.about),
      element("div", { class: "pictures" }, this.frame, this.view.node, this.nothing, this.seen),
      this.facts,
    );
    this.waiting = [];
    this.number = -1;
  }

  // `summary` says whose future it is, `episode` holds its steps, `place` is the address of its pictures; `poses` are where the
  // shapes of a simulated world are, if that is what is to be seen.
  show(summary, episode, place, facts, poses) {
    Object.assign(this, { summary, episode, place, world: facts, poses });
    const begin = summary.driven ? "Driven from step" : "From step";
    this.title.textContent = summary.branched_at === null ? "Recorded" : `${begin} ${summary.branched_at}`;
    const cut = { terminated: "terminated", truncated: "truncated" }[summary.ending] ?? `cut: ${summary.ending}`;
    this.about.textContent =
      `${summary.policy} · ${summary.mode} · return ${short(summary.return)} · ${summary.length} steps, ${cut}`;
    this.frame.hidden = !episode.frames || Boolean(poses);
    this.view.node.hidden = !poses;
    this.nothing.hidden = Boolean(poses) || Boolean(episode.frames) || facts.sees_pictures;
  }

  // A future that is being driven: nothing is known of it but where everything is.
  showDriven(world) {
    this.title.textContent = "Driven";
    this.about.textContent = "";
    this.view.node.hidden = !this.view.load(world);
    this.frame.hidden = true;
    this.nothing.hidden = !this.view.node.hidden;
    replace(this.seen);
    replace(this.facts);
  }

  // Return a promise of the frame being there, so that playing waits for it.
  moveTo(step, { deciding = false } = {}) {
    const { episode } = this;
    const last = Math.max(0, episode.steps.length - 1);
    const at = Math.min(step, last);
    const over = step > last;
    this.node.classList.toggle("over", over);
    const row = episode.steps[at];
    const drawn = episode.frames && !this.poses;
    const shown = drawn ? this.load(Math.min(step, episode.frames - 1)) : Promise.resolve();
    if (this.poses) this.view.show(this.poses, step);
    this.showSeen(row, at, episode.steps[at - 1], deciding);
    this.showFacts(row, over);
    return shown;
  }

  load(number) {
    const address = `${this.place}/frame/${number}.png`;
    const done = new Promise((resolve) => {
      this.frame.onload = this.frame.onerror = resolve;
    });
    if (this.frame.getAttribute("src") === address) return Promise.resolve();
    this.frame.src = address;
    this.waiting = [];
    const follows = number === this.number + 1;
    this.number = number;
    if (!follows) return done; // whoever jumps about will not look at the next ones
    for (let next = number + 1; next <= Math.min(number + AHEAD, this.episode.frames - 1); next += 1) {
      const image = new Image();
      image.src = `${this.place}/frame/${next}.png`;
      this.waiting.push(image);
    }
    return done;
  }

  // What is seen at a step, and beside it what a model had expected there when the step before was taken.
  showSeen(row, at, before, deciding) {
    if (!row) return replace(this.seen);
    if (this.world.sees_pictures) {
      const kinds = deciding ? [["saliency", "what decided", at]] : [["seen", "as the network sees it", at]];
      if (before?.predicted_reward !== undefined && !deciding) kinds.push(["predicted", "what the model had expected to see", at - 1]);
      const names = kinds.map(([kind]) => kind).join();
      if (this.seen.dataset.kinds !== names) {
        this.seen.dataset.kinds = names;
        replace(
          this.seen,
          ...kinds.map(([, text]) => element("figure", {}, element("img", { alt: text, draggable: "false" }), element("figcaption", {}, text))),
        );
      }
      const images = this.seen.querySelectorAll("img");
      kinds.forEach(([kind, , step], place) => (images[place].src = `${this.place}/${kind}/${step}.png`));
      return undefined;
    }
    if (row.observation === undefined) return replace(this.seen);
    const expected = before?.predicted_observation === undefined ? null : numbers(before.predicted_observation);
    const values = numbers(expected ? row.observation : (row.seen ?? row.observation));
    const words = this.world.observation_labels;
    const most = Math.max(...values.map(Math.abs), 1e-9);
    const bars = values.slice(0, MOST_BARS).map((value, place) => bar(words[place] ?? `${place}`, value, most, expected?.[place]));
    const seen = row.seen === undefined ? "Observation" : "Observation, as the network sees it";
    const title = expected ? "Observation / as the model had expected it" : seen;
    const rest = values.length > MOST_BARS ? element("p", { class: "quiet" }, `and ${values.length - MOST_BARS} more`) : null;
    return replace(this.seen, element("h3", {}, title), ...bars, rest);
  }

  showFacts(row, over) {
    if (!row) return replace(this.facts);
    const said = [["action", describe(row, row.action, this.world)]];
    if (row.command) said.push(["commanded", row.command.map(short).join("  ")]);
    if (row.forced) said.push(["the policy's own", describe({}, row.policy_action, this.world)]);
    said.push(["reward", short(row.reward)], ["return so far", short(row.return)], ["MC return", short(row.mc_return)]);
    for (const [name, key] of [
      ["value", "value"],
      ["advantage", "advantage"],
      ["Q of the action", "q"],
      ["model's reward", "predicted_reward"],
      ["model: goes on", "predicted_continue"],
    ]) {
      if (row[key] !== undefined) said.push([name, short(row[key])]);
    }
    if (row.terminated || row.truncated) said.push(["end", row.terminated ? "terminated" : "truncated"]);
    if (over) said.push(["", "this future has ended"]);
    const lines = said.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
    const chances = row.probabilities ?? row.q_values;
    const words = this.world.action_labels;
    const most = chances ? Math.max(...chances.map((value) => Math.abs(value ?? 0)), 1e-9) : 1;
    const bars = (chances ?? []).slice(0, MOST_BARS).map((value, place) =>
      bar(words[place] ?? `${place}`, value, row.probabilities ? 1 : most, undefined, place === row.action),
    );
    const title = bars.length ? element("h3", {}, row.probabilities ? "Probabilities" : "Q-values") : null;
    return replace(this.facts, ...lines, title, ...bars);
  }
}

export function describe(row, action, world) {
  if (row.action_label !== undefined) return `${row.action_label} (${action})`;
  if (Array.isArray(action)) return action.flat(Infinity).map(short).join("  ");
  return world.action_labels[action] ?? short(action);
}

function numbers(observation) {
  if (Array.isArray(observation)) return observation.flat(Infinity);
  if (observation && typeof observation === "object") return Object.values(observation).flatMap(numbers);
  return [Number(observation)];
}

function bar(name, value, most, expected, chosen) {
  const share = Math.min(1, Math.abs(value ?? 0) / most);
  const filled = element("span", { class: (value ?? 0) < 0 ? "fill below" : "fill" });
  filled.style.width = `${(share * 100).toFixed(1)}%`;
  const track = element("span", { class: "track" }, filled);
  const said = expected === undefined || expected === null ? short(value) : `${short(value)} / ${short(expected)}`;
  return element(
    "div",
    { class: chosen ? "meter taken" : "meter" },
    element("span", { class: "name", title: name }, name),
    track,
    element("span", { class: "number" }, said),
  );
}
