"""Etude's robots beside mjlab with rsl_rl on one machine, in turn, each measurement in a process of its own.

python bench/robots.py --mjlab FOLDER                    # the Go1 task, 4,096 robots: Etude, mjlab, Etude, mjlab, ...
python bench/robots.py --own --robots 4096 16384         # Etude alone: its quadruped with everything on
python bench/robots.py --own --way "as is" --way compiled experiment.compile=on          # and in several ways, in turn
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 580
"""Seconds for one measurement; the first one compiles the simulator's kernels."""


class Side(NamedTuple):
    """Who is measured, and how it is started."""

    name: str
    python: str
    path: str
    """Its PYTHONPATH."""
    arguments: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure in turn, print a table and write the JSON."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.own and (options.way or options.profile):
        parser.error("--way and --profile are of --own")
    sides = _own_sides(options) if options.own else _both_sides(options)
    results: dict[int, dict[str, Any]] = {}
    for count in options.robots:
        for result in _measure(count, sides, options):
            results[count] = result
            if options.json:  # written down as it grows: a session on a GPU may be cut short
                options.json.write_text(json.dumps([*results.values()], indent=2) + "\n", encoding="utf-8")
        _show(results[count])
    return int(any(side["failed"] for result in results.values() for side in result["sides"]))


def _both_sides(options: argparse.Namespace) -> list[Side]:
    packages = options.mjlab or [Path(part) for part in options.mjlab_path.split(os.pathsep) if part]
    named = [word for folder in packages for word in ("--mjlab", str(folder))]
    path = options.mjlab_path or os.pathsep.join(map(str, packages))
    return [_etude(options, "etude", ("go1", *named)), Side("mjlab", options.mjlab_python, path, ("robots_mjlab.py",))]


def _own_sides(options: argparse.Namespace) -> list[Side]:
    profile = ("--profile",) if options.profile else ()
    ways = options.way or [[""]]
    return [
        _etude(options, f"{task}, {way}" if way else f"etude {task}", (task, *profile), words)
        for task in options.tasks
        for way, *words in ways
    ]


def _etude(options: argparse.Namespace, name: str, arguments: tuple[str, ...], more: Sequence[str] = ()) -> Side:
    words = ("--words", *options.words, *more) if options.words or more else ()
    return Side(name, options.etude_python, options.etude_path, ("robots_etude.py", *arguments, *words))


