"""Shared by every test: what kind it is, one torch thread, and no trace outside the temporary folder."""

from __future__ import annotations

import gc
import getpass
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
import torch

TESTS = Path(__file__).parent
_INDUCTOR = os.path.join(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
"""Where torch's compiler keeps what it makes, unless told otherwise."""
# Of Etude as a user meets it: commands, runs from start to end, processes, pages. All others mirror a package of src/etude.
OF_THE_WHOLE = {"attack", "bench", "cli", "docs", "faults", "verification"}

SLOW_S = 3 * 3600
"""After which a test that trains for minutes is given up."""


def pytest_itemcollected(item: pytest.Item) -> None:
    folder, *rest = item.path.relative_to(TESTS).parts
    item.add_marker("integration" if not rest or folder in OF_THE_WHOLE else "unit")
    if item.get_closest_marker("slow"):
        item.add_marker(pytest.mark.timeout(SLOW_S))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What forks the whole process comes first: later it may have reserved more memory than a kernel gives twice."""
    items.sort(key=lambda item: item.path.name != "test_keyboard.py")


def pytest_collection_finish() -> None:
    """What is imported and collected stays to the end: without this, every full collection looks through all of it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def deterministic_algorithms_off() -> Iterator[None]:
    yield
    if torch.are_deterministic_algorithms_enabled():  # setting it imports torch's compiler
        torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def own_modules_forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module that a test wrote is not found by the next test that writes one of the same name, nor what it registered.

    Worker processes would import it, and with it what it imports of these tests.
    """
    before, places = set(sys.modules), set(sys.path)
    yield
    temporary = str(tmp_path_factory.getbasetemp())
    sys.path[:] = [place for place in sys.path if place in places or not place.startswith(temporary)]
    new = set(sys.modules) - before
    own = {name for name in new if str(getattr(sys.modules[name], "__file__", None) or "").startswith(temporary)}
    for name in own:
        del sys.modules[name]
    if own:
        for name, spec in [*gymnasium.registry.items()]:
            if getattr(spec.entry_point, "__module__", None) in own:
                del gymnasium.registry[name]


@pytest.fixture(scope="session")
def data_homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders that nobody else has. `mktemp` would look through all that thousands of tests have left, to number one more."""
    parent = tmp_path_factory.mktemp("data-homes")
    return (parent / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def home(data_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of its own, so that no test signs runs with the user's key; it is made when something is written there."""
    folder = next(data_homes)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    monkeypatch.setenv("ETUDE_CACHE", str(folder / "cache"))
    # Torch's own cache stays where it is from test to test: what one has compiled, the next need not.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", os.environ.get("TORCHINDUCTOR_CACHE_DIR", _INDUCTOR))
    monkeypatch.delenv("ETUDE_RUNS", raising=False)
    return folder
