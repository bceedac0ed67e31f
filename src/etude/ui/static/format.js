// Numbers, times and sizes as people read them.

export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(2).replace("-", "−");
  if (Number.isInteger(value)) return value.toLocaleString("en-GB").replace("-", "−");
  if (size >= 1000) return value.toLocaleString("en-GB", { maximumFractionDigits: 1 }).replace("-", "−");
  return Number(value.toPrecision(digits)).toString().replace("-", "−");
}

// A number of which there is little room: 12k, 3.4M.
export function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${Number((value / unit).toPrecision(3))}${letter}`.replace("-", "−");
  }
  if (size > 0 && size < 1e-3) return value.toExponential(1).replace("-", "−");
  return Number(value.toPrecision(3)).toString().replace("-", "−");
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${Number(seconds.toPrecision(2))}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${Math.floor(seconds % 60)}s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h ${Math.floor((seconds % 3600) / 60)}m`;
  return `${Math.floor(seconds / 86400)}d ${Math.floor((seconds % 86400) / 3600)}h`;
}

export function age(moment) {
  const seconds = (Date.now() - Date.parse(moment)) / 1000;
  if (Number.isNaN(seconds)) return "–";
  if (seconds < 60) return "now";
  for (const [length, letter] of [[604800, "w"], [86400, "d"], [3600, "h"], [60, "m"]]) {
    if (seconds >= length) return `${Math.floor(seconds / length)}${letter} ago`;
  }
  return "–";
}

export function moment(text) {
  const found = new Date(text);
  return Number.isNaN(found.getTime()) ? "–" : found.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

export function bytes(size) {
  if (size === null || size === undefined) return "–";
  for (const [unit, name] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (size >= unit) return `${Number((size / unit).toPrecision(3))} ${name}`;
  }
  return `${size} B`;
}

export function setting(value) {
  return typeof value === "string" ? value : JSON.stringify(value) ?? "–";
}
