"""The pictures of the documentation as SVG: ``python -m tools.pictures live RUN_DIR OUT.svg`` draws a run's live view,
``python -m tools.pictures runs RUNS OUT.svg`` a table of runs."""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console as RichConsole

from etude.cli.runs.columns import default_columns
from etude.cli.runs.table import drawn_table
from etude.runs.index import find_runs
from etude.telemetry.history import History
from etude.telemetry.jsonl import read_rows
from etude.telemetry.live_view import draw
from etude.telemetry.names import Row
from etude.telemetry.run_header import RunHeader


def live_view(rows: Sequence[Row], header: RunHeader, width: int = 110) -> str:
    """Return the live view after these rows as an SVG image."""
    history = History()
    for row in rows:
        history.record(row)
    console = _drawing_board(width)
    for line in draw(header, history, width, height=40):
        console.print(line, no_wrap=True, overflow="crop", highlight=False)
    return _standalone_svg(console, f"etude train {header.environment}:{header.algorithm}")


def table_of_runs(root: Path, sort: str, width: int = 110) -> str:
    """Return `etude runs list --sort KEY` over the runs in a folder as an SVG image."""
    found = find_runs(root, sort=sort)
    console = _drawing_board(width)
    console.print(drawn_table(found, default_columns(found, sort), width=width, may_drop=True), highlight=False)
    return _standalone_svg(console, f"etude runs list --sort {sort}")


def _drawing_board(width: int) -> RichConsole:
    """Return a console that keeps what is printed, in colours of its own, whatever terminal happens to make the image."""
    return RichConsole(
        file=io.StringIO(), record=True, width=width, force_terminal=True, color_system="truecolor", no_color=False
    )


def _standalone_svg(console: RichConsole, title: str) -> str:
    """Return what was printed as an SVG image that needs nothing from elsewhere."""
    svg = console.export_svg(title=title, unique_id="etude")
    # No fonts to fetch: the reader's own monospaced one instead.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the live view of a run when `--at` of it was done, or a table of runs."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictures", description=main.__doc__)
    parser.add_argument("what", choices=("live", "runs"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--at", type=float, default=0.6, help="how far the run has come, 0 to 1 (default 0.6)")
    parser.add_argument("--spec", default="CartPole-v1:ppo", help="ENV:ALGO as shown in the picture")
    parser.add_argument("--sort", default="best", help="what the table is sorted by")
    options = parser.parse_args(arguments)
    if options.what == "runs":
        options.out.write_text(table_of_runs(options.folder, options.sort), encoding="utf-8")
        return
    rows = read_rows(options.folder / "metrics.jsonl")
    total = int(max((row["env_steps"] for row in rows), default=0))
    environment, _, algorithm = options.spec.rpartition(":")
    header = RunHeader(
        run_id=options.folder.name,
        run_dir=options.folder,
        environment=environment,
        algorithm=algorithm,
        device="cpu",
        mode="",
        seed=0,
        num_envs=1,
        total_steps=total,
    )
    until_then = [row for row in rows if row["env_steps"] <= options.at * total]
    options.out.write_text(live_view(until_then, header), encoding="utf-8")


if __name__ == "__main__":
    main()
