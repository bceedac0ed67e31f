"""What a search costs, what it finds, and what it loses when it is killed.

    python bench/sweeps.py cost                     # 1,000 trials of a toy objective: processor time of each
    python bench/sweeps.py functions                # TPE against random search on Branin and Hartmann-6
    python bench/sweeps.py killed --kills 2         # a 3x3x3 grid of tiny runs, killed with its children and resumed
    python bench/sweeps.py writers --workers 1000   # as many workers that share one journal

All but `killed` train nothing. Times are processor time of this process (time.process_time), which other work on the machine
changes little.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from etude.runs.index import find_runs
from etude.telemetry.jsonl import read_rows
from etude.telemetry.names import deterministic_items
from etude.tuning.functions import AutoTuner, make_study, optimise

TOY: dict[str, Any] = {
    **{f"x{index}": {"low": -5.0, "high": 5.0} for index in range(4)},
    "k": [1, 2, 3],
    "n": {"low": 1, "high": 64},
}
GRID = """
base: {spec: "CartPole-v1:ppo", words: [training.total_steps=512, algorithm.epochs=1, evaluation.episodes=1]}
sweep:
  algorithm.learning_rate: [1e-4, 1e-3, 1e-2]
  algorithm.gamma: [0.9, 0.95, 0.99]
  algorithm.clip_range: [0.1, 0.2, 0.3]
