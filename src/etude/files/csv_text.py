"""Tables as CSV in which a spreadsheet finds no formulas: names of runs, metrics and groups may be a stranger's."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Spreadsheets read the wide ones too.
_FORMULA = ("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠")


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a heading and rows; what a row has no value for stays empty, numbers stay numbers, text stays text."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(name) for name in columns])
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """An apostrophe in front tells a spreadsheet that what begins like a formula is text."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r", "\n")  # the csv module quotes only the latter, and a bare one begins a row
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
