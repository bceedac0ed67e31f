"use strict";
// Everything from the runs goes in by textContent and setAttribute: a name is never read as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const chart = document.getElementById("chart");
const tip = document.getElementById("tip");
const picker = document.getElementById("metric");
const slider = document.getElementById("smooth");
const hidden = new Set();
const margin = { left: 64, right: 20, top: 28, bottom: 44 };
let scene = null;

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

function visibleCurves() {
  const all = data.curves[picker.value];
  const end = Math.max(0, ...all.flatMap((curve) => curve.x));
  const width = Number(slider.value) * end;
  return data.groups.flatMap((group, index) => {
    const curve = all[index];
    if (hidden.has(index) || curve.x.length === 0) return [];
    const lines = {};
    for (const name of ["value", "low", "high"]) lines[name] = smoothed(curve.x, curve[name], width);
    return [{ group, x: curve.x, runs: curve.runs, ...lines }];
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

function draw() {
  const curves = visibleCurves();
  const width = chart.clientWidth, height = chart.clientHeight;
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.replaceChildren();
  const values = curves.flatMap((curve) => [...curve.value, ...curve.low, ...curve.high]).filter((value) => value !== null);
  chart.append(shape("text", { x: 4, y: 14, class: "name" }, picker.value));
  scene = null;
  if (values.length === 0) {
    chart.append(shape("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing to show"));
    return;
  }
  let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  const room = (high - low || Math.abs(high) || 1) * 0.04;
  low -= room;
  high += room;
  const end = Math.max(...curves.flatMap((curve) => curve.x)) || 1;
  const across = (x) => margin.left + (x / end) * (width - margin.left - margin.right);
  const up = (y) => height - margin.bottom - ((y - low) / (high - low)) * (height - margin.top - margin.bottom);
  for (const y of ticks(low, high, 6)) {
    chart.append(shape("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: up(y), y2: up(y) }));
    chart.append(shape("text", { x: margin.left - 8, y: up(y) + 4, "text-anchor": "end" }, short(y)));
  }
  for (const x of ticks(0, end, Math.max(2, width / 120))) {
    chart.append(shape("line", { class: "grid", x1: across(x), x2: across(x), y1: margin.top, y2: height - margin.bottom }));
    chart.append(shape("text", { x: across(x), y: height - margin.bottom + 18, "text-anchor": "middle" }, short(x)));
  }
  const bottom = height - margin.bottom;
  chart.append(shape("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: bottom, y2: bottom }));
  chart.append(shape("text", { x: (margin.left + width) / 2, y: height - 6, "text-anchor": "middle" }, data.axis));
  for (const curve of curves) {
    chart.append(shape("path", { d: bandPath(curve, across, up), fill: curve.group.colour, "fill-opacity": 0.18 }));
  }
  for (const curve of curves) {
    const points = curve.x.map((x, n) => (curve.value[n] === null ? null : [across(x), up(curve.value[n])]));
    const full = curve.runs.map((runs) => runs === curve.group.runs);
    const whole = points.map((point, n) => (full[n] ? point : null));
    const partly = points.map((point, n) => (full[n] && full[n - 1] !== false && full[n + 1] !== false ? null : point));
    const style = { fill: "none", stroke: curve.group.colour, "stroke-dasharray": curve.group.dashes, "stroke-linejoin": "round" };
    chart.append(shape("path", { ...style, d: path(partly), "stroke-width": 1, "stroke-opacity": 0.8 }));
    chart.append(shape("path", { ...style, d: path(whole), "stroke-width": 2.25 }));
    if (points.length === 1) chart.append(shape("circle", { cx: points[0][0], cy: points[0][1], r: 4, fill: curve.group.colour }));
  }
  const cross = shape("line", { class: "cross", y1: margin.top, y2: bottom, visibility: "hidden" });
  chart.append(cross);
  scene = { curves, across, up, end, width, cross, dots: [] };
}

function nearest(curve, x) {
  let low = 0, high = curve.x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (curve.x[middle] <= x) low = middle; else high = middle;
  }
  return Math.abs(curve.x[low] - x) <= Math.abs(curve.x[high] - x) ? low : high;
}

function leave() {
  tip.hidden = true;
  if (scene === null) return;
  scene.cross.setAttribute("visibility", "hidden");
  scene.dots.forEach((dot) => dot.remove());
  scene.dots = [];
}

function hover(event) {
  if (scene === null) return;
  leave();
  const left = event.clientX - chart.getBoundingClientRect().left;
  const x = ((left - margin.left) / (scene.width - margin.left - margin.right)) * scene.end;
  if (x < 0 || x > scene.end * 1.01) return;
  const rows = scene.curves.map((curve) => ({ curve, n: nearest(curve, x) }));
  // What lies at other positions than the nearest one (a run that has ended) is not shown as if it were here.
  const at = rows.map(({ curve, n }) => curve.x[n]).reduce((a, b) => (Math.abs(b - x) < Math.abs(a - x) ? b : a));
  const here = rows.filter(({ curve, n }) => curve.value[n] !== null && Math.abs(curve.x[n] - at) <= scene.end * 0.03);
  here.sort((a, b) => b.curve.value[b.n] - a.curve.value[a.n]);
  tip.replaceChildren(element("div", {}, `${number(at, 6)} ${data.axis}`));
  for (const { curve, n } of here) {
    const row = element("div");
    row.append(element("span", { class: "dot", style: `background:${curve.group.colour}` }));
    row.append(element("strong", {}, number(curve.value[n])));
    const range = curve.low[n] === null ? "" : `[${number(curve.low[n])}, ${number(curve.high[n])}] `;
    const fewer = curve.runs[n] === curve.group.runs ? "" : ` (${curve.runs[n]} of ${curve.group.runs} runs)`;
    row.append(element("span", { class: "range" }, range + curve.group.label + fewer));
    tip.append(row);
    const dot = shape("circle", { cx: scene.across(curve.x[n]), cy: scene.up(curve.value[n]), r: 4, fill: curve.group.colour });
    chart.append(dot);
    scene.dots.push(dot);
  }
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
        place.append(element("span", { class: "dot", style: `background:${cell.colour}` }));
        place.append(document.createTextNode(`${cell.letter}  ${cell.label}`));
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
  const metric = picker.value;
  const byLetter = Object.fromEntries(data.groups.map((group) => [group.letter, group]));
  table(
    parent,
    `${metric}: the last values`,
    ["Group", "Runs", "Seeds", "Steps", "Time", "Mean", "95% CI", "IQM", "95% CI", "Std", "Min", "Max", "Best"],
    data.results.filter((found) => found.metric === metric).map((found) => {
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
  if (data.notes.length > 0) parent.append(element("h2", {}, "Notes"));
  data.notes.forEach((note) => parent.append(element("p", { class: "note" }, note)));
}

function start() {
  data.metrics.forEach((name) => picker.append(element("option", { value: name }, name)));
  const legend = document.getElementById("legend");
  data.groups.forEach((group, index) => {
    const button = element("button", { type: "button", "aria-pressed": "true", title: "Show or hide" });
    button.append(element("span", { class: "dot", style: `background:${group.colour}` }), document.createTextNode(group.label));
    button.addEventListener("click", () => {
      if (hidden.has(index)) hidden.delete(index); else hidden.add(index);
      button.setAttribute("aria-pressed", String(!hidden.has(index)));
      draw();
    });
    legend.append(button);
  });
  document.getElementById("caption").textContent = data.caption;
  picker.addEventListener("change", () => { leave(); draw(); tables(); });
  slider.addEventListener("input", () => {
    const share = Number(slider.value);
    document.getElementById("smooth-shown").textContent = share === 0 ? "off" : `${Math.round(share * 100)}%`;
    leave();
    draw();
  });
  chart.addEventListener("pointermove", hover);
  chart.addEventListener("pointerleave", leave);
  new ResizeObserver(draw).observe(chart);
  draw();
  tables();
}

start();
