"""Measures Etude beside its peers: `python bench/run.py [all|ppo|replay|envs|collect|loaders|BENCH ...]`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import report
import runner
from benches import BENCHES, CHOICES, choose


def main(arguments: list[str] | None = None) -> int:
    """Run the benches asked for, print the table, write the JSON."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        benches = choose(options.benches, quick=options.quick)
    except ValueError as error:
        parser.error(str(error))
    if options.sides:
        benches = [kept for kept in (bench.with_sides(options.sides) for bench in benches) if kept.sides]
    with runner.machine(options.peers, options.cpus) as machine:
        results = [runner.measure(bench, machine, repeats=options.repeats, report=_say) for bench in benches]
        document = report.document(runner.describe(machine), results, quick=options.quick, repeats=options.repeats)
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    report.show(document)
    return int(any(side["status"] == "failed" for bench in results for side in bench["sides"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    names = sorted({side.name for bench in BENCHES for side in bench.sides})
    parser.add_argument("benches", nargs="*", metavar="BENCH", help=f"any of: {', '.join(CHOICES)}")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each side; the best counts")
    parser.add_argument("--peers", type=Path, help="the peers' virtual environment (default: bench/.peers)")
    parser.add_argument("--cpus", type=int, help="processors each measurement may use (default: 2)")
    parser.add_argument("--sides", nargs="+", choices=names, metavar="SIDE", help=f"only these: {', '.join(names)}")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write everything there as well")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    return parser


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
