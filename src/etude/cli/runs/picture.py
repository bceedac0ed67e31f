"""Draw a table of runs as an SVG: ``python -m etude.cli.runs.picture RUNS OUT.svg``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from etude.cli.runs.columns import default_columns
from etude.cli.runs.table import drawn_table
from etude.runs.index import find_runs
from etude.telemetry.picture import drawing_board, standalone_svg


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the picture of `etude runs list --sort KEY` over the runs in a folder."""
    parser = argparse.ArgumentParser(prog="python -m etude.cli.runs.picture", description=main.__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sort", default="best")
    parser.add_argument("--width", type=int, default=110)
    options = parser.parse_args(arguments)
    found = find_runs(options.runs, sort=options.sort)
    console = drawing_board(options.width)
    table = drawn_table(found, default_columns(found, options.sort), width=options.width, may_drop=True)
    console.print(table, highlight=False)
    options.out.write_text(standalone_svg(console, f"etude runs list --sort {options.sort}"), encoding="utf-8")


if __name__ == "__main__":
    main()
