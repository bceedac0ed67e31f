"""What a run has come to when a sitting ends, as files that a sink may keep elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

Kind = Literal["report", "policy", "checkpoint"]


class Result(NamedTuple):
    """Files that belong together."""

    kind: Kind
    run_id: str
    files: Mapping[str, Path | bytes]
    """Relative names, and where the file lies or what it holds. A policy or a checkpoint is a run directory in small."""
    facts: Mapping[str, Any]
    """Plain values that describe it."""
    is_best: bool = False
