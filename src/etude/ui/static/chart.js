// A chart on canvas: lines and bands, hover, zoom by dragging, pan, and the same by keys and buttons.
//
// Two canvases lie over each other: lines are drawn when they change, the cross and the zoom box with every move of the pointer.

import { colour, dashes } from "./colours.js";
import { announce, button, element, replace } from "./dom.js";
import { number, short } from "./format.js";
import { Scale, placeBefore } from "./scales.js";

const MARGIN = { left: 54, right: 12, top: 8, bottom: 24 };
const MOST_IN_TIP = 10;
const SMALLEST_DRAG = 6;

export class Chart {
  // options: title, axisName, onZoom([start, end] or null)
  constructor(options) {
    this.options = options;
    this.lines = [];
    this.view = { logX: false, logY: false, zoom: null, hidden: new Set(), highlight: null };
    this.cursor = null;
    this.drag = null;
    this.base = element("canvas", { "aria-hidden": "true" });
    this.over = element("canvas", { class: "over", tabindex: "0", role: "img" });
    this.tip = element("div", { class: "tip", hidden: true });
    this.note = element("p", { class: "chart-note quiet" });
    this.stage = element("div", { class: "stage" }, this.base, this.over, this.tip, this.note);
    const tools = element(
      "div",
      { class: "chart-tools" },
      button("+", () => this.zoomBy(0.5), { "aria-label": `Zoom in on ${options.title}`, title: "Zoom in (+)" }),
      button("−", () => this.zoomBy(2), { "aria-label": `Zoom out of ${options.title}`, title: "Zoom out (−)" }),
      button("◂", () => this.pan(-0.25), { "aria-label": `Move ${options.title} to the left`, title: "Left (Shift + ←)" }),
      button("▸", () => this.pan(0.25), { "aria-label": `Move ${options.title} to the right`, title: "Right (Shift + →)" }),
      button("⟲", () => this.zoomTo(null), { "aria-label": `Show all of ${options.title}`, title: "Show all (0)" }),
    );
    this.element = element(
      "figure",
      { class: "chart" },
      element("figcaption", {}, element("span", { class: "chart-title" }, options.title), tools),
      this.stage,
    );
    this.over.addEventListener("pointermove", (event) => this.onMove(event));
    this.over.addEventListener("pointerleave", () => this.leave());
    this.over.addEventListener("pointerdown", (event) => this.onDown(event));
    this.over.addEventListener("pointerup", (event) => this.onUp(event));
    this.over.addEventListener("pointercancel", () => { this.drag = null; this.drawOver(); });
    this.over.addEventListener("dblclick", () => this.zoomTo(null));
    this.over.addEventListener("keydown", (event) => this.onKey(event));
    this.over.addEventListener("blur", () => this.leave());
    new ResizeObserver(() => this.resize()).observe(this.stage);
  }

  // lines: [{key, label, place, x, y, low?, high?, runs, run?}], `place` chooses the colour.
  setLines(lines) {
    this.lines = lines;
    this.note.textContent = "";
    this.describe();
    this.schedule();
  }

  say(text) {
    this.note.textContent = text;
  }

  setView(view) {
    Object.assign(this.view, view);
    this.schedule();
  }

  describe() {
    const parts = this.shown().slice(0, 6).map((line) => `${line.label} ${number(line.y.at(-1))}`);
    const more = this.shown().length > 6 ? ` and ${this.shown().length - 6} more lines` : "";
    const keys = "Arrow keys read values, plus and minus zoom, Shift and arrows move, 0 shows all.";
    this.over.setAttribute("aria-label", `${this.options.title} over ${this.options.axisName}. Last values: ${parts.join(", ") || "none"}${more}. ${keys}`);
  }

  shown() {
    return this.lines.filter((line) => line.x.length && !this.view.hidden.has(line.key));
  }

