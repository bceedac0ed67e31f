"use strict";
// Everything from the runs goes in by textContent and setAttribute: a name is never read as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const control = Object.fromEntries(["metric", "smooth", "log", "seeds"].map((id) => [id, document.getElementById(id)]));
const hidden = new Set(); // methods
const margin = { left: 64, right: 20, top: 28, bottom: 44 };
const mostSeedsInATip = 12;
const panels = [];

function element(name, attributes = {}, text = null) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function shape(name, attributes = {}, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(digits - 1);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

function short(value) {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return Number((value / size).toPrecision(4)) + letter;
  }
  return String(Number(value.toPrecision(4)));
}

function ticks(low, high, about) {
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n++) found.push(n * step);
  return found;
}

function swatch(group) {
  const made = shape("svg", { class: "swatch", viewBox: "0 0 26 10", "aria-hidden": "true" });
  made.append(shape("line", { x1: 1, x2: 25, y1: 5, y2: 5, stroke: group.colour, "stroke-width": 3, "stroke-dasharray": group.dashes }));
  return made;
}

// Powers of ten within the range, and their halves and doubles where these are few.
function logTicks(low, high) {
  const found = [];
  const few = Math.log10(high / low) < 3;
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of few ? [1, 2, 5] : [1]) found.push(factor * 10 ** power);
  }
  const inside = found.filter((value) => value >= low && value <= high);
  return inside.length > 1 ? inside : ticks(low, high, 4).filter((value) => value > 0);
}

// The mean over a centred window that is cut on both sides alike near the ends.
function smoothed(x, values, width) {
  if (width <= 0) return values;
  return values.map((value, here) => {
    if (value === null) return null;
    let sum = value, count = 1;
    for (let reach = 1; here - reach >= 0 && here + reach < x.length; reach++) {
      const before = here - reach, after = here + reach;
      if (x[here] - x[before] > width / 2 || x[after] - x[here] > width / 2) break;
      if (values[before] === null || values[after] === null) break;
      sum += values[before] + values[after];
      count += 2;
    }
    return sum / count;
  });
}

