from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.runs import provenance
from etude.runs.run import Run
from tests.faults.tiny_run import only_run, train


@pytest.fixture(autouse=True)
def quick_provenance(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a repository, and without a look at every installed package: many runs are made here."""
    monkeypatch.chdir(tmp_path_factory.mktemp("no-repository"))
    monkeypatch.setattr(provenance, "installed_packages", dict)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where there is such a place: hundreds of runs are written here, and a disk adds nothing but time."""
    in_memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="etude-faults-", dir=in_memory if os.access(in_memory, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that nothing happened to."""
    root: Path = tmp_path_factory.mktemp("whole")
    assert train(root) == 0
    return only_run(root)