def _measure(robots: int, sides: Sequence[Side], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure A, B, A, B, ... and yield what is known after each round."""
    answers: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    for turn in range(options.rounds):
        for side in sides:
            answer = _measure_once(robots, side, options)
            answers[side.name].append(answer)
            told = answer.get("failed") or f"{answer['steps_per_s']:,.0f} env-steps/s"
            sys.stderr.write(f"{robots} robots {turn + 1}/{options.rounds}  {side.name}: {told}\n")
            sys.stderr.flush()
        yield _result(robots, answers, options)


def _result(robots: int, answers: dict[str, list[dict[str, Any]]], options: argparse.Namespace) -> dict[str, Any]:
    summaries = [_summary(name, given) for name, given in answers.items()]
    first = summaries[0]
    for other in summaries[1:]:
        if first["failed"] is None and other["failed"] is None and not options.own:
            other["etude_is_faster"] = {key: first[key] / other[key] for key in ("median", "best")}
    return {"robots": robots, "rounds": len(summaries[0]["answers"]), "iterations": options.iterations, "sides": summaries}


def _measure_once(robots: int, side: Side, options: argparse.Namespace) -> dict[str, Any]:
    script, *rest = side.arguments
    sizes = ("--num-envs", robots, "--iterations", options.iterations, "--warm-up", options.warm_up, "--seed", options.seed)
    device = ("--device", options.device) if options.device else ()
    # Words take all that follow them, so they stand last.
    at = rest.index("--words") if "--words" in rest else len(rest)
    command = [side.python, str(HERE / script), *rest[:at], *map(str, sizes), *device, *rest[at:]]
    variables = {**os.environ, "PYTHONPATH": side.path, "MUJOCO_GL": "disable", "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer after {TIMEOUT_S} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        sys.stderr.write(done.stderr[-4000:] + "\n")
        return {"failed": f"exit {done.returncode}: {(done.stderr.strip().splitlines() or ['nothing was said'])[-1]}"}
    return json.loads(lines[-1])


def _summary(name: str, answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One entry for a side: the median over rounds of the median iteration, and the best round's."""
    good = [answer for answer in answers if "failed" not in answer]
    if len(good) < len(answers):
        return {"name": name, "failed": next(answer["failed"] for answer in answers if "failed" in answer), "answers": answers}
    speeds = [answer["steps_per_s"] for answer in good]
    return {
        "name": name,
        "failed": None,
        "median": statistics.median(speeds),
        "best": max(speeds),
        "worst": min(speeds),
        "collect_s": statistics.median(answer["collect_s"] for answer in good),
        "learn_s": statistics.median(answer["learn_s"] for answer in good),
        "answers": answers,
    }


def _show(result: dict[str, Any]) -> None:
    lines = [f"{result['robots']:,} robots, {result['rounds']} rounds of {result['iterations']} iterations, env-steps/s"]
    width = max(14, *(len(side["name"]) + 2 for side in result["sides"]))
    lines.append(f"{'side':<{width}}{'median':>12}{'best':>12}{'worst':>12}{'collect s':>11}{'learn s':>9}{'Etude ÷ side':>16}")
    for side in result["sides"]:
        if side["failed"] is not None:
            lines.append(f"{side['name']:<{width}}{side['failed']}")
            continue
        speeds = "".join(f"{side[key]:>12,.0f}" for key in ("median", "best", "worst"))
        ratio = side.get("etude_is_faster")
        told = "" if ratio is None else f"{ratio['median']:.2f} ({ratio['best']:.2f})"
        lines.append(f"{side['name']:<{width}}{speeds}{side['collect_s']:>11.3f}{side['learn_s']:>9.3f}{told:>16}")
    sys.stdout.write("\n".join(lines) + "\n\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    environment = os.environ.get
    here = environment("PYTHONPATH", "")
    parser.add_argument("--own", action="store_true", help="Etude alone, on --tasks")
    parser.add_argument("--tasks", nargs="+", default=["full"], choices=["full", "flat", "rough"], help="with --own")
    parser.add_argument(
        "--way", nargs="+", action="append", default=[], metavar=("NAME", "KEY=VALUE"),
        help="with --own: a way to run, with more settings; several are measured in turn",
    )  # fmt: skip
    parser.add_argument("--profile", action="store_true", help="with --own: also count kernels, and name the costliest")
    parser.add_argument("--robots", type=int, nargs="+", default=[4096])
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side")
    parser.add_argument("--iterations", type=int, default=30, help="timed iterations of each")
    parser.add_argument("--warm-up", type=int, default=10, help="iterations before them")
    parser.add_argument("--device", help="default: the first GPU, if there is one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mjlab", type=Path, action="append", default=[], help="the folder of packages that has mjlab")
    parser.add_argument("--mjlab-python", default=environment("MJLAB_PYTHON", sys.executable), help="also MJLAB_PYTHON")
    parser.add_argument("--mjlab-path", default=environment("MJLAB_PATH", ""), help="its PYTHONPATH; also MJLAB_PATH")
    parser.add_argument("--etude-python", default=environment("ETUDE_PYTHON", sys.executable), help="also ETUDE_PYTHON")
    parser.add_argument("--etude-path", default=environment("ETUDE_PATH", here), help="its PYTHONPATH; also ETUDE_PATH")
    parser.add_argument("--words", nargs="*", default=[], metavar="KEY=VALUE", help="more settings for Etude")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write everything there as well")
    return parser


if __name__ == "__main__":
    sys.exit(main())
