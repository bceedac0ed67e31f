"""One nursery of worker processes for all tests of wrappers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etude.environments.workers.vector import WorkerVector
from tests.environments.worker_doubles import make_sensors


@pytest.fixture(scope="package")
def nursery_stays() -> Iterator[None]:
    """Holds a vector open, so that the nursery imports PyTorch once for all tests here."""
    keeper = WorkerVector(make_sensors, 1, workers=1, timeout_s=60)
    yield
    keeper.close()
