"""The order, the continuing and the table of `bench/flash_sac.py`; one tiny training of it is `--quick`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import flash_sac


def options(*words: str) -> Any:
    return flash_sac._parser().parse_args([*words])


def test_what_takes_longest_comes_first_and_then_task_by_task() -> None:
    jobs = flash_sac._jobs(options())
    assert jobs[:3] == [
        ("HalfCheetah-v5", 1, [100_000, 500_000]),
        ("Humanoid-v5", 1, [100_000, 500_000]),
        ("HalfCheetah-v5", 2, [100_000]),
    ]
    assert len(jobs) == 15
    assert [job[2] for job in flash_sac._jobs(options("--long", "0"))] == [[100_000]] * 15


def test_what_was_measured_before_is_known(tmp_path: Path) -> None:
    out = tmp_path / "flash.json"
    assert flash_sac._known(out) == {}
    row = {"job": 0, "task": "Ant-v5", "seed": 2, "measured": {"100000": {"return": 5.0}}}
    flash_sac._write(options("--out", str(out)), {"Ant-v5-2": row})
    assert flash_sac._known(out) == {"Ant-v5-2": {"100000": {"return": 5.0}}}
    assert json.loads(out.read_text())["table"][0].startswith("Ant-v5 after 100,000 steps: 5 (5); below the published 3,196")


def test_a_mean_is_put_beside_as_many_published_seeds() -> None:
    one, three = (flash_sac._interval([0, 10, 20, 30, 40], seeds) for seeds in (1, 3))
    assert one == (0, 40)
    assert three == pytest.approx((10 / 3, 110 / 3))
