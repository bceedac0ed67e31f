"""Draw a run's live view as an SVG: ``python -m etude.telemetry.picture RUN_DIR OUT.svg``."""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console as RichConsole

from etude.telemetry.history import History
from etude.telemetry.jsonl import read_rows
from etude.telemetry.live_view import draw
from etude.telemetry.names import Row
from etude.telemetry.run_header import RunHeader


def picture(rows: Sequence[Row], header: RunHeader, width: int = 110) -> str:
    """Return the live view after these rows as an SVG image."""
    history = History()
    for row in rows:
        history.record(row)
    console = drawing_board(width)
    for line in draw(header, history, width, height=40):
        console.print(line, no_wrap=True, overflow="crop", highlight=False)
    return standalone_svg(console, f"etude train {header.environment}:{header.algorithm}")


def drawing_board(width: int) -> RichConsole:
    """Return a console that keeps what is printed, in colours of its own, whatever terminal happens to make the image."""
    return RichConsole(
        file=io.StringIO(), record=True, width=width, force_terminal=True, color_system="truecolor", no_color=False
    )


def standalone_svg(console: RichConsole, title: str) -> str:
    """Return what was printed as an SVG image that needs nothing from elsewhere."""
    svg = console.export_svg(title=title, unique_id="etude")
    # No fonts to fetch: the reader's own monospaced one instead.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read a finished run's metrics and write the picture of the moment when `--at` of it was done."""
    parser = argparse.ArgumentParser(prog="python -m etude.telemetry.picture", description=main.__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--at", type=float, default=0.6, help="how far the run has come, 0 to 1 (default 0.6)")
    parser.add_argument("--spec", default="CartPole-v1:ppo", help="ENV:ALGO as shown in the picture")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    rows = read_rows(options.run_dir / "metrics.jsonl")
    total = int(max((row["env_steps"] for row in rows), default=0))
    environment, _, algorithm = options.spec.rpartition(":")
    header = RunHeader(
        run_id=options.run_dir.name,
        run_dir=options.run_dir,
        environment=environment,
        algorithm=algorithm,
        device=options.device,
        mode="",
        seed=0,
        num_envs=1,
        total_steps=total,
    )
    until_then = [row for row in rows if row["env_steps"] <= options.at * total]
    options.out.write_text(picture(until_then, header), encoding="utf-8")


if __name__ == "__main__":
    main()
