"""The columns of a table of runs: which are shown, what their cells say, and the same as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from etude.cli.runs.words import age, moment, number
from etude.files.printable import printable_line
from etude.runs.indexed_run import MONITOR, IndexedRun
from etude.runs.run_keys import FACTS, RunKeys, is_result, value_of
from etude.telemetry.readable import duration

HEADINGS = {"id": "RUN", "env_steps": "STEPS", "best_step": "BEST AT STEP", "elapsed_s": "TOOK"}
# In a narrow terminal these give way, the first one first; who the run is and what came of it stays.
GIVE_WAY = ("age", "tags", "group", "algorithm", "environment", "last")
_NUMERIC = ("seed", "age")


def default_columns(runs: Sequence[IndexedRun], sort: str | None) -> list[str]:
    """Return the columns worth showing for these runs; `sort` is a resolved key and always among them."""
    says_what = all((run.environment or "") in run.id and (run.algorithm or "") in run.id for run in runs)
    columns = ["id", *([] if says_what else ["environment", "algorithm"]), "status", "env_steps", "best", "last"]
    columns += [key for key in ("group", "tags") if any(value_of(run, key) for run in runs)]
    if sort is not None and sort not in (*columns, "age", "created", MONITOR):  # `last` is the monitored metric
        columns.append(sort)
    return [*columns, "age"]


def chosen_columns(text: str, keys: RunKeys) -> list[str]:
    """Return the keys of ``--columns id,best,algorithm.gamma``."""
    return [keys.resolve(word.strip()) for word in text.split(",") if word.strip()]


def heading(key: str) -> str:
    """Return what stands above a column: capitals for facts, the key itself for metrics and settings."""
    return HEADINGS.get(key) or (key.upper() if key in FACTS else key)


def is_numeric(key: str) -> bool:
    """Whether a column is aligned to the right."""
    return key != "created" and (is_result(key) or key in _NUMERIC)


def cell(run: IndexedRun, key: str) -> str:
    """Return what a table says about one key of one run."""
    return printable_line(_cell(run, key))


def _cell(run: IndexedRun, key: str) -> str:
    value = value_of(run, key)
    if value is None or value == []:
        return "-"
    match key:
        case "env_steps":
            unfinished = run.total_steps and run.env_steps is not None and run.env_steps < run.total_steps
            return f"{value:,} ({100 * value // run.total_steps}%)" if unfinished and run.total_steps else f"{value:,}"
        case "age":
            return age(value)
        case "created" | "cleaned":
            return moment(value)
        case "elapsed_s":
            return duration(value)
        case "commit":
            return value[:12]
        case "tags":
            return ", ".join(value)
        case "total_steps" | "best_step" | "updates" | "episodes":
            return f"{value:,}"
        case "seed":
            return str(value)
    if "/" in key or key in ("best", "last"):
        return number(value)
    return value if isinstance(value, str) else json.dumps(value)


def as_json(run: IndexedRun, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a run as a JSON object: everything known of it, or the columns asked for."""
    if columns is not None:
        return {key: _standard(value_of(run, key)) for key in columns}
    facts = {key: value_of(run, key) for key in FACTS if key != "age"}
    return {**facts, "metrics": _standard(run.metrics), "config": _standard(run.config)}


def _standard(value: Any) -> Any:
    """Bare NaN and Infinity aren't JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _standard(item) for key, item in value.items()}
    return [_standard(item) for item in value] if isinstance(value, list) else value
