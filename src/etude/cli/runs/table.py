"""A table of runs: drawn to fit a terminal, or plain text in full for a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etude.cli.output import drawing, say, styled
from etude.cli.runs.columns import GIVE_WAY, cell, heading, is_numeric
from etude.runs.indexed_run import IndexedRun

if TYPE_CHECKING:
    from rich.table import Table

_GAP = 2
_STATUS_STYLES = {"running": "cyan", "finished": "green", "failed": "red", "crashed": "red"}
_STYLES = {"id": "bold", "age": "dim", "tags": "magenta", "group": "blue"}


def print_table(runs: Sequence[IndexedRun], columns: Sequence[str], *, may_drop: bool) -> None:
    """Print the runs; columns that are only there by default may give way in a narrow terminal."""
    if not sys.stdout.isatty():
        say(plain_table(runs, columns))
        return
    console = drawing()
    console.print(drawn_table(runs, columns, width=console.width, may_drop=may_drop))


def plain_table(runs: Sequence[IndexedRun], columns: Sequence[str]) -> str:
    """Return the table as text, however wide, nothing cut off."""
    rows = [[heading(key) for key in columns], *([cell(run, key) for key in columns] for run in runs)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(columns))]
    right = [is_numeric(key) for key in columns]
    lines = []
    for row in rows:
        cells = [text.rjust(width) if r else text.ljust(width) for text, width, r in zip(row, widths, right, strict=True)]
        lines.append((" " * _GAP).join(cells).rstrip())
    return "\n".join(lines)


def drawn_table(runs: Sequence[IndexedRun], columns: Sequence[str], *, width: int, may_drop: bool) -> Table:
    """Return the table for a terminal of this width."""
    from rich.table import Table

    shown = _fitting(runs, columns, width) if may_drop else list(columns)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold dim")
    for key in shown:
        # Folded, never shortened: half an id names nothing.
        justify = "right" if is_numeric(key) else "left"
        table.add_column(styled(heading(key)), justify=justify, style=_STYLES.get(key, ""), overflow="fold")
    for run in runs:
        styles = [_STATUS_STYLES.get(run.status, "yellow") if key == "status" else "" for key in shown]
        table.add_row(*(styled(cell(run, key), style=style) for key, style in zip(shown, styles, strict=True)))
    return table


def _fitting(runs: Sequence[IndexedRun], columns: Sequence[str], width: int) -> list[str]:
    from rich.cells import cell_len

    widths = {key: max(cell_len(text) for text in (heading(key), *(cell(run, key) for run in runs))) for key in columns}
    shown = list(columns)
    for key in GIVE_WAY:
        if sum(widths[each] + _GAP for each in shown) - _GAP <= width:
            break
        if key in shown:
            shown.remove(key)
    return shown
