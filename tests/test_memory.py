"""A long run takes no more memory than a short one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import etude


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (60_000, ("CartPole-v1:ppo", "algorithm.epochs=1")),
        pytest.param(200_000, ("CartPole-v1:ppo", "algorithm.epochs=1"), marks=pytest.mark.slow),
    ],
)
def test_memory_grows_by_less_than_a_mebibyte_in_ten_thousand_steps(steps: int, words: tuple[str, ...], tmp_path: Path) -> None:
    run = etude.start(*words, f"training.total_steps={steps}", "evaluation.episodes=2", runs=tmp_path)
    resident = {int(row["env_steps"]): _resident_mib() for row in run}
    settled = {at: mib for at, mib in resident.items() if at >= steps // 4}
    (first, before), (last, after) = next(iter(settled.items())), list(settled.items())[-1]
    assert last - first > steps // 2
    assert (after - before) / (last - first) * 10_000 < 1
