"""FlashSAC beside its published returns: `python bench/flash_sac.py --root FOLDER [--deadline-s 1200] [--jobs 10]`.

Every task and seed is a run of its own in a process of its own, several side by side, in FOLDER: started once more, each goes
on where it stopped. After 100,000 steps, and of HalfCheetah and Humanoid with seed 1 after 500,000 too, the policy is measured
on 100 fresh episodes; when the deadline comes, where it stands. The JSON grows with all that is known. The step size falls over
a million steps, as published, whatever part of them is taken.

Published are the authors' own files (Holiday-Robot/FlashSAC at 87edc90, `results/stateRL_cpusim`): v4, five seeds. Intervals
are those of means over as many seeds, drawn from their five (95%).
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import queue
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PUBLISHED: dict[str, dict[int, list[int]]] = {
    "HalfCheetah-v5": {100_000: [9738, 9856, 9685, 9695, 10101], 500_000: [12408, 12521, 11853, 12083, 11942]},
    "Humanoid-v5": {100_000: [7469, 6652, 6853, 1834, 7884], 500_000: [11768, 11650, 11314, 10609, 11497]},
    "Hopper-v5": {100_000: [966, 2765, 3557, 854, 2462], 500_000: [3128, 3818, 4072, 4017, 3310]},
    "Walker2d-v5": {100_000: [5140, 2920, 3567, 562, 4306], 500_000: [6702, 7178, 7078, 6648, 6113]},
    "Ant-v5": {100_000: [5816, 3783, 2901, 2079, 1402], 500_000: [7082, 6723, 6910, 6840, 5793]},
}
AS_PUBLISHED = {"Ant-v5": ("environment.kwargs={include_cfrc_ext_in_observation: false, contact_cost_weight: 0}",)}
"""What makes a task of v5 that of v4: its Ant neither sees contacts nor pays for them."""
LONG = ("HalfCheetah-v5", "Humanoid-v5")
"""What goes on with its first seed, and begins before all others."""
WHOLE_RUN = 1_000_000
QUIET = ("evaluation.every_steps=0", "logging.terminal=false", "logging.report=false", "checkpoint.keep=1")
Row = dict[str, Any]
Job = tuple[str, int, list[int]]
"""Task, seed, and after how many steps it is measured."""


def main() -> int:
    """Train, measure, and say what came of it."""
    options = _parser().parse_args()
    if options.quick:
        options.task, options.seeds, options.steps, options.long, options.episodes = ["Pendulum-v1"], [1], 500, 1000, 4
    options.root = options.root or Path(tempfile.mkdtemp(prefix="etude-flash-"))
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    until = time.monotonic() + options.deadline_s
    jobs = _jobs(options)
    known = _known(options.out)
    waiting, running, rows = list(jobs), dict[str, Any](), dict[str, Row]()
    while waiting or running:
        while waiting and len(running) < options.jobs and time.monotonic() < until:
            job = waiting.pop(0)
            running[_name(job)] = context.Process(
                target=_job, args=(job, known.get(_name(job), {}), options, until, answers), daemon=True
            )
            running[_name(job)].start()
        if time.monotonic() >= until:
            waiting.clear()
        told = _waited_for(answers)
        if told is not None:
            rows[_name(told["job"])] = told
            if "said" in told:
                print(told["said"], flush=True)
        for name, process in list(running.items()):
            if rows.get(name, {}).get("is_over") or not process.is_alive():
                process.join(10)
                del running[name]
        _write(options, rows)
    print("\n".join(_table(rows)), flush=True)
    return 0 if len(rows) == len(jobs) and all("error" not in row for row in rows.values()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", default=list(PUBLISHED), metavar="ID")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=100_000, help="of every run")
    parser.add_argument("--long", type=int, default=500_000, help="of HalfCheetah and Humanoid with the first seed; 0: as all")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=10, help="trainings side by side")
    parser.add_argument("--deadline-s", type=float, default=3600.0, help="stop training then, and measure what is there")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--words", nargs="+", default=["experiment.tf32=true"], metavar="WORD", help="more settings")
    parser.add_argument("--root", type=Path, metavar="FOLDER", help="where runs are, and go on from (default: a temporary one)")
    parser.add_argument("--quick", action="store_true", help="one tiny training, to see that it runs")
    parser.add_argument("--out", type=Path, metavar="FILE")
    return parser


def _jobs(options: argparse.Namespace) -> list[Job]:
    """Return what there is to do: what takes longest first, and then task by task."""
    first, found = options.seeds[0], list[Job]()
    for task, seed in itertools.product(options.task, options.seeds):
        is_long = options.long > options.steps and seed == first and (task in LONG or options.quick)
        found.append((task, seed, [options.steps, options.long] if is_long else [options.steps]))
    return sorted(found, key=lambda job: -len(job[2]))


def _known(path: Path | None) -> dict[str, Row]:
    """Return what was measured before, by run."""
    rows = json.loads(path.read_text())["rows"] if path is not None and path.exists() else []
    return {f"{row['task']}-{row['seed']}": row["measured"] for row in rows}


def _name(job: Job) -> str:
    return f"{job[0]}-{job[1]}"


def _waited_for(answers: Any) -> Row | None:
    try:
        return answers.get(timeout=2)
    except queue.Empty:
        return None


def _write(options: argparse.Namespace, rows: dict[str, Row]) -> None:
    if options.out is not None:
        kept = [{key: value for key, value in row.items() if key not in ("job", "said")} for row in rows.values()]
        told = {"jobs": options.jobs, "words": options.words, "table": _table(rows), "rows": kept}
        options.out.write_text(json.dumps(told, indent=1))


# ---- one training ---------------------------------------------------------------------------------------------------------


def _job(job: Job, known: Row, options: argparse.Namespace, until: float, answers: Any) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    row: Row = {"job": job, "task": job[0], "seed": job[1], "measured": known}
    try:
        for told in _trained(job, options, until):
            measured = row["measured"] | told.pop("measured", {})
            row = {**row, **told, "measured": measured}
            answers.put({**row, **({"said": _line(row)} if "said" in told else {})})
            row.pop("said", None)
    except BaseException as error:  # noqa: BLE001 # said in its row; the others go on
        print("\n".join(traceback.format_exc().strip().splitlines()[-12:]), file=sys.stderr, flush=True)
        row["error"] = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:300]}"
        row["said"] = f"{_name(job)}: {row['error']}"
    answers.put({**row, "is_over": True})


def _trained(job: Job, options: argparse.Namespace, until: float) -> Iterator[Row]:
    """Train from where the run stands, sitting by sitting, and yield what becomes known."""
    run = _run(job, options)
    for goal in job[2]:
        stands = run.rows[-1]["env_steps"] if run.rows else 0
        if stands > goal and goal != job[2][-1]:
            continue
        if stands < goal:
            for told in _sitting(run, goal, until):
                stands = told["env_steps"]
                yield told
        yield _measured(run, stands, options)
        if time.monotonic() >= until:
            return


def _run(job: Job, options: argparse.Namespace) -> Any:
    """Return the run, begun if it is not there."""
    from etude import api
    from etude.errors import UserError

    try:
        return api.open_run(_name(job), runs=options.root)
    except UserError:
        words = [f"experiment.seed={job[1]}", f"experiment.name={_name(job)}", f"experiment.device={options.device}"]
        words += [f"training.total_steps={WHOLE_RUN}", "logging.every_steps=500", "checkpoint.every_steps=25_000", *QUIET]
        words += [*AS_PUBLISHED.get(job[0], ()), *(["algorithm.learning_starts=300"] if options.quick else [])]
        return api.start(f"{job[0]}:flash_sac", *words, *options.words, runs=options.root)


def _sitting(run: Any, goal: int, until: float) -> Iterator[Row]:
    """Train up to a number of steps, or until it is time; speed counts once everything is compiled and captured."""
    begun = told = time.monotonic()
    mark, marked = begun, None
    row: Row = {}
    for row in run:
        now = time.monotonic()
        if marked is None and row["updates"] > 0:
            mark, marked = now, row["env_steps"]
        if row["env_steps"] >= goal or now > until:
            break
        if now - told > 15:
            told = now
            yield _stands(row, now - begun)
    now = time.monotonic()
    taken = 0 if marked is None else row["env_steps"] - marked
    shares = {key: row[key] for key in ("time/share/collect", "time/share/update") if key in row}
    speed = {"steps_per_s": taken / (now - mark), "start_s": mark - begun} if taken else {}
    yield {**_stands(row, now - begun), **speed, **shares}


def _stands(row: Row, seconds: float) -> Row:
    told = {"env_steps": row["env_steps"], "updates": row["updates"], "seconds": seconds}
    return {**told, "training_return": row.get("collect/return_mean")}


def _measured(run: Any, steps: int, options: argparse.Namespace) -> Row:
    """Return what the last policy earns, greedily, on episodes with seeds of their own."""
    result = run.evaluate(options.episodes)
    returns = result.returns.tolist()
    mean = sum(returns) / len(returns)
    spread = (sum((each - mean) ** 2 for each in returns) / len(returns)) ** 0.5
    return {"measured": {str(steps): {"return": mean, "std": spread, "returns": returns}}, "env_steps": steps, "said": True}


# ---- what is said ---------------------------------------------------------------------------------------------------------


def _line(row: Row) -> str:
    found = row["measured"][str(row["env_steps"])]
    speed = f"; {row['steps_per_s']:,.0f} steps/s, started in {row['start_s']:.0f} s" if row.get("steps_per_s") else ""
    earned = f"{found['return']:,.0f} ± {found['std']:,.0f}"
    return f"{row['task']} seed {row['seed']}: {earned} after {row['env_steps']:,} steps{speed}"


def _table(rows: dict[str, Row]) -> list[str]:
    """Return a line for each task and number of steps: the mean over seeds beside the published one."""
    found: dict[tuple[str, int], list[float]] = {}
    for row in rows.values():
        for steps, measured in row["measured"].items():
            found.setdefault((row["task"], int(steps)), []).append(measured["return"])
    lines = []
    for (task, steps), returns in sorted(found.items()):
        mean, published = sum(returns) / len(returns), PUBLISHED.get(task, {}).get(steps)
        line = f"{task} after {steps:,} steps: {mean:,.0f} ({', '.join(f'{each:,.0f}' for each in returns)})"
        if published is not None:
            low, high = _interval(published, len(returns))
            beside = "below" if mean < low else "above" if mean > high else "within"
            line += f"; {beside} the published {sum(published) / len(published):,.0f} [{low:,.0f}, {high:,.0f}]"
        lines.append(line)
    return lines


def _interval(published: list[int], seeds: int) -> tuple[float, float]:
    """Return where 95% of the means over so many of the published seeds lie."""
    means = sorted(sum(drawn) / len(drawn) for drawn in itertools.product(published, repeat=min(seeds, 5)))
    return means[int(0.025 * len(means))], means[int(0.975 * len(means))]


if __name__ == "__main__":
    sys.exit(main())
