"""A comparison as plain data, for JSON and CSV: full precision, NaN as null."""

from __future__ import annotations

import math
from typing import Any

from etude.comparison.config_diff import Difference
from etude.comparison.curves import AXES
from etude.comparison.notes import notes
from etude.comparison.results import Comparison, Result
from etude.files.csv_text import csv_text
from etude.runs.statistics import CONFIDENCE, RESAMPLES, Estimate

VERSION = 1


def report(comparison: Comparison) -> dict[str, Any]:
    """Return everything a comparison found."""
    return {
        "version": VERSION,
        "axis": comparison.axis,
        "at": comparison.limit,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "metrics": comparison.metrics,
        "groups": [
            {
                "letter": group.letter,
                "label": group.label,
                "environment": group.environment,
                "algorithms": sorted({member.algorithm for member in group.members}),
                "runs": [_run(member.facts) for member in group.members],
            }
            for group in comparison.groups
        ],
        "results": [_result(result) for result in comparison.results],
        "improvements": [
            {
                "metric": each.metric,
                "first": each.first,
                "second": each.second,
                "environments": list(each.environments),
                **_estimate("probability", each.probability),
            }
            for each in comparison.improvements
        ],
        "settings": _differences(comparison, comparison.settings),
        "code": _differences(comparison, comparison.code),
        "packages": _differences(comparison, comparison.packages),
        "notes": notes(comparison),
    }


def table_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return one flat row for each group and metric."""
    rows = []
    for result in comparison.results:
        members = result.group.members
        steps = [member.facts.env_steps for member in members if member.facts.env_steps is not None]
        times = [member.facts.elapsed_s for member in members if member.facts.elapsed_s is not None]
        rows.append(
            {
                "group": result.group.label,
                "environment": result.group.environment,
                "algorithm": " ".join(sorted({member.algorithm for member in members})),
                "metric": result.metric,
                "runs": len(members),
                "seeds": " ".join(str(member.facts.seed) for member in members),
                "env_steps_min": min(steps, default=None),
                "env_steps_max": max(steps, default=None),
                "elapsed_s_mean": sum(times) / len(times) if times else None,
                **{key: value for key, value in _result(result).items() if key not in ("group", "metric", "values", "missing")},
            }
        )
    return rows


def curve_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return one flat row for each group, metric and position."""
    rows = []
    for metric in comparison.metrics:
        for group in comparison.groups:
            band = comparison.band(group, metric)
            for x, value, low, high, runs in zip(*band, strict=True):
                if runs:
                    rows.append(
                        {
                            "group": group.label,
                            "environment": group.environment,
                            "metric": metric,
                            comparison.axis: _position(x),
                            comparison.aggregate: _finite(value),
                            "low": _finite(low),
                            "high": _finite(high),
                            "runs": int(runs),
                        }
                    )
    return rows


def to_csv(rows: list[dict[str, Any]]) -> str:
    """Return rows as CSV; what there is no value for stays empty."""
    return csv_text(list(rows[0]) if rows else [], rows)


def axis_title(axis: str) -> str:
    """Return what an axis is called under a plot."""
    return {"time": "training time in seconds"}.get(axis, AXES[axis])


def _run(facts: Any) -> dict[str, Any]:
    names = ("id", "name", "seed", "status", "env_steps", "elapsed_s", "commit")
    return {name: getattr(facts, name) for name in names} | {"path": str(facts.path)}


def _result(result: Result) -> dict[str, Any]:
    summary = result.summary
    return {
        "group": result.group.letter,
        "metric": result.metric,
        "count": summary.count if summary else 0,
        **_estimate("mean", summary.mean if summary else None),
        "std": summary.std if summary else None,
        "median": summary.median if summary else None,
        **_estimate("iqm", summary.iqm if summary else None),
        "min": summary.low if summary else None,
        "max": summary.high if summary else None,
        "best": result.best,
        "best_is": "min" if result.lowest_is_best else "max",
        **_estimate("optimality_gap", summary.optimality_gap if summary else None),
        "not_finite": result.not_finite,
        "missing": list(result.missing),
        "values": {run: _finite(value) for run, value in result.values.items()},
    }


def _estimate(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    interval = estimate.interval if estimate else None
    return {
        name: estimate.value if estimate else None,
        f"{name}_low": interval.low if interval else None,
        f"{name}_high": interval.high if interval else None,
    }


def _differences(comparison: Comparison, differences: list[Difference]) -> dict[str, dict[str, str]]:
    letters = [group.letter for group in comparison.groups]
    return {each.key: dict(zip(letters, each.values, strict=True)) for each in differences}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _position(x: float) -> float | int:
    return int(x) if float(x).is_integer() else float(x)
