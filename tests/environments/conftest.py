"""Fixtures for tests of worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.environments.workers.vector import WorkerVector

# The doubles need Box2D, which the environments that optional families are tested in need not have.


@pytest.fixture(scope="module")
def nursery_stays() -> Iterator[None]:
    """Holds a vector open, so that the nursery imports PyTorch once for all tests here."""
    from tests.environments.worker_doubles import make_sensors

    keeper = WorkerVector(make_sensors, 1, workers=1, timeout_s=60)
    yield
    keeper.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves its log where it is used


@pytest.fixture
def opened() -> Iterator[Any]:
    """Opens vectors, and checks that nothing of them is left when they are closed."""
    from tests.environments.worker_doubles import all_gone, workers_of

    vectors: list[tuple[WorkerVector, list[int]]] = []

    def open_one(make: Any, num_envs: int = 4, workers: int = 2, timeout_s: float = 60.0) -> WorkerVector:
        vector = WorkerVector(make, num_envs, workers=workers, timeout_s=timeout_s)
        vectors.append((vector, workers_of(vector)))
        return vector

    yield open_one
    for vector, pids in vectors:
        vector.close()
        vector.close()
        assert all_gone(pids)
