// What every page has: the header with its navigation, the theme, the token, and a look at the server now and then.

import { getJson, hasToken, openSession, takeToken } from "./api.js";
import { button, element } from "./dom.js";

const PAGES = [
  ["/", "Runs"],
  ["/curves", "Curves"],
  ["/start", "New run"],
  ["/inspect", "Inspect"],
];
const THEME_KEY = "etude-theme";

// startPage({title}) draws the header and returns the page's <main>; it is awaited before anything is asked for.
export async function startPage({ title } = {}) {
  takeToken();
  applyTheme(localStorage.getItem(THEME_KEY));
  if (title) document.title = `${title} · Etude`;
  const main = document.getElementById("main");
  document.body.prepend(element("a", { class: "skip", href: "#main" }, "Skip to content"), header());
  await openSession();
  getJson("/api/about").then(showPlace).catch(() => undefined);
  if (!hasToken()) document.body.classList.add("reading-only");
  return main;
}

function header() {
  const links = PAGES.map(([path, name]) =>
    element("a", { href: path, "aria-current": location.pathname === path ? "page" : null }, name),
  );
  const theme = button("", nextTheme, { class: "quiet theme" });
  nameTheme(theme);
  return element(
    "header",
    { class: "top" },
    element("a", { class: "brand", href: "/", "aria-label": "Etude, runs" }, mark(), element("span", {}, "Etude")),
    element("nav", { "aria-label": "Pages" }, ...links),
    element("span", { class: "place", id: "place" }),
    theme,
  );
}

function mark() {
  return element("img", { src: "/static/icon.svg", alt: "", width: "22", height: "22" });
}

function showPlace(about) {
  const place = document.getElementById("place");
  place.textContent = about.runs_dir;
  place.title = `Etude ${about.version}, runs in ${about.runs_dir}`;
}

const THEMES = ["auto", "light", "dark"];

function applyTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function nextTheme(event) {
  const now = localStorage.getItem(THEME_KEY) ?? "auto";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  localStorage.setItem(THEME_KEY, next);
  applyTheme(next);
  nameTheme(event.currentTarget);
  window.dispatchEvent(new Event("themechange"));
}

function nameTheme(control) {
  const now = localStorage.getItem(THEME_KEY) ?? "auto";
  control.textContent = { auto: "◐", light: "☀", dark: "☾" }[now] ?? "◐";
  control.setAttribute("aria-label", `Theme: ${now}. Change it`);
  control.title = `Theme: ${now}`;
}

// Call `look` again and again while the page is seen; `look` says in how many milliseconds next.
export function keepLooking(look) {
  let waiting = null;
  let busy = false;
  const again = async () => {
    clearTimeout(waiting);
    if (busy || document.hidden) return;
    busy = true;
    let pause = 4000;
    try {
      pause = (await look()) ?? pause;
    } finally {
      busy = false;
      waiting = setTimeout(again, pause);
    }
  };
  document.addEventListener("visibilitychange", again);
  again();
  return again;
}
