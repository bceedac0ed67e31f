// Lines along an episode on a canvas, with a cursor at the step that is shown. A click or a drag moves the cursor.

import { element } from "./dom.js";

export const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7a5195", "#8c8c8c"];
const HEIGHT = 120;
const MARGIN = { left: 46, right: 8, top: 8, bottom: 16 };

export class Chart {
  // `jump(step)` is called where somebody points at a step.
  constructor(title, jump) {
    this.jump = jump;
    this.series = [];
    this.length = 1;
    this.cursor = 0;
    this.canvas = element("canvas", { role: "img", "aria-label": title });
    this.legend = element("div", { class: "legend" });
    this.node = element("figure", { class: "chart" }, element("figcaption", {}, title, this.legend), this.canvas);
    const point = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const share = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
      this.jump(Math.round(Math.min(1, Math.max(0, share)) * (this.length - 1)));
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      point(event);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) point(event);
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    window.addEventListener("themechange", () => this.draw());
  }

  // Each series: {name, values: numbers or nulls, colour, dashed}.
  show(series, length) {
    this.series = series;
    this.length = Math.max(1, length);
    const keys = series.filter((line) => !line.dashed).map((line) => {
      const key = element("span", { class: "key" }, line.name);
      key.style.setProperty("--key", line.colour);
      return key;
    });
    if (series.some((line) => line.dashed)) keys.push(element("span", { class: "key dashed" }, "the other future"));
    this.legend.replaceChildren(...keys);
    this.draw();
  }

  moveTo(step) {
    this.cursor = step;
    this.draw();
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== HEIGHT * ratio) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = HEIGHT * ratio;
    }
    const pen = this.canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim() || "#888";
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, HEIGHT);
    const [low, high] = this.limits();
    const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
    const x = (step) => MARGIN.left + (this.length > 1 ? (step / (this.length - 1)) * inner.width : 0);
    const y = (value) => MARGIN.top + (1 - (value - low) / (high - low)) * inner.height;
    this.axes(pen, colour, low, high, y, width);
    for (const line of this.series) this.line(pen, line, x, y);
    pen.strokeStyle = colour("--ink");
    pen.lineWidth = 1;
    pen.setLineDash([]);
    pen.beginPath();
    pen.moveTo(x(this.cursor), MARGIN.top);
    pen.lineTo(x(this.cursor), HEIGHT - MARGIN.bottom);
    pen.stroke();
  }

  limits() {
    let low = Infinity;
    let high = -Infinity;
    for (const line of this.series) {
      for (const value of line.values) {
        if (value === null || value === undefined) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    if (low > high) return [0, 1];
    const margin = (high - low) * 0.06 || Math.abs(high) * 0.05 || 0.5;
    return [low - margin, high + margin];
  }

  axes(pen, colour, low, high, y, width) {
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colour("--quiet");
    pen.strokeStyle = colour("--line");
    pen.lineWidth = 1;
    pen.setLineDash([]);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const middle = (low + high) / 2;
    for (const value of [low + (high - low) * 0.06, middle, high - (high - low) * 0.06]) {
      pen.beginPath();
      pen.moveTo(MARGIN.left, y(value));
      pen.lineTo(width - MARGIN.right, y(value));
      pen.stroke();
      pen.fillText(short(value), MARGIN.left - 5, y(value));
    }
    pen.textBaseline = "alphabetic";
    pen.textAlign = "left";
    pen.fillText("0", MARGIN.left, HEIGHT - 3);
    pen.textAlign = "right";
    pen.fillText(String(this.length - 1), width - MARGIN.right, HEIGHT - 3);
  }

  line(pen, line, x, y) {
    pen.strokeStyle = line.colour;
    pen.lineWidth = line.dashed ? 1.2 : 1.6;
    pen.setLineDash(line.dashed ? [5, 3] : []);
    pen.beginPath();
    let drawing = false;
    line.values.forEach((value, step) => {
      if (value === null || value === undefined) {
        drawing = false;
      } else if (drawing) {
        pen.lineTo(x(step), y(value));
      } else {
        pen.moveTo(x(step), y(value));
        drawing = true;
      }
    });
    pen.stroke();
  }
}

export function short(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return value.toExponential(1);
  return value.toFixed(size >= 100 ? 1 : 3);
}
