// Start a training, and see how those that were asked for stand.

import { Polled, hasToken, postJson } from "./api.js";
import { attempt, element, labelled, replace } from "./dom.js";
import { moment } from "./format.js";
import { keepLooking, startPage } from "./layout.js";
import { followJob, runPath, status } from "./run_actions.js";

const main = await startPage({ title: "New run" });
const spec = element("input", { required: true, placeholder: "CartPole-v1:ppo", autocomplete: "off", spellcheck: "false" });
const words = element("textarea", { rows: "5", placeholder: "training.total_steps=100000\nexperiment.seed=1\nalgorithm.learning_rate=0.001", spellcheck: "false" });
const go = element("button", { type: "submit", class: "main needs-token" }, "Start");
const said = element("p", { class: "quiet", role: "status" });
const list = element("div");
const polled = new Polled();

main.append(
  element("h1", {}, "New run"),
  element(
    "form",
    { class: "card start", submit: begin },
    labelled("Environment and algorithm, or an experiment's name", spec),
    labelled("Settings, key=value, one a line; everything else as in the presets", words),
    element("div", { class: "buttons" }, go, said),
    hasToken() ? null : element("p", { class: "wrong" }, "Starting needs the token: open the address that `etude ui` printed."),
  ),
  element("section", { class: "card" }, element("h2", {}, "Asked for since the server began"), list),
);

async function begin(event) {
  event.preventDefault();
  go.disabled = true;
  const job = await attempt(() => postJson("/api/start", { words: `${spec.value} ${words.value.split("\n").join(" ")}` }));
  if (job) {
    look();
    const run = await attempt(() => followJob(job.number, (text) => { said.textContent = text; }));
    said.textContent = "";
    look();
    if (run) location.href = runPath(run);
  }
  go.disabled = false;
}

const look = keepLooking(async () => {
  try {
    const found = await polled.read("/api/jobs");
    if (found) draw(found.jobs);
  } catch (error) {
    said.textContent = error.message;
  }
  return 3000;
});

function draw(jobs) {
  const lines = jobs.toReversed().map((job) =>
    element(
      "li",
      {},
      status(job.state),
      element("code", {}, job.what),
      element("span", { class: "quiet small" }, moment(job.asked)),
      job.run ? element("a", { href: runPath(job.run) }, job.run) : null,
      job.error ? element("span", { class: "wrong" }, job.error) : null,
    ),
  );
  replace(list, jobs.length ? element("ul", { class: "jobs" }, ...lines) : element("p", { class: "quiet" }, "Nothing yet."));
}
