// Charts of runs: one for each metric and environment, filled from the server, live, and drawn only while they are seen.

import { Polled, query } from "./api.js";
import { Chart } from "./chart.js";
import { element } from "./dom.js";
import { keepLooking } from "./layout.js";

export const AXES = [
  ["env_steps", "environment steps"],
  ["decisions", "decisions"],
  ["updates", "updates"],
  ["episodes", "episodes"],
  ["cycles", "cycles"],
  ["time", "seconds"],
];

// Lines as the server sends them: a header, then 64-bit numbers, column after column.
export async function decodeCurves(answer) {
  const data = await answer.arrayBuffer();
  const length = new DataView(data).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
  let offset = 4 + length + ((8 - ((4 + length) % 8)) % 8);
  for (const line of header.lines) {
    const columns = [];
    for (let number = 0; number < line.columns; number++) {
      columns.push(new Float64Array(data, offset, line.points));
      offset += 8 * line.points;
    }
    [line.x, line.y, line.low, line.high] = columns;
    // Seeds of one method have one colour in every environment.
    line.key = line.label.replace(`${line.environment}:`, "");
  }
  return header;
}

export class Panels {
  // options: container, selection() -> {run: [...]} or {filter: ...}, settings() -> {axis, by, band, smooth, logX, logY},
  // onKeys([...]) when lines have other keys, onError(text)
  constructor(options) {
    this.options = options;
    this.metrics = new Map();
    this.zooms = new Map();
    this.places = new Map();
    this.hidden = new Set();
    this.highlight = null;
    this.watcher = new IntersectionObserver((entries) => this.onSeen(entries), { rootMargin: "300px" });
    this.look = keepLooking(() => this.refresh());
    window.addEventListener("themechange", () => this.redraw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  show(names) {
    for (const [name, panel] of this.metrics) {
      if (!names.includes(name)) {
        this.watcher.unobserve(panel.section);
        panel.section.remove();
        this.metrics.delete(name);
      }
    }
    for (const name of names) {
      if (!this.metrics.has(name)) this.metrics.set(name, this.makePanel(name));
      this.options.container.append(this.metrics.get(name).section);
    }
    this.look();
  }

  makePanel(name) {
    const grid = element("div", { class: "charts" });
    const section = element("section", { class: "metric", "aria-label": name }, element("h2", {}, name), grid);
    const panel = { name, section, grid, charts: new Map(), polled: new Polled(decodeCurves), zoomed: new Map(), seen: false, lines: [] };
    section.dataset.metric = name;
    this.watcher.observe(section);
    return panel;
  }

  onSeen(entries) {
    for (const entry of entries) {
      const panel = this.metrics.get(entry.target.dataset.metric);
      if (panel) panel.seen = entry.isIntersecting;
    }
    if (entries.some((entry) => entry.isIntersecting)) this.look();
  }

  // Settings or the selection have changed: all is asked for anew.
  changed() {
    const { axis, logX, logY } = this.options.settings();
    if (axis !== this.axis) this.zooms.clear();
    this.axis = axis;
    for (const panel of this.metrics.values()) {
      for (const [environment, chart] of panel.charts) {
        chart.options.axisName = axisName(axis);
        chart.setView({ logX, logY, zoom: this.zooms.get(environment) ?? null });
      }
    }
    this.look();
  }

  async refresh() {
    let [pending, running] = [0, false];
    try {
      for (const panel of this.metrics.values()) {
        if (!panel.seen) continue;
        const header = await this.load(panel);
        pending = Math.max(pending, header.pending);
        if (pending) this.options.onError(`reading metrics: ${pending} runs to go`);
        running ||= header.running;
      }
      if (!pending) this.options.onError("");
    } catch (error) {
      this.options.onError(error.message);
      return 4000;
    }
    return pending ? 150 : running ? 1500 : 4000;
  }

  async load(panel) {
    const { axis, by, band, smooth } = this.options.settings();
    const asked = { ...this.options.selection(), metric: panel.name, axis, by, band, smooth: smooth || "", points: 700 };
    const found = await panel.polled.read(`/api/curves?${query(asked)}`);
    if (found) panel.header = found;
    let changed = found !== null;
    for (const [environment, zoom] of this.zooms) {
      if (!panel.charts.has(environment)) continue;
      if (!panel.zoomed.has(environment)) panel.zoomed.set(environment, new Polled(decodeCurves));
      const part = await panel.zoomed.get(environment).read(`/api/curves?${query({ ...asked, start: zoom[0], end: zoom[1] })}`);
      if (part) {
        panel.zoomed.get(environment).lines = part.lines.filter((line) => line.environment === environment);
        changed = true;
      }
    }
    if (changed) this.fill(panel);
    return panel.header;
  }

  fill(panel) {
    const environments = [...new Set(panel.header.lines.map((line) => line.environment))];
    for (const [environment, chart] of panel.charts) {
      if (!environments.includes(environment)) {
        chart.element.remove();
        panel.charts.delete(environment);
      }
    }
    this.colourLines(panel.header.lines);
    for (const environment of environments) {
      const lines = panel.header.lines.filter((line) => line.environment === environment);
      let chart = panel.charts.get(environment);
      if (!chart) {
        chart = this.makeChart(panel, environment);
        panel.charts.set(environment, chart);
        panel.grid.append(chart.element);
      }
      chart.whole = [Math.min(...lines.map((line) => line.x[0])), Math.max(...lines.map((line) => line.x[line.points - 1]))];
      const near = this.zooms.has(environment) ? panel.zoomed.get(environment)?.lines : null;
      if (near) this.colourLines(near);
      chart.setLines(near?.length ? near : lines);
    }
    panel.grid.classList.toggle("empty", environments.length === 0);
    // With one environment the metrics stand beside each other.
    this.options.container.classList.toggle("single", [...this.metrics.values()].every((each) => each.charts.size <= 1));
    if (!environments.length) panel.grid.textContent = panel.header.pending ? "reading …" : "no rows with this metric";
    else for (const node of [...panel.grid.childNodes]) if (node.nodeType === Node.TEXT_NODE) node.remove();
  }

  makeChart(panel, environment) {
    const { axis, logX, logY } = this.options.settings();
    const chart = new Chart({
      title: environment,
      axisName: axisName(axis),
      extent: () => chart.whole ?? [0, 1],
      onZoom: (zoom) => this.zoom(environment, zoom),
    });
    chart.setView({ logX, logY, zoom: this.zooms.get(environment) ?? null, hidden: this.hidden, highlight: this.highlight });
    return chart;
  }

  // All metrics of an environment show the same part of the axis.
  zoom(environment, zoom) {
    if (zoom) this.zooms.set(environment, zoom);
    else this.zooms.delete(environment);
    for (const panel of this.metrics.values()) {
      panel.charts.get(environment)?.setView({ zoom });
      if (!zoom && panel.zoomed.delete(environment) && panel.header) this.fill(panel);
    }
    clearTimeout(this.zooming);
    this.zooming = setTimeout(this.look, 150);
  }

  colourLines(lines) {
    const known = this.places.size;
    for (const line of lines) {
      if (!this.places.has(line.key)) this.places.set(line.key, this.places.size);
      line.place = this.places.get(line.key);
    }
    if (this.places.size !== known) this.options.onKeys?.();
  }

  forgetKeys() {
    this.places.clear();
    this.hidden.clear();
  }

  setHighlight(key) {
    this.highlight = key;
    for (const panel of this.metrics.values()) for (const chart of panel.charts.values()) chart.setView({ highlight: key });
  }

  redraw() {
    this.options.onKeys?.();
    for (const panel of this.metrics.values()) for (const chart of panel.charts.values()) chart.schedule();
  }
}

export const axisName = (axis) => AXES.find(([key]) => key === axis)?.[1] ?? axis;