parallel: 4
retries: 10
"""


def toy(settings: Mapping[str, Any]) -> float:
    """A bowl with a few settings that hardly matter."""
    return -sum((settings[f"x{index}"] - index) ** 2 for index in range(4)) - 0.1 * settings["k"] - 0.01 * settings["n"]


def branin(x: float, y: float) -> float:
    """Branin's function (Dixon and Szegő 1978); its minimum is 0.397887."""
    b, c = 5.1 / (4 * math.pi**2), 5 / math.pi
    return (y - b * x * x + c * x - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann_6(**x: float) -> float:
    """Hartmann's function in six dimensions (Dixon and Szegő 1978); its minimum is -3.32237."""
    alpha = (1.0, 1.2, 3.0, 3.2)
    a = ((10, 3, 17, 3.5, 1.7, 8), (0.05, 10, 17, 0.1, 8, 14), (3, 3.5, 1.7, 10, 17, 8), (17, 8, 0.05, 10, 0.1, 14))
    p = (
        (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
        (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
        (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
        (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
    )
    point = [x[f"x{index}"] for index in range(6)]
    inner = [sum(a[i][j] * (point[j] - p[i][j]) ** 2 for j in range(6)) for i in range(4)]
    return -sum(weight * math.exp(-value) for weight, value in zip(alpha, inner, strict=True))


FUNCTIONS: dict[str, tuple[Callable[..., float], dict[str, Any]]] = {
    "Branin": (branin, {"x": {"low": -5.0, "high": 10.0}, "y": {"low": 0.0, "high": 15.0}}),
    "Hartmann-6": (hartmann_6, {f"x{index}": {"low": 0.0, "high": 1.0} for index in range(6)}),
}


def cost(trials: int, repeats: int) -> None:
    """Print the processor time of a trial: of the first and the last hundred, as medians over repeats, and of all."""
    for method, times_over in (("random", repeats), ("bayes", 1)):
        found = [_times(method, trials) for _ in range(times_over)]
        first, last = (statistics.median(statistics.mean(part) for part in parts) for parts in _ends(found))
        mean = statistics.mean(statistics.mean(times) for times in found)
        print(f"{method}: {mean:.3f} ms a trial; first hundred {first:.3f}, last hundred {last:.3f}", flush=True)


def _ends(found: Sequence[Sequence[float]]) -> tuple[list[Sequence[float]], list[Sequence[float]]]:
    return [times[:100] for times in found], [times[-100:] for times in found]


def _times(method: Any, trials: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        study = make_study(TOY, method=method, seed=1, state=Path(folder) / "state.jsonl")
        times = []
        for _ in range(trials):
            began = time.process_time()
            trial = study.ask()
            assert trial is not None
            study.complete(trial, [toy(trial.settings)])
            times.append(1e3 * (time.process_time() - began))
        return times


def functions(trials: int, repeats: int) -> None:
    """Print what TPE and random search have found at the end, as medians over the repeats."""
    for name, (function, space) in FUNCTIONS.items():
        best: dict[str, list[float]] = {}
        for method in ("random", "bayes"):
            for seed in range(repeats):
                study = optimise(function, space, trials=trials, direction="min", method=method, seed=seed)
                best.setdefault(method, []).append(study.best(1)[0].first_objective or 0.0)
        wins = sum(tpe < chance for tpe, chance in zip(best["bayes"], best["random"], strict=True))
        found = ", ".join(f"{method} {statistics.median(values):.4f}" for method, values in best.items())
        print(f"{name}, {trials} trials, {repeats} repeats: medians {found}; TPE better in {wins}", flush=True)


def killed(kills: int, seed: int) -> None:
    """Kill a sweep with all its children at random moments, resume it, and compare every run with one that was left alone."""
    draws = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "grid.yaml").write_text(GRID)
        _sweep(folder, "whole").wait()
        for _ in range(kills):
            process = _sweep(folder, "killed")
            begun = len(find_runs(folder / "killed")) if (folder / "killed").is_dir() else 0
            wanted = begun + draws.randint(2, 8)
            while process.poll() is None and not _has_runs(folder / "killed", wanted):
                time.sleep(0.1)
            time.sleep(draws.uniform(0, 5))
            children = _descendants(process.pid)
            for number in (process.pid, *children):
                os.kill(number, signal.SIGKILL)
            process.wait()
            ended = sum(run.status == "finished" for run in find_runs(folder / "killed"))
            print(f"killed the sweep and {len(children)} children, with {ended} runs finished", flush=True)
        code = _sweep(folder, "killed").wait()
        same, different = _compare(folder / "whole", folder / "killed")
        print(f"exit code {code}; {same} runs equal to those of a sweep that was never killed, {different} not", flush=True)


def _sweep(folder: Path, runs: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "etude", "sweep", "grid.yaml", "--runs", str(folder / runs), "--quiet"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)


def _has_runs(root: Path, count: int) -> bool:
    return root.is_dir() and len(list(root.glob("2*/run.json"))) >= count


def _descendants(process: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *_descendants(child)]
    return found


def _compare(whole: Path, other: Path) -> tuple[int, int]:
    def rows(root: Path) -> dict[str | None, Sequence[Any]]:
        runs = find_runs(root)
        assert len({run.group for run in runs}) == len(runs), "two runs of one trial"
        return {
            run.group: [run.status, *(deterministic_items(row) for row in read_rows(run.path / "metrics.jsonl"))]
            for run in runs
        }

    left, right = rows(whole), rows(other)
    same = sum(left[group] == right.get(group) for group in left)
    return same, len({*left, *right}) - same


def writers(workers: int, processes: int, method: str) -> None:
    """Let workers that share one journal each ask for a trial and report it, some processes at a time."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "shared.jsonl"
        began = time.monotonic()
        share = [(state, method, workers // processes) for _ in range(processes)]
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            times = [each for part in pool.starmap(_work, share) for each in part]
        elapsed = time.monotonic() - began
        study = make_study(TOY, method="random" if method == "random" else "bayes", seed=1, state=state)
        asked = len({tuple(trial.values.values()) for trial in study.trials})
        done = "all complete" if all(trial.objective for trial in study.trials) else "NOT all complete"
        mean, late = statistics.mean(times), statistics.mean(sorted(times)[-len(times) // 10 :])
        print(
            f"{method}, {len(times)} workers in {processes} processes: {len(study.trials)} trials, {asked} different, {done};\n"
            f"to open it, ask and report takes a worker {mean:.1f} ms of processor time, the dearest tenth {late:.1f};\n"
            f"{len(times) / elapsed:.0f} workers a second",
            flush=True,
        )


def _work(state: Path, method: str, count: int) -> list[float]:
    times = []
    for _ in range(count):
        began = time.process_time()
        tuner = AutoTuner(TOY, method=method, seed=1, state=state)
        config = tuner.suggest_next_config()
        tuner.update_with_result(config, toy(config))
        times.append(1e3 * (time.process_time() - began))
    return times


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cost", "functions", "killed", "writers"))
    parser.add_argument("--trials", type=int)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--method", choices=("random", "bayes"), default="random")
    given = parser.parse_args()
    if given.what == "cost":
        cost(given.trials or 1000, given.repeats)
    elif given.what == "functions":
        functions(given.trials or 60, given.repeats)
    elif given.what == "killed":
        killed(given.kills, given.seed)
    else:
        writers(given.workers, given.processes, given.method)


if __name__ == "__main__":
    main()
