// What can be done with runs, the same on every page: links, status, tags, group, start, stop and resume.

import { getJson, postJson } from "./api.js";
import { announce, attempt, button, element, labelled, toast } from "./dom.js";

export const runPath = (id) => `/run?run=${encodeURIComponent(id)}`;
export const apiPath = (id, rest = "") => `/api/run/${encodeURIComponent(id)}${rest}`;

const WORDS = {
  running: "trains now",
  finished: "done",
  stopped: "something asked it to stop",
  interrupted: "stopped by a signal, and saved",
  failed: "ended by an error",
  crashed: "its process is gone",
  created: "not begun",
};

export function status(word) {
  const known = Object.hasOwn(WORDS, word) ? word : "other";
  return element("span", { class: `status ${known}`, title: WORDS[word] ?? null }, element("i", { "aria-hidden": "true" }), word);
}

export function tagList(tags) {
  return element("span", { class: "tags" }, ...tags.map((tag) => element("span", { class: "tag" }, tag)));
}

// A dialog with fields; resolves to the form's values, or null where it was closed.
export function ask(title, fields, submit) {
  return new Promise((resolve) => {
    const wrong = element("p", { class: "wrong", role: "alert" });
    const form = element("form", { method: "dialog" }, element("h2", {}, title), ...fields, wrong);
    const dialog = element("dialog", { "aria-label": title }, form);
    const finish = (value) => {
      dialog.close();
      dialog.remove();
      resolve(value);
    };
    const ok = element("button", { type: "submit", class: "main" }, submit);
    form.append(element("div", { class: "buttons" }, button("Cancel", () => finish(null)), ok));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      finish(Object.fromEntries(new FormData(form)));
    });
    dialog.addEventListener("cancel", () => finish(null));
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("input, textarea, select")?.focus();
  });
}

export async function editTags(ids, have = []) {
  const only = ids.length === 1;
  const text = element("input", { name: "tags", value: only ? have.join(", ") : "", autocomplete: "off", spellcheck: "false" });
  const label = only ? "Tags, with commas between them" : `Tags to add to ${ids.length} runs, with commas between them`;
  const given = await ask("Tags", [labelled(label, text)], "Save");
  if (given === null) return false;
  const wanted = given.tags.split(",").map((tag) => tag.trim()).filter(Boolean);
  const add = wanted.filter((tag) => !only || !have.includes(tag));
  const remove = only ? have.filter((tag) => !wanted.includes(tag)) : [];
  for (const id of ids) {
    if ((await attempt(() => postJson(apiPath(id, "/tags"), { add, remove }))) === undefined) return false;
  }
  toast(only ? "Tags saved" : `Tags added to ${ids.length} runs`);
  return true;
}

export async function editGroup(ids, have = "", groups = []) {
  const options = element("datalist", { id: "known-groups" }, ...groups.map((group) => element("option", { value: group })));
  const text = element("input", { name: "group", value: have ?? "", list: "known-groups", autocomplete: "off", spellcheck: "false" });
  const label = `Group of ${ids.length === 1 ? "the run" : `${ids.length} runs`}; empty takes out of any`;
  const given = await ask("Group", [labelled(label, text), options], "Save");
  if (given === null) return false;
  for (const id of ids) {
    const group = given.group.trim() || null;
    if ((await attempt(() => postJson(apiPath(id, "/group"), { group }))) === undefined) return false;
  }
  toast("Group saved");
  return true;
}

export async function stopRun(id) {
  const sure = element("p", {}, `${id} saves itself at the end of its cycle and stops; resuming goes on exactly there.`);
  if ((await ask("Stop this run?", [sure], "Stop")) === null) return;
  if (await attempt(() => postJson(apiPath(id, "/stop")))) toast(`${id} was asked to stop`);
}

export async function resumeRun(id) {
  const words = element("input", { name: "words", autocomplete: "off", spellcheck: "false", placeholder: "training.total_steps=200000" });
  const given = await ask("Resume this run", [labelled("Settings to change from here on, if any", words)], "Resume");
  if (given === null) return;
  const job = await attempt(() => postJson(apiPath(id, "/resume"), { words: given.words }));
  if (job) await followJob(job.number, (text) => announce(text));
}

// Wait until a training that was asked for trains or has failed; `say` is told how it stands.
export async function followJob(numberOfJob, say) {
  const begun = Date.now();
  for (;;) {
    const { jobs } = await getJson("/api/jobs");
    const job = jobs.find((each) => each.number === numberOfJob);
    if (!job || job.state === "failed") {
      toast(job?.error ?? "it is not known any more", "wrong");
      say(job?.error ?? "");
      return null;
    }
    if (job.state === "running") {
      toast(`${job.run} trains`);
      return job.run;
    }
    say(`starting, ${Math.round((Date.now() - begun) / 1000)} s`);
    await new Promise((resolve) => setTimeout(resolve, 700));
  }
}
