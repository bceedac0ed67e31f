"""The most memory held, by the process and by each phase."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from etude.compute import memory_use
from etude.compute.memory_use import MEMORY, MemoryPeaks
from etude.telemetry.jsonl import read_rows
from tests.runs_compared import rows, train

MUCH = 64  # MiB
needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


def _take_and_leave() -> None:
    # From the system and back to it, whatever the allocator has kept for itself.
    with mmap.mmap(-1, MUCH * 2**20) as taken:
        for page in range(0, len(taken), mmap.PAGESIZE):
            taken[page] = 1


@needs_proc
def test_a_phase_has_the_peak_between_its_rows_and_not_that_of_the_phase_before() -> None:
    peaks = MemoryPeaks()
    peaks.enter("large")
    _take_and_leave()
    peaks.enter("small")
    read = peaks.read()
    assert read[f"{MEMORY}/large"] > read[f"{MEMORY}/small"] + MUCH / 2
    assert read[MEMORY] >= read[f"{MEMORY}/large"]
    assert f"{MEMORY}/large" not in peaks.read(), "a phase that is over is said once"
    peaks.enter("small")
    assert peaks.read()[f"{MEMORY}/small"] >= read[f"{MEMORY}/small"], "entering it again begins nothing anew"


@needs_proc
def test_without_a_way_to_lower_the_mark_what_is_held_counts_and_a_new_height(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_use, "_RESET", tmp_path / "missing" / "clear_refs")
    marks = iter([(100.0, 90.0), (100.0, 60.0), (100.0, 70.0), (100.0, 65.0), (130.0, 80.0)])
    monkeypatch.setattr(memory_use, "_host_marks", lambda: next(marks))
    peaks = MemoryPeaks()
    peaks.enter("first")
    peaks.enter("second")
    assert peaks.read() == {MEMORY: 100.0, f"{MEMORY}/first": 60.0, f"{MEMORY}/second": 70.0}
    assert peaks.read() == {MEMORY: 100.0, f"{MEMORY}/second": 70.0}
    assert peaks.read() == {MEMORY: 130.0, f"{MEMORY}/second": 130.0}


def test_without_proc_the_peak_is_that_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_STATUS", "_RESET"):
        monkeypatch.setattr(memory_use, name, tmp_path / "missing" / name)
    peaks = MemoryPeaks()
    peaks.enter("train")
    read = peaks.read()
    assert read[f"{MEMORY}/train"] == read[MEMORY] > 1


def test_every_phase_of_a_run_has_its_peak_and_the_run_is_the_same(tmp_path: Path) -> None:
    phases = "training.phases=[{name: first, duration_steps: 512}, {name: second}]"
    words = ("training.total_steps=1024", "algorithm.rollout_steps=32", "evaluation.every_steps=0")
    run = train("CartPole-v1:ppo", tmp_path, *words, phases)
    logged = read_rows(run.metrics_path)
    named = [{key.rpartition("/")[2] for key in row if key.startswith(f"{MEMORY}/")} for row in logged]
    assert named[0] == {"first"}
    assert named[-1] == {"second"}
    assert all(names <= {"first", "second"} and names for names in named)
    assert all(row[key] <= row[MEMORY] for row in logged for key in row if key.startswith(f"{MEMORY}/"))
    assert rows(run) == rows(train("CartPole-v1:ppo", tmp_path, *words, phases))
