// A colour and a dash for each line: told apart with any kind of colour vision, and light enough in the dark.

const LIGHT = ["#0072b2", "#c25200", "#00795a", "#a8518a", "#332288", "#a87100", "#882255", "#3e8fc4", "#7a7a1f", "#8b5a2b"];
const DARK = ["#5ab4ea", "#ff9a56", "#3fd0a4", "#e7a3cd", "#a79bf0", "#f2bd4b", "#e0709f", "#9ad2f5", "#cfcf62", "#d3a679"];
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function colour(place) {
  const fixed = isDark() ? DARK : LIGHT;
  if (place < fixed.length) return fixed[place];
  const hue = (place * 137.508) % 360;
  return isDark() ? `hsl(${hue} 65% 70%)` : `hsl(${hue} 60% 38%)`;
}

export function dashes(place) {
  return DASHES[Math.floor(place / LIGHT.length) % DASHES.length];
}
