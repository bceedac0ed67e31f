"""The web app as somebody sits before it: how long each screen takes with many runs, and how quickly frames follow a slider.

    python bench/screens.py                                 # 200 runs of 10,000 points, in Chromium without a window
    python bench/screens.py --runs 50 --rows 1000 --repeats 3
    python bench/screens.py --pictures /tmp/screens         # and a picture of each screen at 1440 and 420 pixels

A screen's time is the browser's own clock, from the start of the navigation until what the screen is for is there. Frames: a
step of the slider until the picture of that step is decoded, or the world drawn and read back. Needs chromium and chromedriver
(Debian: chromium, chromium-driver) and the extra `ui`; all of it happens on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.ui.browser import Browser, wait_for
from tests.ui.run_folders import make_runs

ETUDE = [sys.executable, "-m", "etude"]
QUICK = ("evaluation.every_steps=0", "environment.num_envs=2", "algorithm.rollout_steps=64", "algorithm.batch_size=64")
ROBOT = ("quadruped-flat:ppo", "training.total_steps=128", *QUICK, "algorithm.epochs=1")
CARTPOLE = ("CartPole-v1:ppo", "training.total_steps=2000", "evaluation.every_steps=0")
LIVE = (
    *("CartPole-v1:ppo", "training.total_steps=10000000", "evaluation.every_steps=0", "logging.every_steps=2000"),
    "experiment.compile=off",
)
SCRUB = """
const [count, threeD] = arguments;
window.scrubbed = null;
(async () => {
  const slider = document.getElementById("slider"), frame = document.querySelector(".future .frame");
  const canvas = document.querySelector("canvas.world"), most = Number(slider.max), times = [];
  for (let each = 0; each < count; each += 1) {
    let step = (each * 7919 + 13) % (most + 1);
    if (String(step) === slider.value) step = (step + 1) % (most + 1);
    const began = performance.now();
    const shown = threeD ? null : new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
    slider.value = String(step);
    slider.dispatchEvent(new Event("input"));
    if (threeD) canvas.getContext("webgl2").readPixels(0, 0, 1, 1, 6408, 5121, new Uint8Array(4));
    else { await shown; await frame.decode(); }
    times.push(performance.now() - began);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  window.scrubbed = times;
})();
"""
LAST = "return document.querySelector('.over')?.getAttribute('aria-label')"


def train(root: Path, words: tuple[str, ...]) -> Path:
    """Train a run in the folder and return its directory."""
    before = set(root.iterdir())
    subprocess.run([*ETUDE, "train", *words, f"--runs={root}", "-q"], check=True, capture_output=True)
    (made,) = [path for path in root.iterdir() if path not in before and path.name[0] == "2"]
    return made


def screens(root: Path, run: Path) -> dict[str, tuple[str, str]]:
    """Each screen by name: its address, and what is there when it is."""
    made = sorted(path.name for path in root.iterdir() if path.name.startswith("2026030"))
    many = f"return document.querySelectorAll('.run-link').length >= {min(200, len(made))}"
    labels = "[...document.querySelectorAll('.over')].map((each) => each.getAttribute('aria-label') ?? '')"
    chart = f"return {labels}.some((each) => each.includes('Last values'))"
    return {
        "runs": ("/", many),
        "curves, 4 environments": ("/curves", chart),
        "curves, a line each": ("/curves?band=runs&by=run", chart),
        "curves, smoothed, log": ("/curves?smooth=0.05&log_y=1", chart),
        "a run": (
            f"/run?run={made[0]}",
            "return document.querySelector('#curves .over') && document.querySelector('#config tbody tr')",
        ),
        "a difference": (
            f"/diff?run={made[0]}&run={made[-1]}",
            "return document.querySelectorAll('section.card').length === 3",
        ),
        "a new run": ("/start", "return document.querySelector('textarea')"),
        "the inspector": (f"/inspect#{run.name}", f"return document.querySelector('#run')?.options.length > {len(made) - 1}"),
    }


class Server:
    """`etude ui` in a process of its own."""

    def __init__(self, root: Path) -> None:
        began = time.monotonic()
        self._process = subprocess.Popen(
            [*ETUDE, "ui", f"--runs={root}", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        self.base, _, self.fragment = self.address.partition("/#")
        self.up_s = time.monotonic() - began

    def worked_ms(self) -> float:
        """Milliseconds of CPU time that it has used."""
        used = sum(map(int, Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        return 1e3 * used / os.sysconf("SC_CLK_TCK")

    def connected(self) -> set[str]:
        """Addresses beyond this machine that the server has open connections to."""
        lines = [
            line.split()
            for path in ("tcp", "tcp6")
            for line in Path(f"/proc/{self._process.pid}/net/{path}").read_text().splitlines()
        ]
        own = {os.readlink(each) for each in Path(f"/proc/{self._process.pid}/fd").iterdir() if each.is_symlink()}
        there = [line[2] for line in lines[1:] if len(line) > 9 and f"socket:[{line[9]}]" in own]
        return {each for each in there if not each.startswith(("0100007F", "00000000"))}

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(20)


def time_of(browser: Browser, server: Server, address: str, there: str) -> tuple[float, float, float]:
    """Milliseconds from the navigation until a screen is there; how many the page's thread worked, and the server."""
    browser.open("about:blank")
    browser.devtools("Performance.enable", {"timeDomain": "threadTicks"})
    before = server.worked_ms()
    browser.open(address)
    script = f"const there = (() => {{ {there} }})(); return there ? performance.now() : 0"
    found: float = wait_for(lambda: browser.run(script), address)
    counted = {each["name"]: each["value"] for each in browser.devtools("Performance.getMetrics", {})["metrics"]}
    browser.devtools("Performance.disable", {})
    return found, 1e3 * counted["TaskDuration"], server.worked_ms() - before


def table(rows: list[tuple[str, list[tuple[float, float, float]]]]) -> None:
    """Print medians, the slowest, and what of it was work: on a machine that does nothing else, there is little more."""
    print("\n| | Median, ms | Slowest, ms | CPU of the page, ms | CPU of the server, ms | Times |\n|---|---|---|---|---|---|")
    for name, times in rows:
        walls, pages, servers = zip(*times, strict=True)
        medians = " | ".join(f"{statistics.median(each):.0f}" for each in (pages, servers))
        print(f"| {name} | {statistics.median(walls):.0f} | {max(walls):.0f} | {medians} | {len(times)} |", flush=True)


def scrub(browser: Browser, server: Server, run: Path, *, three_d: bool, count: int, pictures: Path | None) -> list[float]:
    """Milliseconds from a step of the slider to its frame."""
    drawn = "false" if three_d else "true"
    browser.open(f"{server.base}/inspect?run={run.name}&max_steps=300&mode=sample&pictures={drawn}")
    browser.wait("return document.querySelector('table.steps tr.now')")
    browser.run(SCRUB, count, three_d)
    times: list[float] = browser.wait("return window.scrubbed")
    if pictures is not None:
        both(browser, pictures / f"inspect-{'world' if three_d else 'pictures'}")
    return times


def branch(browser: Browser) -> bool:
    """Whether the first branch of what is shown is the recording, to the bit, in what the server says of each step."""
    browser.run(
        "document.getElementById('slider').value = 3; document.getElementById('slider').dispatchEvent(new Event('input'))"
    )
    browser.run("document.getElementById('branch').click()")
    browser.wait("return document.querySelectorAll('.futures .line').length === 2")
    places = browser.wait(
        "return [...document.querySelectorAll('.exports a')].map((each) => each.getAttribute('href')).length === 4"
    )
    assert places
    script = """
    window.same = null;
    const links = [...document.querySelectorAll('.exports a')].filter((each) => each.href.endsWith('json'));
    Promise.all(links.map((each) => fetch(each.href).then((answer) => answer.json())))
      .then((both) => both.map((each) => JSON.stringify(each.episodes[0].steps)))
      .then((both) => { window.same = String(both[0] === both[1]); });
    """
    browser.run(script)
    return browser.wait("return window.same") == "true"


def live(browser: Browser, server: Server, root: Path) -> list[float]:
    """Seconds between changes of a curve while its run trains."""
    before = set(root.iterdir())
    training = subprocess.Popen(
        [*ETUDE, "train", *LIVE, f"--runs={root}", "-q"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        (run,) = wait_for(lambda: [path for path in root.iterdir() if path not in before and path.name[0] == "2"], "the run")
        wait_for(lambda: (run / "metrics.jsonl").exists(), "rows")
        browser.open(f"{server.base}/curves?run={run.name}&metric=collect/return_mean&band=runs")
        label, times = browser.wait(LAST), []
        for _ in range(5):
            began = time.monotonic()
            label = wait_for(lambda old=label: (now := browser.run(LAST)) != old and now, "a curve that moves")
            times.append(time.monotonic() - began)
        return times
    finally:
        training.kill()
        training.wait()


def both(browser: Browser, name: Path) -> None:
    """Pictures of what is shown, as on a desk and on a telephone."""
    for width, height in ((1440, 900), (420, 900)):
        browser.size(width, height)
        time.sleep(0.5)
        browser.picture(name.with_name(f"{name.name}-{width}.png"))
    browser.size(1440, 900)


def measure(root: Path, asked: argparse.Namespace, profile: Path) -> dict[str, Any]:
    """Measure everything and print it."""
    run, robot = train(root, CARTPOLE), train(root, ROBOT)
    server = Server(root)
    browser = Browser(profile)
    try:
        browser.size(1440, 900)
        browser.open(server.address)
        print(f"the server is up after {server.up_s:.1f} s")
        first = time_of(browser, server, f"{server.base}/curves", screens(root, run)["curves, 4 environments"][1])
        loads = {"first, nothing read yet: curves": [first]}
        wait_for(lambda: not _still_reads(server), "what is read in the background", longest_s=600)
        for name, (address, there) in screens(root, run).items():
            loads[name] = [time_of(browser, server, server.base + address, there) for _ in range(asked.repeats)]
            if asked.pictures is not None:
                time.sleep(0.5)
                both(browser, asked.pictures / name.replace(",", "").replace(" ", "-"))
        table(list(loads.items()))
        frames = {}
        for name, which, three_d in (("CartPole, pictures", run, False), ("quadruped, 3-D", robot, True)):
            frames[name] = scrub(browser, server, which, three_d=three_d, count=asked.frames, pictures=asked.pictures)
            same = branch(browser)
            print(f"{name}: the first branch is the recording to the bit: {'yes' if same else 'NO'}")
        print("\n| Frame after a step of the slider | Median, ms | Slowest, ms | Times |\n|---|---|---|---|")
        for name, times in frames.items():
            print(f"| {name} | {statistics.median(times):.0f} | {max(times):.0f} | {len(times)} |")
        moved = live(browser, server, root)
        print(f"\na curve of a run that trains moves every {statistics.median(moved):.1f} s")
        elsewhere = sorted(
            {each for each in browser.requested() if each.startswith(("http", "ws")) and not each.startswith(server.base)}
        )
        print(f"requests to anywhere else: {elsewhere or 'none'}; connections of the server: {server.connected() or 'none'}")
        return {
            "loads_ms": loads,
            "frames_ms": frames,
            "live_s": moved,
            "elsewhere": elsewhere,
            "complaints": browser.complaints(),
        }
    finally:
        browser.close()
        server.close()


def _still_reads(server: Server) -> bool:
    """Whether the server has used the CPU in the last second."""
    before = server.worked_ms()
    time.sleep(1)
    return server.worked_ms() - before > 50


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--root", type=Path, help="a folder to keep the runs in; it is made anew if it is empty")
    asked = parser.parse_args()
    if asked.pictures is not None:
        asked.pictures.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="etude-screens-"))
    root = asked.root or place / "runs"
    os.environ.update(SDL_VIDEODRIVER="dummy", SDL_AUDIODRIVER="dummy")
    try:
        if not root.exists():
            make_runs(root, asked.runs, rows=asked.rows)
        found = measure(root, asked, place / "profile")
        if asked.json is not None:
            asked.json.write_text(json.dumps(found, indent=1))
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
