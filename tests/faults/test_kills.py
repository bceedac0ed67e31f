"""`kill -9` at any moment: the run is resumed to the end that the run which was never killed has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def killed(place: Path, kills: int, seed: int, timeout: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.faults.kill_driver", str(place), str(kills), str(seed)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_run_that_is_killed_a_few_times_ends_as_if_it_never_was(tmp_path: Path) -> None:
    told = killed(tmp_path, kills=3, seed=3, timeout=240)
    assert told["kills"] == 3


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_that_is_killed_fifty_times_ends_as_if_it_never_was(tmp_path: Path) -> None:
    told = killed(tmp_path, kills=50, seed=7, timeout=1100)
    print(told)
    assert told["kills"] == 50
    # Not by luck: there were kills before, within, between and after saves.
    assert told["stages"]["during a save"] >= 3
    assert told["stages"]["between saves"] >= 10
