"""The app as a user meets it, in Chromium without a window."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from etude.runs.process import this_process
from etude.runs.run import Run
from etude.ui.server import Server
from tests.ui.browser import CHROMIUM, DRIVER, ENTER, TAB, Browser, wait_for
from tests.ui.run_folders import make_run, make_runs

pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver (Debian: chromium, chromium-driver)"),
    pytest.mark.timeout(600),
]
HOSTILE = "<img src=x onerror=window.pwned=1>"
TABBABLE = (
    "a[href], button:not(:disabled), input:not(:disabled), select, textarea, summary, video, [tabindex='0'], pre[tabindex]"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 runs, of which one trains (says this process) and one has a stranger's names."""
    folder = tmp_path_factory.mktemp("browser") / "runs"
    make_runs(folder, 198, rows=20)
    make_run(folder, 198, rows=20, status="running", name="trains", **this_process())
    odd = folder / make_run(folder, 199, rows=20, name=HOSTILE, tags=[HOSTILE], group=HOSTILE, environment=HOSTILE)
    row = {"env_steps": 4200, f"train/{HOSTILE}": 1.0, "eval/return_mean": 3.0}
    with open(odd / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")
    return folder


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    server = Server(root, host="127.0.0.1", port=0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server
    server.stop()
    thread.join()


@pytest.fixture(scope="module")
def browser(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    try:
        browser.size(1440, 900)
        browser.open(server.address)
        browser.wait("return document.querySelector('.run-link')")
        yield browser
    finally:
        browser.close()


@pytest.fixture
def base(server: Server) -> str:
    return server.address.partition("/#")[0]


def newest(root: Path, number: int) -> str:
    return sorted(path.name for path in root.iterdir() if path.name[0] == "2")[number]


def screens(root: Path) -> dict[str, str]:
    """Each page, and what is there when it is."""
    one, other = newest(root, 0), newest(root, 60)
    return {
        "/": "return document.querySelectorAll('.run-link').length === 200",
        "/curves": "return document.querySelectorAll('.chart canvas').length > 4",
        "/curves?band=runs&by=run&smooth=0.05&log_y=1": "return document.querySelectorAll('.chart canvas').length > 4",
        f"/run?run={one}": "return document.querySelector('#curves .chart') && document.querySelector('#config tbody tr')",
        f"/run?run={quote(newest(root, -1))}": "return document.querySelector('#config tbody tr')",
        f"/diff?run={one}&run={other}": "return document.querySelectorAll('section.card').length === 3",
        "/start": "return document.querySelector('textarea')",
        "/inspect": "return document.querySelector('#run')?.options.length === 200",
    }


def test_every_screen_loads_fits_and_asks_nobody_else(browser: Browser, base: str, root: Path) -> None:
    browser.requested()
    browser.complaints()
    for width in (1440, 420):
        browser.size(width, 900)
        for path, there in screens(root).items():
            browser.open(base + path)
            browser.wait(there)
            assert browser.run("return document.scrollingElement.scrollWidth <= innerWidth"), f"{path} at {width}"
            assert browser.run("return window.pwned === undefined"), path
    browser.size(1440, 900)
    asked = browser.requested()
    assert len(asked) > 50
    assert [each for each in asked if not each.startswith((base, "data:"))] == []
    assert browser.complaints() == []


CONTRAST = """
const paint = element("canvas").getContext("2d", { willReadFrequently: true });
function element(name) { const made = document.createElement(name); made.width = made.height = 1; return made; }
function rgba(colour) {
  paint.clearRect(0, 0, 1, 1); paint.fillStyle = "#000"; paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = paint.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
}
const over = (top, below) => [0, 1, 2].map((each) => top[each] * top[3] + below[each] * (1 - top[3]));
function ground(node) {
  const layers = [];
  for (let each = node; each; each = each.parentElement) {
    const colour = rgba(getComputedStyle(each).backgroundColor);
    if (colour[3] > 0) layers.push(colour);
    if (colour[3] === 1) break;
  }
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
}
const light = (colour) => colour.map((value) => value / 255)
  .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
  .reduce((sum, value, each) => sum + value * [0.2126, 0.7152, 0.0722][each], 0);
const weak = [];
let seen = 0;
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let text = walker.nextNode(); text; text = walker.nextNode()) {
  const node = text.parentElement;
  const shown = node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  if (!text.data.trim() || !shown || node.closest(":disabled, option")) continue;
  const style = getComputedStyle(node), below = ground(node), own = over(rgba(style.color), below);
  const [high, low] = [light(own), light(below)].sort((a, b) => b - a);
  const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  seen += 1;
  const contrast = (high + 0.05) / (low + 0.05);
  if (contrast < (large ? 3 : 4.5)) weak.push(`${text.data.trim().slice(0, 30)}: ${style.color} on ${below}`);
}
return [seen, [...new Set(weak)]];
"""


def test_all_text_has_the_contrast_of_wcag_aa(browser: Browser, base: str, root: Path) -> None:
    try:
        for dark in (False, True):
            browser.size(1440, 900, dark=dark)
            for path, there in screens(root).items():
                browser.open(base + path)
                browser.wait(there)
                seen, weak = browser.run(CONTRAST)
                assert seen > 10, path
                assert weak == [], f"{path}, {'dark' if dark else 'light'}"
    finally:
        browser.size(1440, 900)


def test_script_in_names_is_text(browser: Browser, base: str, root: Path) -> None:
    browser.open(f"{base}/?filter={quote('img')}")
    browser.wait("return document.querySelectorAll('.run-link').length === 1")
    assert browser.run("return document.querySelector('.run-link').textContent") == HOSTILE
    assert browser.run("return document.querySelectorAll('td img').length") == 0
    assert browser.run("return window.pwned === undefined")


def test_curves_move_while_a_run_trains(browser: Browser, base: str, root: Path) -> None:
    run = newest(root, 198)
    browser.open(f"{base}/curves?run={run}&metric=train/loss&band=runs")
    last = "return document.querySelector('.over')?.getAttribute('aria-label')"
    before = browser.wait(last)
    with open(root / run / "metrics.jsonl", "a") as file:
        file.write('{"env_steps": 4200, "updates": 500, "train/loss": 77.5, "time/elapsed_s": 9.0}\n')
    label = wait_for(lambda: (now := browser.run(last)) != before and now, "another label")
    assert "77.5" in label


def test_dragging_zooms_and_keys_do_the_same(browser: Browser, base: str, root: Path) -> None:
    browser.open(f"{base}/curves?run={newest(root, 0)}&metric=train/loss&band=runs")
    browser.wait("return document.querySelector('.over')?.getAttribute('aria-label')?.includes('Last values')")
    browser.requested()
    browser.drag(".over", 0.3, 0.6)
    wait_for(lambda: any("start=" in each for each in browser.requested()), "a part of the axis")
    browser.run("document.querySelector('.over').focus()")
    browser.press("0")
    browser.press("+")
    wait_for(lambda: any("start=" in each for each in browser.requested()), "a part of the axis")
    browser.press("\ue014")
    assert browser.wait("return !document.querySelector('.tip').hidden && document.querySelector('.tip b').textContent")


@pytest.mark.parametrize(
    "page", ["/?filter=env%3DCartPole*%20seed%3D1%20algorithm%3Dppo", "/curves?metric=train/loss", "run", "/start", "/inspect"]
)
def test_the_keyboard_reaches_everything(page: str, browser: Browser, base: str, root: Path) -> None:
    browser.open(base + (f"/run?run={newest(root, 0)}" if page == "run" else page))
    wait = {"/?": ".run-link", "/c": ".chart", "ru": "#curves .chart", "/s": "textarea", "/i": "#checkpoint option"}[page[:2]]
    browser.wait("return document.querySelector(arguments[0])", wait)
    browser.run(
        """
        window.reached = new Set();
        document.addEventListener("focusin", (event) => {
          window.reached.add(event.target);
          const style = getComputedStyle(event.target);
          if (event.target.matches(":focus-visible") && style.outlineStyle === "none") window.unseen = event.target.outerHTML;
        });
        document.body.tabIndex = -1;
        document.body.focus();
        """
    )
    visible = f"[...document.querySelectorAll(`{TABBABLE}`)].filter((each) => each.checkVisibility())"
    missed = f"{visible}.filter((each) => !window.reached.has(each)).map((each) => each.outerHTML.slice(0, 120))"

    def tabbed_through() -> bool:
        """One round of Tab; a section or a chart that came meanwhile is reached in the next."""
        count = browser.run(f"return {visible}.length")
        browser.press(*[TAB] * (count + 10))
        return count > 5 and not browser.run(f"return {missed}")

    try:
        wait_for(tabbed_through, "Tab to reach everything", longest_s=60)
    except AssertionError:
        assert browser.run(f"return {missed}") == []
        raise
    assert browser.run("return window.unseen ?? null") is None


def test_tags_are_edited_by_keyboard(browser: Browser, base: str, root: Path) -> None:
    run = newest(root, 3)
    browser.open(f"{base}/run?run={run}")
    browser.wait("return [...document.querySelectorAll('button')].find((each) => each.textContent === 'Tags…')?.focus() ?? "
                 "document.activeElement.textContent === 'Tags…'")  # fmt: skip
    browser.press(ENTER)
    browser.wait("return document.querySelector('dialog input') === document.activeElement")
    browser.press(*", new one", ENTER)
    wait_for(lambda: "new one" in Run(root / run).record["tags"], "the tag on disk")
    browser.wait("return document.querySelector('.facts .tags')?.textContent.includes('new one')")


def test_without_the_token_nothing_can_be_changed(browser: Browser, base: str, root: Path) -> None:
    browser.open(f"{base}/run?run={newest(root, 4)}")
    token = browser.run(
        "const token = localStorage.getItem('etude-token'); localStorage.clear(); sessionStorage.clear(); return token"
    )
    try:
        browser.open(f"{base}/run?run={newest(root, 4)}")
        browser.wait("return document.querySelector('.facts')")
        assert (
            browser.run("return [...document.querySelectorAll('.needs-token')].filter((each) => each.checkVisibility()).length")
            == 0
        )
    finally:
        browser.run("localStorage.setItem('etude-token', arguments[0])", token)
