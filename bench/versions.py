"""Two versions of Etude in turn on one machine: `python bench/versions.py OTHER_CHECKOUT ppo-cartpole dqn-cartpole`.

A ratio above 1 says that this checkout is the faster one.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import runner
from benches import CHOICES, Bench, Side, choose


def main(arguments: list[str] | None = None) -> int:
    """Measure Etude's own sides of the benches asked for, with either version, and print the best of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the other version's checkout")
    parser.add_argument("benches", nargs="+", metavar="BENCH", help=f"any of: {', '.join(CHOICES)}")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each side; the best counts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args(arguments)
    if not (options.other / "src" / "etude").is_dir():
        parser.error(f"{options.other}: there is no src/etude in it")
    checkouts = {"this": runner.HERE.parent, "other": options.other.resolve()}
    failed = False
    with runner.machine(cpus=2) as machine:
        for bench in choose(options.benches, quick=options.quick):
            for side in (side for side in bench.sides if side.ours):
                machines = {name: replace(machine, checkout=path) for name, path in checkouts.items()}
                rates = _rates(bench, side, machines, options)
                best = {name: max(values, default=0.0) for name, values in rates.items()}
                failed = failed or not all(best.values())
                ratio = best["this"] / best["other"] if best["other"] else float("nan")
                print(f"{bench.name} {side.name}: this {best['this']:,.0f}, other {best['other']:,.0f}, ratio {ratio:.3f}")
    return int(failed)


def _rates(
    bench: Bench, side: Side, machines: dict[str, runner.Machine], options: argparse.Namespace
) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in machines}
    for repeat in range(options.repeats):
        for name in machines if repeat % 2 == 0 else reversed(machines):  # neither version always goes first
            answer = runner.measure_once(bench, side, options.threads, machines[name])
            said = f"{answer['rate']:,.0f}" if answer["status"] == "ok" else answer["reason"]
            print(f"  {bench.name} {side.name} {name}: {said}", file=sys.stderr, flush=True)
            rates[name] += [answer["rate"]] if answer["status"] == "ok" else []
    return rates


if __name__ == "__main__":
    sys.exit(main())
