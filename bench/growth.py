"""What Etude costs as it grows: `python bench/growth.py [--part copies robots saves runs] [--device cpu] [--out growth.json]`.

    copies   environment steps a second of tasks of tensors, over the number of copies: stepped alone, and with learning
    robots   robot steps a second of `quadruped-flat`, over the number of robots: stepped alone (Warp on a GPU, MuJoCo on a CPU)
    saves    seconds of a save, over the transitions that a replay buffer holds: of all of it, and of what 1,000 more steps add
    runs     seconds of `etude runs list`, over the number of runs: when it reads them all, and when nothing has changed

Rows go into the JSON by part and device, and replace those that are there: a GPU's can be measured elsewhere and merged.
`--plot FOLDER` draws the figures of docs/performance.md from it and measures nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

COPIES = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
ROBOTS = (64, 256, 1024, 4096, 16384, 65536)
ON_CPU = 4096
"""Robots that are stepped on a CPU, at most."""
TRANSITIONS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
RUNS = (10, 100, 1000, 10_000, 100_000)
TASKS = ("CartPole-v1", "BrickWall-v0")
Row = dict[str, Any]


def main() -> int:
    """Measure what was asked for, or draw what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement, about")
    parser.add_argument("--most", type=int, help="leave out what is larger")
    parser.add_argument("--sizes", type=int, nargs="+", help="measure these")
    parser.add_argument("--limit-s", type=float, default=60.0, help="of one row; a part ends with the first that takes longer")
    parser.add_argument("--root", type=Path, help="where saves and runs are written (default: a temporary folder)")
    parser.add_argument("--words", nargs="+", default=[], metavar="WORD", help="settings for trainings")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("growth.json"))
    parser.add_argument("--plot", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.plot is not None:
        plot(json.loads(options.out.read_text())["rows"], options.plot)
        return 0
    failed = 0
    for part in options.part:
        measured: list[Row] = []
        try:
            for row in PARTS[part](options):
                measured.append({"part": part, "device": _name(options.device, part), **row})
                print("  ".join(f"{key} {_plain(value)}" for key, value in measured[-1].items()), flush=True)
                _merge(options.out, [each for each in measured if "error" not in each])
                failed += "error" in row
        except Exception as error:  # noqa: BLE001 # the other parts are measured all the same
            failed += 1
            print("\n".join(traceback.format_exc().strip().splitlines()[-8:]), file=sys.stderr)
            print(f"{part}: {type(error).__name__}: {error}", flush=True)
    return 1 if failed else 0


def _merge(path: Path, measured: list[Row]) -> None:
    """Write rows in the place of those with the same part and device."""
    known = json.loads(path.read_text())["rows"] if path.exists() else []
    new = {(row["part"], row["device"]) for row in measured}
    kept = [row for row in known if (row["part"], row["device"]) not in new]
    path.write_text(json.dumps({"rows": [*kept, *measured]}, indent=1))


def _name(device: str, part: str) -> str:
    import torch

    if device.startswith("cuda") and part in ("copies", "robots"):
        return torch.cuda.get_device_name()
    return f"CPU, {os.cpu_count()} cores"


def _copies(options: argparse.Namespace) -> Iterator[Row]:
    for task in TASKS:
        for copies in _sizes(COPIES, options):
            begun = time.perf_counter()
            yield (row := _told({"task": task, "copies": copies}, partial(_stepped, task, copies, options)))
            if "error" in row or time.perf_counter() - begun > options.limit_s:
                break


def _told(what: Row, measure: Callable[[], Row]) -> Row:
    """Return a row; of what there is no memory for, that it was so."""
    import torch

    try:
        return {**what, **measure()}
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        return {**what, "error": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"}
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _stepped(task: str, copies: int, options: argparse.Namespace) -> Row:
    import torch

    from etude.config.schema import EnvironmentConfig
    from etude.environments.make import make_environment

    device = torch.device(options.device)
    vector = make_environment(EnvironmentConfig(id=task, num_envs=copies, backend="torch"), device=device)
    vector.reset(range(copies))
    many, steps = _stepping(vector, torch.zeros(copies, dtype=torch.int64, device=device))
    rate = steps * _rate(many, options)
    learning, start = _learning(task, copies, options)
    return {"steps_per_s": copies * rate, "learning_per_s": learning, "start_s": start}


def _stepping(vector: Any, action: Any) -> tuple[Callable[[], Any], int]:
    """Return what takes steps, and how many: on a GPU several as one graph, as a rollout does."""
    if action.device.type != "cuda":
        return lambda: vector.step(action), 1
    from etude.compute.captured import capture

    def steps() -> None:
        for _ in range(16):
            vector.step(action)

    steps()
    return capture(steps, vector.generators)[0].replay, 16


def _learning(task: str, copies: int, options: argparse.Namespace) -> tuple[float, float]:
    """Return environment steps a second of PPO, and how long it took to get there."""
    from etude.config.compose import compose
    from etude.training import assembly

    words = [f"experiment.device={options.device}", f"environment.num_envs={copies}", "evaluation.every_steps=0"]
    words += ["training.total_steps=1_000_000_000"] if options.device != "cpu" else ["experiment.compile=numpy"]
    begun = time.perf_counter()
    config = compose(f"{task}:ppo_gpu", words=[*words, *options.words]).config
    run = assembly.build(assembly.resolve(config))
    run.begin()
    for _ in range(6 if options.device != "cpu" else 1):
        run._run_cycle()
    start = time.perf_counter() - begun
    rate = _rate(run._run_cycle, options)
    del run
    gc.collect()
    return rate * copies * config.algorithm.rollout_steps, start


def _robots(options: argparse.Namespace) -> Iterator[Row]:
    for robots in _sizes(ROBOTS, options, ON_CPU if options.device == "cpu" else None):
        begun = time.perf_counter()
        yield (row := _told({"robots": robots}, partial(_robots_stepped, robots, options)))
        if "error" in row or time.perf_counter() - begun > options.limit_s:
            return


def _robots_stepped(robots: int, options: argparse.Namespace) -> Row:
    import torch

    from etude.config.compose import compose
    from etude.environments.make import make_environment

    device = torch.device(options.device)
    config = compose("quadruped-flat:ppo", words=[f"environment.num_envs={robots}"]).config.environment
    begun = time.perf_counter()
    vector = make_environment(config, training=True, device=device, capture=device.type == "cuda")
    try:
        vector.reset(range(robots))
        space = vector.single_action_space
        action = torch.zeros(robots, *(space.shape or ()), device=vector.device)
        for _ in range(5):  # captures, where that is done
            vector.step(action)
        start = time.perf_counter() - begun
        return {"steps_per_s": robots * _rate(lambda: vector.step(action), options), "start_s": start}
    finally:
        vector.close()


def _saves(options: argparse.Namespace) -> Iterator[Row]:
    import torch

    from etude.buffers.replay import ReplayBuffer
    from etude.runs.checkpoint import CheckpointStore

    copies, chunk = 100, None
    for count in _sizes(TRANSITIONS, options):
        with tempfile.TemporaryDirectory(prefix="etude-growth-", dir=options.root) as folder:
            store = CheckpointStore(Path(folder), keep=2)
            buffer = ReplayBuffer(count, copies)
            chunk = _halfcheetah_row(copies) if chunk is None else chunk
            for _ in range(count // copies):
                buffer.add(chunk)

            def save(buffer: ReplayBuffer = buffer, store: CheckpointStore = store, number: int = 0) -> float:
                begun = time.perf_counter()
                parts = {"policy": {"weight": torch.zeros(1)}, "rank/0": {"buffers": {"replay": buffer.state_dict()}}}
                store.save(parts, counters={"env_steps": number, "updates": 0}, metadata={})
                return time.perf_counter() - begun

            first, again = save(), []
            for number in range(1, 4):
                for _ in range(1000 // copies):
                    buffer.add(chunk)
                again.append(save(number=number))
            size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink())
            yield {"transitions": count, "first_s": first, "again_s": min(again), "bytes": size}
            del buffer
            gc.collect()


def _halfcheetah_row(copies: int) -> dict[str, Any]:
    import torch

    seen, led_to = torch.randn(copies, 17), torch.randn(copies, 17)
    no = torch.zeros(copies, dtype=torch.bool)
    said = {"reward": torch.randn(copies), "terminated": no, "truncated": no, "is_first": no}
    return {"observation": seen, "action": torch.randn(copies, 6), "next_observation": led_to, **said}


def _runs(options: argparse.Namespace) -> Iterator[Row]:
    from run_index import make_runs

    from etude.runs.index import RunIndex

    with tempfile.TemporaryDirectory(prefix="etude-growth-", dir=options.root) as folder:
        root, there = Path(folder), 1
        make_runs(root, 1)
        pattern = next(path for path in root.iterdir() if path.is_dir() and path.name[0] not in ".@")
        for count in _sizes(RUNS, options):
            while there < count:  # a copy is as good as a run that was made, and made sooner
                there += 1
                _copy_run(pattern, root / f"{pattern.name[:-6]}{there:06}")
            time.sleep(0.1)  # what changed just now is looked at again
            begun = time.perf_counter()
            found = len(RunIndex(root).rebuild().runs)
            first = time.perf_counter() - begun
            again = min(_seconds(lambda: RunIndex(root).read()) for _ in range(3))
            yield {"runs": found, "first_s": first, "again_s": again}


def _copy_run(pattern: Path, to: Path) -> None:
    """Make a run like one that is there: its files alone, without waiting for the disk."""
    to.mkdir()
    for name in ("metrics.jsonl", "summary.json", "config.yaml", "resolved.yaml"):
        shutil.copyfile(pattern / name, to / name)
    record = json.loads((pattern / "run.json").read_text())
    del record["checksum"]  # without one it is taken as it is
    (to / "run.json").write_text(json.dumps({**record, "id": to.name, "name": to.name}))


def _rate(call: Callable[[], Any], options: argparse.Namespace) -> float:
    """Return how many calls a second, the best of three stretches."""
    call()
    _wait(options.device)
    once = max(1e-6, _seconds(lambda: (call(), _wait(options.device))))
    count = max(1, int(options.seconds / 3 / once))
    best = float("inf")
    for _ in range(3 if once < options.seconds else 1):
        begun = time.perf_counter()
        for _ in range(count):
            call()
        _wait(options.device)
        best = min(best, time.perf_counter() - begun)
    return count / best


def _seconds(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()


def _sizes(usual: tuple[int, ...], options: argparse.Namespace, most: int | None = None) -> list[int]:
    most = options.most or most
    return [size for size in options.sizes or usual if most is None or size <= most]


def _plain(value: Any) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "copies": _copies,
    "robots": _robots,
    "saves": _saves,
    "runs": _runs,
}


def plot(rows: list[Row], folder: Path) -> None:
    """Draw speed over copies and robots, and seconds over transitions and runs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    def lines(axes: Any, part: str, x: str, series: dict[str, tuple[str, str]]) -> None:
        for device in dict.fromkeys(row["device"] for row in rows if row["part"] == part):
            for task in dict.fromkeys(row.get("task", "") for row in rows if row["part"] == part):
                own = [row for row in rows if (row["part"], row["device"], row.get("task", "")) == (part, device, task)]
                for key, (label, style) in series.items():
                    points = [(row[x], row[key]) for row in own if row.get(key)]
                    if points:
                        name = ", ".join(each for each in (task.removesuffix("-v1").removesuffix("-v0"), label, device) if each)
                        axes.plot(*zip(*points, strict=True), style, marker="o", markersize=3, linewidth=1.2, label=name)
        axes.set(xscale="log", yscale="log", xlabel=x)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, frameon=False)

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    lines(left, "copies", "copies", {"steps_per_s": ("steps", "--"), "learning_per_s": ("learning", "-")})
    lines(right, "robots", "robots", {"steps_per_s": ("", "-")})
    left.set(ylabel="environment steps per second", title="Tasks of tensors")
    right.set(ylabel="robot steps per second", title="quadruped-flat, stepped", ylim=(1e3, None))
    figure.savefig(folder / "growth-speed.png", dpi=110)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    lines(left, "saves", "transitions", {"first_s": ("everything", "-"), "again_s": ("1,000 more steps", "--")})
    lines(right, "runs", "runs", {"first_s": ("all read", "-"), "again_s": ("unchanged", "--")})
    left.set(ylabel="seconds", title="A save of a replay buffer")
    right.set(ylabel="seconds", title="The list of runs")
    figure.savefig(folder / "growth-storage.png", dpi=110)


if __name__ == "__main__":
    sys.exit(main())