  resize() {
    const { clientWidth, clientHeight } = this.stage;
    if (!clientWidth || !clientHeight) return;
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.base, this.over]) {
      canvas.width = Math.round(clientWidth * ratio);
      canvas.height = Math.round(clientHeight * ratio);
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.width = clientWidth;
    this.height = clientHeight;
    this.draw();
  }

  schedule() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  makeScales() {
    const lines = this.shown();
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    const zoom = this.view.zoom;
    for (const line of lines) {
      x0 = Math.min(x0, line.x[0]);
      x1 = Math.max(x1, line.x[line.x.length - 1]);
    }
    this.extent = [x0, x1];
    if (zoom) [x0, x1] = zoom;
    for (const { x, y, low, high } of lines) {
      const first = Math.max(0, placeBefore(x, x0));
      const last = Math.min(x.length - 1, placeBefore(x, x1) + 1);
      for (let place = first; place <= last; place++) {
        const below = low ? low[place] : y[place];
        const above = high ? high[place] : y[place];
        if (below < y0 && !(this.view.logY && below <= 0)) y0 = below;
        if (above > y1) y1 = above;
      }
    }
    if (!(x1 >= x0)) [x0, x1] = [0, 1];
    if (!(y1 >= y0)) [y0, y1] = [0, 1];
    const log = this.view.logY && y1 > 0;
    const room = log ? 0 : (y1 - y0) * 0.05;
    this.x = new Scale(x0, x1, MARGIN.left, this.width - MARGIN.right, this.view.logX);
    this.y = new Scale(y0 - room, y1 + room, this.height - MARGIN.bottom, MARGIN.top, log);
  }

  draw() {
    if (!this.width) return;
    const paper = this.base.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const ink = (name) => style.getPropertyValue(name).trim();
    this.makeScales();
    paper.clearRect(0, 0, this.width, this.height);
    this.drawAxes(paper, ink);
    paper.save();
    paper.beginPath();
    paper.rect(MARGIN.left, MARGIN.top, this.width - MARGIN.left - MARGIN.right, this.height - MARGIN.top - MARGIN.bottom);
    paper.clip();
    const lines = this.shown();
    const bands = lines.filter((line) => line.low);
    for (const line of bands) this.drawBand(paper, line, bands.length > 4 ? 0.09 : 0.16);
    for (const line of lines) this.drawLine(paper, line, lines.length);
    paper.restore();
    this.drawOver();
  }

  drawAxes(paper, ink) {
    paper.font = "11px system-ui, sans-serif";
    paper.lineWidth = 1;
    paper.fillStyle = ink("--quiet");
    paper.strokeStyle = ink("--line");
    paper.textAlign = "right";
    paper.textBaseline = "middle";
    for (const tick of this.y.ticks(Math.max(2, Math.floor(this.height / 45)))) {
      const y = Math.round(this.y.at(tick)) + 0.5;
      paper.beginPath();
      paper.moveTo(MARGIN.left, y);
      paper.lineTo(this.width - MARGIN.right, y);
      paper.stroke();
      paper.fillText(short(tick), MARGIN.left - 6, y);
    }
    paper.textAlign = "center";
    paper.textBaseline = "top";
    const bottom = this.height - MARGIN.bottom;
    for (const tick of this.x.ticks(Math.max(2, Math.floor(this.width / 90)))) {
      const x = this.x.at(tick);
      paper.beginPath();
      paper.moveTo(Math.round(x) + 0.5, bottom);
      paper.lineTo(Math.round(x) + 0.5, bottom + 4);
      paper.stroke();
      paper.fillText(short(tick), Math.min(x, this.width - 16), bottom + 7);
    }
  }

  faded(line) {
    return this.view.highlight !== null && this.view.highlight !== line.key;
  }

  drawBand(paper, { x, low, high, place, key }, opacity) {
    paper.globalAlpha = this.faded({ key }) ? 0.03 : this.view.highlight === key ? 0.2 : opacity;
    paper.fillStyle = colour(place);
    paper.beginPath();
    for (let at = 0; at < x.length; at++) paper.lineTo(this.x.at(x[at]), this.y.at(high[at]));
    for (let at = x.length - 1; at >= 0; at--) paper.lineTo(this.x.at(x[at]), this.y.at(Math.max(low[at], this.y.log ? this.y.low : -Infinity)));
    paper.fill();
    paper.globalAlpha = 1;
  }

  drawLine(paper, line, count) {
    const { x, y } = line;
    paper.globalAlpha = this.faded(line) ? 0.12 : count > 40 ? 0.55 : 0.95;
    paper.strokeStyle = colour(line.place);
    paper.lineWidth = this.view.highlight === line.key ? 2.2 : count > 40 ? 1 : 1.6;
    paper.setLineDash(dashes(line.place));
    paper.lineJoin = "round";
    paper.beginPath();
    const first = Math.max(0, placeBefore(x, this.x.low) - 1);
    const last = Math.min(x.length - 1, placeBefore(x, this.x.high) + 1);
    for (let at = first; at <= last; at++) paper.lineTo(this.x.at(x[at]), this.y.at(y[at]));
    paper.stroke();
    if (first === last) {
      paper.fillStyle = colour(line.place);
      paper.fillRect(this.x.at(x[first]) - 2, this.y.at(y[first]) - 2, 4, 4);
    }
    paper.setLineDash([]);
    paper.globalAlpha = 1;
  }

  drawOver() {
    if (!this.width) return;
    const paper = this.over.getContext("2d");
    paper.clearRect(0, 0, this.width, this.height);
    const style = getComputedStyle(document.documentElement);
    const [top, bottom] = [MARGIN.top, this.height - MARGIN.bottom];
    if (this.drag) {
      paper.fillStyle = style.getPropertyValue("--accent").trim();
      paper.globalAlpha = 0.18;
      paper.fillRect(Math.min(this.drag.from, this.drag.to), top, Math.abs(this.drag.to - this.drag.from), bottom - top);
      paper.globalAlpha = 1;
    }
    if (this.cursor === null || !this.x) {
      this.tip.hidden = true;
      return;
    }
    const x = this.x.at(this.cursor);
    paper.strokeStyle = style.getPropertyValue("--strong-line").trim();
    paper.beginPath();
    paper.moveTo(x, top);
    paper.lineTo(x, bottom);
    paper.stroke();
    const values = this.valuesAt(this.cursor);
    for (const { line, y } of values) {
      paper.fillStyle = colour(line.place);
      paper.beginPath();
      paper.arc(x, this.y.at(y), 3, 0, 7);
      paper.fill();
    }
    this.showTip(values, x);
  }

  valuesAt(position) {
    const found = [];
    for (const line of this.shown()) {
      const at = placeBefore(line.x, position);
      if (at < 0 || (at === line.x.length - 1 && position > line.x[at] + (this.x.high - this.x.low) * 0.01)) continue;
      const next = Math.min(at + 1, line.x.length - 1);
      const share = next > at ? (position - line.x[at]) / (line.x[next] - line.x[at]) : 0;
      const mix = (values) => values[at] + share * (values[next] - values[at]);
      found.push({ line, y: mix(line.y), low: line.low && mix(line.low), high: line.high && mix(line.high) });
    }
    return found.sort((one, other) => other.y - one.y);
  }

  showTip(values, x) {
    const rows = values.slice(0, MOST_IN_TIP).map(({ line, y, low, high }) =>
      element(
        "div",
        {},
        element("i", { class: "swatch", style: { background: colour(line.place) } }),
        element("span", { class: "tip-name" }, line.run && line.runs === 1 ? `${line.label} · seed ${line.seed ?? "–"}` : line.label),
        element("b", {}, number(y)),
        low === undefined ? null : element("span", { class: "quiet" }, `${number(low, 3)} … ${number(high, 3)}`),
      ),
    );
    if (values.length > MOST_IN_TIP) rows.push(element("div", { class: "quiet" }, `and ${values.length - MOST_IN_TIP} more`));
    replace(this.tip, element("div", { class: "quiet" }, `${short(this.cursor)} ${this.options.axisName}`), ...rows);
    this.tip.hidden = values.length === 0;
    const left = x > this.width / 2 ? x - this.tip.offsetWidth - 14 : x + 14;
    this.tip.style.left = `${Math.max(2, Math.min(left, this.width - this.tip.offsetWidth - 2))}px`;
  }

  onMove(event) {
    const x = event.offsetX;
    if (this.drag) {
      if (this.drag.pans) {
        const [low, high] = this.drag.zoom;
        const moved = this.x.log ? 0 : ((this.drag.from - x) / (this.width - MARGIN.left - MARGIN.right)) * (high - low);
        this.zoomTo([low + moved, high + moved]);
        return;
      }
      this.drag.to = Math.max(MARGIN.left, Math.min(x, this.width - MARGIN.right));
    }
    this.cursor = x >= MARGIN.left && x <= this.width - MARGIN.right && this.x ? this.x.back(x) : null;
    this.drawOver();
  }

  onDown(event) {
    if (event.button !== 0 || !this.x || event.pointerType === "touch") return;
    this.over.setPointerCapture(event.pointerId);
    const pans = event.shiftKey;
    this.drag = { from: event.offsetX, to: event.offsetX, pans, zoom: [this.x.low, this.x.high] };
  }

  onUp() {
    const drag = this.drag;
    this.drag = null;
    if (!drag || drag.pans) return;
    if (Math.abs(drag.to - drag.from) >= SMALLEST_DRAG) {
      this.zoomTo([this.x.back(Math.min(drag.from, drag.to)), this.x.back(Math.max(drag.from, drag.to))]);
    }
    this.drawOver();
  }

  onKey(event) {
    if (!this.x) return;
    const side = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (side && event.shiftKey) this.pan(side * 0.2);
    else if (side) this.moveCursor(side);
    else if (event.key === "+" || event.key === "=") this.zoomBy(0.5);
    else if (event.key === "-") this.zoomBy(2);
    else if (event.key === "0") this.zoomTo(null);
    else if (event.key === "Escape") this.leave();
    else return;
    event.preventDefault();
  }

  moveCursor(side) {
    const place = this.x.at(this.cursor ?? this.x.back((this.x.from + this.x.to) / 2));
    const moved = Math.max(this.x.from, Math.min(this.x.to, place + side * (this.x.to - this.x.from) * 0.02));
    this.cursor = this.x.back(moved);
    this.drawOver();
    const said = this.valuesAt(this.cursor).slice(0, 4).map(({ line, y }) => `${line.label} ${number(y)}`);
    announce(`${short(this.cursor)} ${this.options.axisName}: ${said.join(", ")}`);
  }

  zoomBy(factor) {
    if (!this.x) return;
    const middle = (this.x.from + this.x.to) / 2;
    const half = ((this.x.to - this.x.from) / 2) * factor;
    const wanted = [this.x.back(middle - half), this.x.back(middle + half)];
    const wide = this.view.zoom && wanted[0] <= this.options.extent()[0] && wanted[1] >= this.options.extent()[1];
    this.zoomTo(factor > 1 && (wide || !this.view.zoom) ? null : wanted);
  }

  pan(share) {
    if (!this.x || !this.view.zoom) return;
    const moved = (this.x.to - this.x.from) * share;
    this.zoomTo([this.x.back(this.x.from + moved), this.x.back(this.x.to + moved)]);
  }

  zoomTo(zoom) {
    this.view.zoom = zoom;
    this.schedule();
    this.options.onZoom(zoom);
  }

  leave() {
    this.cursor = null;
    this.drawOver();
  }
}