function path(points) {
  let text = "", drawing = false;
  for (const point of points) {
    if (point === null) { drawing = false; continue; }
    text += `${drawing ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    drawing = true;
  }
  return text;
}

function bandPath(curve, across, up) {
  let text = "", upper = [], lower = [];
  const close = () => {
    if (upper.length > 1) text += path([...upper, ...lower.reverse()]) + "Z";
    upper = [];
    lower = [];
  };
  curve.x.forEach((x, n) => {
    if (curve.low[n] === null) return close();
    upper.push([across(x), up(curve.high[n])]);
    lower.push([across(x), up(curve.low[n])]);
  });
  close();
  return text;
}

// The curves of one environment, with values that can't be shown on a logarithmic axis left out.
function visibleCurves(environment) {
  const all = data.curves[control.metric.value];
  const here = data.groups.map((group, index) => ({ group, curve: all[index] })).filter(({ group }) => group.environment === environment);
  const width = Number(control.smooth.value) * Math.max(0, ...here.flatMap(({ curve }) => curve.x));
  const shown = (x, values) => {
    const even = smoothed(x, values, width);
    return control.log.checked ? even.map((value) => (value !== null && value > 0 ? value : null)) : even;
  };
  return here.flatMap(({ group, curve }) => {
    if (hidden.has(group.method) || curve.x.length === 0) return [];
    const lines = {};
    for (const name of ["value", "low", "high"]) lines[name] = shown(curve.x, curve[name]);
    // A band whose lower end is at or below 0 has no place on a logarithmic axis.
    lines.high = lines.high.map((value, n) => (lines.low[n] === null ? null : value));
    const seeds = control.seeds.checked && group.runs > 1 ? curve.seeds : [];
    const each = seeds.map((seed) => ({ ...seed, group, value: shown(seed.x, seed.value) }));
    return [{ group, x: curve.x, runs: curve.runs, seeds: each, ...lines }];
  });
}

function scales(curves, width, height) {
  const values = curves
    .flatMap((curve) => [...curve.value, ...curve.low, ...curve.high, ...curve.seeds.flatMap((seed) => seed.value)])
    .filter((value) => value !== null);
  if (values.length === 0) return null;
  let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  const end = Math.max(...curves.flatMap((curve) => curve.x)) || 1;
  const across = (x) => margin.left + (x / end) * (width - margin.left - margin.right);
  const inner = height - margin.top - margin.bottom;
  if (control.log.checked) {
    const room = high > low ? (high / low) ** 0.04 : 1.5;
    low /= room;
    high *= room;
    const up = (y) => height - margin.bottom - (Math.log(y / low) / Math.log(high / low)) * inner;
    return { across, up, end, rows: logTicks(low, high) };
  }
  const room = (high - low || Math.abs(high) || 1) * 0.04;
  low -= room;
  high += room;
  const up = (y) => height - margin.bottom - ((y - low) / (high - low)) * inner;
  return { across, up, end, rows: ticks(low, high, 6) };
}

function line(curve, { across, up }, style) {
  const points = curve.x.map((x, n) => (curve.value[n] === null ? null : [across(x), up(curve.value[n])]));
  const look = { fill: "none", stroke: curve.group.colour, "stroke-dasharray": curve.group.dashes, "stroke-linejoin": "round" };
  return shape("path", { ...look, ...style, d: path(points) });
}

function draw(panel) {
  const chart = panel.chart;
  const curves = visibleCurves(panel.environment);
  const width = chart.clientWidth, height = chart.clientHeight;
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.replaceChildren();
  const title = data.environments.length > 1 ? `${control.metric.value} · ${panel.environment}` : control.metric.value;
  chart.append(shape("text", { x: 4, y: 14, class: "name" }, title));
  panel.scene = null;
  const scale = scales(curves, width, height);
  if (scale === null) {
    const why = control.log.checked ? "nothing above 0 to show on a logarithmic scale" : "nothing to show";
    chart.append(shape("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, why));
    return;
  }
  const { across, up, end } = scale;
  const bottom = height - margin.bottom;
  for (const y of scale.rows) {
    chart.append(shape("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: up(y), y2: up(y) }));
    chart.append(shape("text", { x: margin.left - 8, y: up(y) + 4, "text-anchor": "end" }, short(y)));
  }
  for (const x of ticks(0, end, Math.max(2, width / 120))) {
    chart.append(shape("line", { class: "grid", x1: across(x), x2: across(x), y1: margin.top, y2: bottom }));
    chart.append(shape("text", { x: across(x), y: bottom + 18, "text-anchor": "middle" }, short(x)));
  }
  chart.append(shape("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: bottom, y2: bottom }));
  chart.append(shape("text", { x: (margin.left + width) / 2, y: height - 6, "text-anchor": "middle" }, data.axis));
  for (const curve of curves) {
    chart.append(shape("path", { d: bandPath(curve, across, up), fill: curve.group.colour, "fill-opacity": 0.18 }));
  }
  for (const seed of curves.flatMap((curve) => curve.seeds)) {
    chart.append(line(seed, scale, { "stroke-width": 1, "stroke-opacity": 0.55, "stroke-dasharray": "" }));
  }
  for (const curve of curves) {
    const full = curve.runs.map((runs) => runs === curve.group.runs);
    const only = (keep) => ({ ...curve, value: curve.value.map((value, n) => (keep(n) ? value : null)) });
    const alone = (n) => full[n] && full[n - 1] !== false && full[n + 1] !== false;
    chart.append(line(only((n) => !alone(n)), scale, { "stroke-width": 1, "stroke-opacity": 0.8 }));
    chart.append(line(only((n) => full[n]), scale, { "stroke-width": 2.25 }));
    if (curve.x.length === 1 && curve.value[0] !== null) {
      chart.append(shape("circle", { cx: across(curve.x[0]), cy: up(curve.value[0]), r: 4, fill: curve.group.colour }));
    }
  }
  const cross = shape("line", { class: "cross", y1: margin.top, y2: bottom, visibility: "hidden" });
  chart.append(cross);
  panel.scene = { curves, across, up, end, width, cross, dots: [] };
}

function drawAll() {
  panels.forEach((panel) => { leave(panel); draw(panel); });
}

function nearest(curve, x) {
  let low = 0, high = curve.x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (curve.x[middle] <= x) low = middle; else high = middle;
  }
  return Math.abs(curve.x[low] - x) <= Math.abs(curve.x[high] - x) ? low : high;
}

function leave(panel) {
  panel.tip.hidden = true;
  if (panel.scene === null) return;
  panel.scene.cross.setAttribute("visibility", "hidden");
  panel.scene.dots.forEach((dot) => dot.remove());
  panel.scene.dots = [];
}

function tipRow(group, value, text) {
  const row = element("div");
  row.append(swatch(group), element("strong", {}, number(value)), element("span", { class: "range" }, text));
  return row;
}

function hover(panel, event) {
  const { scene, tip, chart } = panel;
  if (scene === null) return;
  leave(panel);
  const left = event.clientX - chart.getBoundingClientRect().left;
  const x = ((left - margin.left) / (scene.width - margin.left - margin.right)) * scene.end;
  if (x < 0 || x > scene.end * 1.01) return;
  const rows = scene.curves.map((curve) => ({ curve, n: nearest(curve, x) }));
  // What lies at other positions than the nearest one (a run that has ended) is not shown as if it were here.
  const at = rows.map(({ curve, n }) => curve.x[n]).reduce((a, b) => (Math.abs(b - x) < Math.abs(a - x) ? b : a));
  const near = (curve, n) => curve.value[n] !== null && Math.abs(curve.x[n] - at) <= scene.end * 0.03;
  const here = rows.filter(({ curve, n }) => near(curve, n));
  here.sort((a, b) => b.curve.value[b.n] - a.curve.value[a.n]);
  tip.replaceChildren(element("div", {}, `${number(at, 6)} ${data.axis}`));
  for (const { curve, n } of here) {
    const range = curve.low[n] === null || curve.high[n] === null ? "" : `[${number(curve.low[n])}, ${number(curve.high[n])}] `;
    const fewer = curve.runs[n] === curve.group.runs ? "" : ` (${curve.runs[n]} of ${curve.group.runs} runs)`;
    tip.append(tipRow(curve.group, curve.value[n], range + curve.group.label + fewer));
    const dot = shape("circle", { cx: scene.across(curve.x[n]), cy: scene.up(curve.value[n]), r: 4, fill: curve.group.colour });
    chart.append(dot);
    scene.dots.push(dot);
  }
  const seeds = here.flatMap(({ curve }) => curve.seeds).map((seed) => ({ seed, n: nearest(seed, at) })).filter(({ seed, n }) => near(seed, n));
  for (const { seed, n } of seeds.slice(0, mostSeedsInATip)) tip.append(tipRow(seed.group, seed.value[n], seed.id));
  if (seeds.length > mostSeedsInATip) tip.append(element("div", { class: "range" }, `and ${seeds.length - mostSeedsInATip} more runs`));
  scene.cross.setAttribute("x1", scene.across(at));
  scene.cross.setAttribute("x2", scene.across(at));
  scene.cross.setAttribute("visibility", "visible");
  tip.hidden = false;
  const place = scene.across(at) + 14;
  tip.style.left = `${place + tip.offsetWidth > scene.width ? Math.max(0, place - tip.offsetWidth - 28) : place}px`;
}

function table(parent, title, heading, rows, words = false) {
  if (rows.length === 0) return;
  parent.append(element("h2", {}, title));
  const made = element("table", words ? { class: "words" } : {});
  const head = made.createTHead().insertRow();
  heading.forEach((cell) => head.append(element("th", {}, cell)));
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const cell of row) {
      const place = line.insertCell();
      if (cell !== null && typeof cell === "object") {
        place.append(swatch(cell), document.createTextNode(`${cell.letter}  ${cell.label}`));
      } else {
        place.textContent = cell;
      }
    }
  }
  const scroll = element("div", { class: "scroll" });
  scroll.append(made);
  parent.append(scroll);
}

function interval(found, name) {
  return found[`${name}_low`] === null ? "–" : `[${number(found[`${name}_low`])}, ${number(found[`${name}_high`])}]`;
}

function tables() {
  const parent = document.getElementById("tables");
  parent.replaceChildren();
  const metric = control.metric.value;
  const byLetter = Object.fromEntries(data.groups.map((group) => [group.letter, group]));
  const results = data.results.filter((found) => found.metric === metric);
  const best = results.some((found) => found.best_is === "min") ? "Lowest" : "Highest";
  table(
    parent,
    `${metric}: the last values`,
    ["Group", "Runs", "Seeds", "Steps", "Time", "Mean", "95% CI", "IQM", "95% CI", "Std", "Min", "Max", `${best} ever`],
    results.map((found) => {
      const group = byLetter[found.group];
      const cells = [number(found.mean), interval(found, "mean"), number(found.iqm), interval(found, "iqm")];
      const spread = [number(found.std), number(found.min), number(found.max), number(found.best)];
      return [group, group.runs, group.seeds, group.steps, group.time, ...cells, ...spread];
    }),
  );
  table(
    parent,
    "The chance that a run of one is higher than a run of the other",
    ["One", "The other", "P", "95% CI"],
    data.improvements
      .filter((found) => found.metric === metric)
      .map((found) => [found.first, found.second, number(found.probability, 3), interval(found, "probability")]),
    true,
  );
  const letters = data.groups.map((group) => group.letter);
  table(
    parent,
    "Settings that differ",
    ["Setting", ...letters],
    Object.entries(data.settings).map(([key, values]) => [key, ...letters.map((letter) => values[letter])]),
    true,
  );
  const last = Object.assign({}, ...results.map((found) => found.values));
  table(
    parent,
    "Runs",
    ["Group", "Run", "Seed", "Status", "Steps", metric],
    data.runs.map((run) => [byLetter[run.group], run.id, run.seed ?? "–", run.status, number(run.env_steps, 12), number(last[run.id])]),
    true,
  );
  if (data.notes.length > 0) parent.append(element("h2", {}, "Notes"));
  data.notes.forEach((note) => parent.append(element("p", { class: "note" }, note)));
}

function makeLegend() {
  const legend = document.getElementById("legend");
  const first = new Map();
  data.groups.forEach((group) => { if (!first.has(group.method)) first.set(group.method, group); });
  for (const [method, group] of first) {
    const button = element("button", { type: "button", "aria-pressed": "true", title: "Show or hide" });
    button.append(swatch(group), document.createTextNode(group.method_label));
    button.addEventListener("click", () => {
      if (hidden.has(method)) hidden.delete(method); else hidden.add(method);
      button.setAttribute("aria-pressed", String(!hidden.has(method)));
      drawAll();
    });
    legend.append(button);
  }
}

function makePanel(environment) {
  const figure = element("figure", { class: "panel" });
  const panel = { environment, scene: null, tip: element("div", { class: "tip", hidden: "" }) };
  panel.chart = shape("svg", { role: "img", "aria-label": `Curves of ${environment}` });
  figure.append(panel.chart, panel.tip);
  document.getElementById("panels").append(figure);
  panel.chart.addEventListener("pointermove", (event) => hover(panel, event));
  panel.chart.addEventListener("pointerleave", () => leave(panel));
  panels.push(panel);
  new ResizeObserver(() => draw(panel)).observe(panel.chart);
}

function start() {
  data.metrics.forEach((name) => control.metric.append(element("option", { value: name }, name)));
  makeLegend();
  data.environments.forEach(makePanel);
  document.getElementById("caption").textContent = data.caption;
  document.getElementById("seeds-label").hidden = data.groups.every((group) => group.runs === 1);
  control.metric.addEventListener("change", () => { drawAll(); tables(); });
  control.log.addEventListener("change", drawAll);
  control.seeds.addEventListener("change", drawAll);
  control.smooth.addEventListener("input", () => {
    const share = Number(control.smooth.value);
    document.getElementById("smooth-shown").textContent = share === 0 ? "off" : `${Math.round(share * 100)}%`;
    drawAll();
  });
  drawAll();
  tables();
}

start();
