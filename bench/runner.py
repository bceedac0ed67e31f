"""Runs the sides of a bench in turn, each measurement in a process of its own, and keeps the best of several."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tasks
from benches import Bench, Side

HERE = Path(__file__).resolve().parent
DEFAULT_PEERS = HERE / ".peers"
NO_PEERS = "not installed: bench/install_peers.sh"
TIMEOUT_S = 900


@dataclass(frozen=True)
class Machine:
    """Where measurements are made, and with what."""

    cpus: int
    """Processors that each measurement may use."""
    peers: Path | None
    """The peers' python, if there is one."""
    scratch: Path
    """Working directory and compiler cache: empty at first, so that first compilations are cold."""
    checkout: Path = HERE.parent
    """The version of Etude to measure, with the sides as it has them."""


@contextmanager
def machine(peers: Path | None = None, cpus: int | None = None) -> Iterator[Machine]:
    """Prepare the machine; `peers` is a virtual environment or its python, `cpus` at most what there is."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as scratch:
        yield Machine(min(cpus or 2, available), _peers_python(peers or DEFAULT_PEERS), Path(scratch))


def measure(bench: Bench, on: Machine, *, repeats: int, report: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Measure every side `repeats` times, taking turns (A, B, C, A, B, C, ...), and return the bench's part of the results."""
    answers: dict[tuple[str, int], list[dict[str, Any]]] = {}
    turns = [(side, threads) for side in bench.sides for threads in side.thread_counts(on.cpus)]
    loads = [_load()]
    for repeat in range(repeats):
        for side, threads in turns:
            past = answers.setdefault((side.name, threads), [])
            if past and (past[-1]["status"] != "ok" or _is_hopeless(side, threads, answers)):
                continue
            past.append(measure_once(bench, side, threads, on))
            report(_progress(bench, side, threads, repeat, repeats, past[-1]))
        loads.append(_load())
    sides = [_summary(side, {n: answers[side.name, n] for n in side.thread_counts(on.cpus)}) for side in bench.sides]
    return {
        "name": bench.name,
        "group": bench.group,
        "unit": bench.unit,
        "task": tasks.as_request(bench.task),
        "repeats": repeats,
        "load_average": loads,
        "sides": sides,
        "ratios": ratios(sides),
    }


def measure_once(bench: Bench, side: Side, threads: int, on: Machine) -> dict[str, Any]:
    """Run one side once and return its answer."""
    python = on.peers if side.peers else Path(sys.executable)
    if python is None:
        return {"status": "not installed", "reason": NO_PEERS}
    request = {"task": tasks.as_request(bench.task), "threads": threads, "cpus": on.cpus, **side.options}
    variables = _variables(threads, on)
    command = [str(python), "-m", f"sides.{side.module}", json.dumps(request)]
    try:
        # Not in the checkout: MuJoCo leaves a log file in the working directory.
        done = subprocess.run(
            command, cwd=on.scratch, env={**os.environ, **variables}, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return {"status": "failed", "reason": f"no answer after {TIMEOUT_S} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        return {"status": "failed", "reason": f"exit {done.returncode}: {said}"}
    return {**json.loads(lines[-1]), "variables": {k: v for k, v in variables.items() if k != "PYTHONPATH"}}


def ratios(sides: list[dict[str, Any]]) -> dict[str, float]:
    """Return Etude's speed over everyone's, for each pair that was measured."""
    rates = {side["name"]: side["rate"] for side in sides if side["rate"] is not None}
    ours = [side["name"] for side in sides if side["ours"] and side["name"] in rates]
    return {f"{own} / {other}": rates[own] / rates[other] for own in ours for other in rates if own != other}


def describe(on: Machine) -> dict[str, Any]:
    """Return the facts about this machine that numbers depend on."""
    return {
        "cpu": cpu_model(),
        "cpus_in_machine": os.cpu_count(),
        "cpus_used": on.cpus,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "peers": None if on.peers is None else str(on.peers),
    }


def cpu_model() -> str:
    """Return the processor's name, as exactly as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _summary(side: Side, by_threads: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    """One entry for a side: its faster thread count, best of all repeats."""
    rates = {n: [a["rate"] for a in answers if a["status"] == "ok"] for n, answers in by_threads.items()}
    measured = {n: values for n, values in rates.items() if values}
    problems = [a for answers in by_threads.values() for a in answers if a["status"] != "ok"]
    entry: dict[str, Any] = {
        "name": side.name,
        "label": side.label,
        "ours": side.ours,
        "status": "ok" if measured else problems[0]["status"],
        "reason": problems[0]["reason"] if problems else None,
        "rate": None,
        "threads": None,
        "rates_by_threads": {str(n): values for n, values in rates.items()},
    }
    if not measured:
        return entry
    threads = max(measured, key=lambda n: max(measured[n]))
    answers = [a for a in by_threads[threads] if a["status"] == "ok"]
    best = max(answers, key=lambda a: a["rate"])
    return {
        **entry,
        "rate": best["rate"],
        "threads": threads,
        "measured_units": best["units"],
        "measured_seconds": best["seconds"],
        "gradient_steps_per_unit": best["gradient_steps_per_unit"],
        "setup_s": min(a["setup_s"] for a in answers),
        # The scratch directory begins empty: the first repeat finds no compiler cache, later ones do.
        "compile_first_s": answers[0]["warmup_extra_s"],
        "compile_again_s": min(a["warmup_extra_s"] for a in answers[1:]) if len(answers) > 1 else None,
        "resolved": best["resolved"],
        "versions": best["versions"],
        "variables": best["variables"],
    }


def _is_hopeless(side: Side, threads: int, answers: dict[tuple[str, int], list[dict[str, Any]]]) -> bool:
    """Whether another thread count of the same side was more than twice as fast: it is the one that will count."""
    firsts = {n: past[0].get("rate", 0.0) for (name, n), past in answers.items() if name == side.name and past}
    return 2 * firsts[threads] < max(firsts.values())


def _variables(threads: int, on: Machine) -> dict[str, str]:
    variables = {
        "PYTHONPATH": os.pathsep.join(str(on.checkout / folder) for folder in ("bench", "src")),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "TORCHINDUCTOR_CACHE_DIR": str(on.scratch / "inductor"),
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONWARNINGS": "ignore",
    }
    if threads == 1:
        variables |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "NPROC": "1"}
    return variables


def _peers_python(place: Path) -> Path | None:
    candidates = (place / "bin" / "python", place / "Scripts" / "python.exe", place)
    return next((path.absolute() for path in candidates if path.is_file()), None)


def _load() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _progress(bench: Bench, side: Side, threads: int, repeat: int, repeats: int, got: dict[str, Any]) -> str:
    outcome = f"{got['rate']:,.0f} {bench.unit}" if got["status"] == "ok" else got["reason"]
    return f"{bench.name} {repeat + 1}/{repeats}  {side.name} (threads {threads}): {outcome}"
