// Driving a robot: commands go to the server a few steps at a time, and what came of them is drawn as it would happen.

import { postJson } from "./api.js";
import { announce, attempt, button, element } from "./dom.js";
import { bytes } from "./world_shapes.js";

const CHUNK = 5; // steps of a request
const AHEAD = 8; // steps that wait to be drawn: a command counts from the next ones on
const NAMES = ["forward", "sideways", "turn"];
const UNITS = { forward: "m/s", sideways: "m/s", turn: "rad/s" };
const KEYS = { w: [0, 1], s: [0, -1], a: [1, 1], d: [1, -1], q: [2, 1], e: [2, -1] };
const HELP = "w s: forward, back · a d: sideways · q e: turn · space: stand · r: begin again · x: stop";

export class Drive {
  // `draw(pose)` shows one moment, `begun(number)` and `done(number)` are told of the future that this makes.
  constructor({ draw, begun, done }) {
    Object.assign(this, { draw, begun, done, running: null });
    this.title = element("h2", {}, "Drive");
    this.start = button("Drive", () => attempt(() => this.begin()), { class: "main", id: "drive" });
    this.stand = button("Stand", () => this.ask([0, 0, 0]), { id: "stand" });
    this.again = button("Begin again", () => attempt(() => this.beginAgain()), { id: "drive-again" });
    this.end = button("Stop", () => this.stop(), { id: "drive-stop" });
    this.told = element("p", { class: "quiet", role: "status" });
    this.sliders = NAMES.map((name, axis) =>
      element("input", {
        type: "range",
        id: `drive-${name}`,
        step: "any",
        "aria-label": `${name}, ${UNITS[name]}`,
        input: () => this.ask(this.sliders.map((slider) => Number(slider.value)), axis),
      }),
    );
    this.asked = NAMES.map(() => element("output", {}));
    this.does = NAMES.map(() => element("output", {}));
    const rows = NAMES.map((name, axis) =>
      element("div", { class: "axis" }, element("span", {}, `${name}, ${UNITS[name]}`), this.sliders[axis], this.asked[axis], this.does[axis]),
    );
    this.axes = element("div", { class: "axes" }, ...rows);
    this.node = element(
      "section",
      { class: "drive", "aria-label": "Drive", hidden: true },
      this.title,
      element("div", { class: "go" }, this.start, this.stand, this.again, this.end),
      this.axes,
      this.told,
      element("p", { class: "quiet" }, HELP),
    );
    document.addEventListener("keydown", (event) => this.key(event), true);
  }

  show(facts, session) {
    this.stop();
    Object.assign(this, { world: facts.drive, session });
    this.node.hidden = !facts.drive;
    if (!facts.drive) return;
    NAMES.forEach((name, axis) => {
      const [low, high] = facts.drive.ranges[name];
      Object.assign(this.sliders[axis], { min: Math.min(low, 0), max: Math.max(high, 0), disabled: low === high && low === 0 });
    });
    this.ask([0, 0, 0]);
    this.busy(false);
  }

  // Where a drive would begin: the recording on the left, at the step that is shown.
  moveTo(number, step) {
    if (this.running) return;
    Object.assign(this, { from: number, step });
    this.start.textContent = `Drive from step ${step}`;
  }

  get isDriving() {
    return this.running !== null;
  }

  async begin() {
    this.stop();
    const { number } = await postJson(`/api/inspect/${this.session}/${this.from}/drive`, { step: this.step });
    const running = { number, poses: [], began: null, shown: 0 };
    this.running = running;
    this.ask([0, 0, 0]);
    this.busy(true);
    this.told.textContent = "";
    this.begun(number);
    announce("driving");
    this.sliders[0].focus({ preventScroll: true });
    requestAnimationFrame((now) => this.play(running, now));
    await this.fetch(running);
  }

  async beginAgain() {
    const { from, step } = this;
    await this.stop();
    Object.assign(this, { from, step });
    await this.begin();
  }

  async stop() {
    const { running } = this;
    if (!running) return;
    this.running = null;
    this.busy(false);
    await running.asking?.catch(() => undefined);
    if (running.ending === undefined) running.ending = "stopped";
    await this.done(running.number, running.steps);
  }

  ask(command, axis = null) {
    this.command = command.map((value, each) => this.limited(each, value));
    const still = axis === null ? NAMES.keys() : [];
    for (const each of still) this.sliders[each].value = String(this.command[each]);
    this.asked.forEach((output, each) => (output.textContent = signed(this.command[each])));
  }

  limited(axis, value) {
    const { min, max } = this.sliders[axis];
    return Math.min(Math.max(value, Number(min)), Number(max));
  }

  // ---- requests, and what is drawn of their answers ---------------------------------------------------------------------

  async fetch(running) {
    const size = this.world.shapes * 7;
    while (this.running === running) {
      if (running.poses.length - running.shown > AHEAD) {
        await new Promise((resolve) => setTimeout(resolve, 10));
        continue;
      }
      running.asking = postJson(`/api/inspect/${this.session}/${running.number}/steer`, { command: this.command, steps: CHUNK });
      const told = await running.asking.catch((error) => ({ error }));
      if (this.running !== running) return;
      if (told.error) {
        this.told.textContent = told.error.message;
        await this.stop();
        return;
      }
      const poses = new Float32Array(bytes(told.poses));
      for (let start = 0; start < poses.length; start += size) running.poses.push(poses.subarray(start, start + size));
      this.does.forEach((output, axis) => (output.textContent = `does ${signed(told.velocity[axis])}`));
      running.ending = told.ending;
      if (told.ending !== "max steps" || !poses.length) {
        await this.playOut(running);
        this.told.textContent = told.ending === "terminated" ? "It fell. r begins again." : `The drive ended: ${told.ending}.`;
        await this.stop();
        return;
      }
    }
  }

  async playOut(running) {
    while (this.running === running && running.shown < running.poses.length - 1) await new Promise((resolve) => setTimeout(resolve, 20));
  }

  play(running, now) {
    if (this.running !== running) return;
    requestAnimationFrame((next) => this.play(running, next));
    if (!running.poses.length) return;
    const step = 1000 * this.world.seconds_per_step;
    running.began ??= now;
    const due = Math.floor((now - running.began) / step);
    if (due >= running.poses.length) running.began = now - (running.poses.length - 1) * step; // time that was lost is not made up for
    running.shown = Math.min(due, running.poses.length - 1);
    this.draw(running.poses[running.shown]);
  }

  busy(drives) {
    this.start.disabled = drives;
    for (const each of [this.stand, this.again, this.end]) each.disabled = !drives;
    this.node.classList.toggle("driving", drives);
  }

  key(event) {
    if (!this.isDriving || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=range]), select, textarea")) return;
    const name = event.key.toLowerCase();
    if (KEYS[name]) {
      const [axis, way] = KEYS[name];
      const command = [...this.command];
      command[axis] = Math.round(1e6 * (command[axis] + way * this.world.presses[NAMES[axis]])) / 1e6;
      this.ask(command);
    } else if (event.key === " ") this.ask([0, 0, 0]);
    else if (name === "r") attempt(() => this.beginAgain());
    else if (name === "x" || event.key === "Escape") this.stop();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
