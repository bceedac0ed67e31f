"""What a side does with its clock: steady speed between two points, and one JSON line. Standard library only."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

BEGAN = time.perf_counter()


class NotAvailableError(Exception):
    """What a side should measure is not there, in this version or on this machine."""


class Point(NamedTuple):
    """Where a measurement was at a moment."""

    units: int
    """Environment steps done, or rows for loaders."""
    gradient_steps: int
    at: float


def point(units: int, gradient_steps: int = 0) -> Point:
    """Return where a measurement is now."""
    return Point(units, gradient_steps, time.perf_counter())


def steady(points: Sequence[Point], warmup: int) -> dict[str, Any]:
    """Return the speed from the first point with `warmup` units done to the last one.

        process ──setup_s──▶ points[0] ──warmup_s──▶ first steady point ──seconds──▶ points[-1]

    `warmup_extra_s` is what the warm-up took beyond its share at steady speed: compiling and tracing, mostly.
    """
    start, end = points[0], points[-1]
    first = next(p for p in points if p.units >= warmup)
    if first.at >= end.at:
        raise ValueError(f"nothing was measured after the warm-up of {warmup}: the last point is at {end.units}")
    units, seconds = end.units - first.units, end.at - first.at
    rate = units / seconds
    return {
        "rate": rate,
        "units": units,
        "seconds": seconds,
        "gradient_steps": end.gradient_steps - first.gradient_steps,
        "gradient_steps_per_unit": (end.gradient_steps - first.gradient_steps) / units,
        "setup_s": start.at - BEGAN,
        "warmup_s": first.at - start.at,
        "warmup_extra_s": max(0.0, first.at - start.at - (first.units - start.units) / rate),
    }


def versions(*packages: str) -> dict[str, str]:
    """Return the installed version of each package, without those that are not there."""
    found = {"python": sys.version.split()[0]}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def answer(measure: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Run a side: the request is the first argument, the answer the last line of standard output."""
    request = json.loads(sys.argv[1])
    _keep_to(request["cpus"])
    try:
        result = {"status": "ok", **measure(request)}
    except Exception as error:  # noqa: BLE001 # whatever a side runs into is its answer
        result = {"status": _status(error), "reason": f"{type(error).__name__}: {_first_line(error)}"}
        if isinstance(error, NotAvailableError):
            result["reason"] = str(error)
    sys.stdout.write("\n" + json.dumps(result) + "\n")


def _keep_to(cpus: int) -> None:
    """Let this process and its threads use `cpus` processors, so that nobody's thread pool is larger than another's."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])


def _status(error: Exception) -> str:
    if isinstance(error, NotAvailableError):
        return "not available"
    # Gymnasium and Etude turn a missing package into errors of their own, which say so.
    return "not installed" if isinstance(error, ImportError) or "not installed" in str(error) else "failed"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
