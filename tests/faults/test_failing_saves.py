"""Whichever call of a save fails, and however, the checkpoints before it are whole and the next save gets through."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from etude.errors import CheckpointError
from etude.runs.checkpoint import CheckpointStore
from tests.faults.failing_disk import ERRORS, FailingDisk, failing


def save(store: CheckpointStore, step: int) -> None:
    weight = torch.full((30, 10), float(step))
    parts = {"policy": {"w": weight}, "shared": {"w": weight, "step": step}, "rank/0": {"t": torch.arange(5)}}
    store.save(parts, counters={"env_steps": step, "updates": step}, metadata={}, best=step % 2 == 0)


def newest_step(store: CheckpointStore) -> int:
    found = store.newest_whole()
    state = found.load()["shared"]
    assert isinstance(state, dict)
    assert (state["w"] == state["step"]).all()
    for checkpoint in store.list():
        checkpoint.verify()
    return state["step"]


@pytest.fixture
def saved_twice(tmp_path: Path) -> Path:
    store = CheckpointStore(tmp_path / "template", keep=2)
    with failing(FailingDisk(tmp_path)):
        save(store, 1)
        save(store, 2)
    return store.directory


def calls_of_a_save(template: Path, place: Path) -> int:
    shutil.copytree(template, place, symlinks=True)
    with failing(FailingDisk(place)) as disk:
        save(CheckpointStore(place, keep=2), 3)
    shutil.rmtree(place)
    kinds = {call.operation for call in disk.calls}
    assert kinds == {"open", "write", "fsync", "mkdir", "rename", "replace", "symlink"}
    assert {Path(call.path).name for call in disk.calls} >= {"manifest.json", "state.json", "tensors.safetensors", "last"}
    return len(disk.calls)


def _saved(store: CheckpointStore) -> bool:
    try:
        save(store, 3)
    except CheckpointError as error:
        told = str(error)
    else:
        return True
    assert "could not be saved in" in told
    assert "earlier checkpoints are untouched" in told
    return False


@pytest.mark.parametrize("for_good", [True, False], ids=["from then on", "once"])
def test_a_failure_of_any_call_leaves_the_earlier_checkpoints_whole(for_good: bool, saved_twice: Path, tmp_path: Path) -> None:
    codes = list(ERRORS.values())
    count = calls_of_a_save(saved_twice, tmp_path / "counted")
    assert count > 40
    refused = 0
    for number in range(count):
        place = tmp_path / f"{number}"
        shutil.copytree(saved_twice, place, symlinks=True)
        store = CheckpointStore(place, keep=2)
        fails = (lambda n, _, at=number: n >= at) if for_good else (lambda n, _, at=number: n == at)
        with failing(FailingDisk(place, fails, codes[number % len(codes)])) as disk:
            refused += not _saved(store)
        # Once the folder has its name the checkpoint is there, even if a later sync or link failed.
        assert newest_step(store) in (2, 3)
        if "rename" in {call.operation for call in disk.calls[:number]}:
            assert newest_step(store) == 3
        with failing(FailingDisk(place)):
            save(store, 4)
        assert newest_step(store) == 4
        assert [path.name for path in place.iterdir() if path.name.startswith(".")] == []
        shutil.rmtree(place)
    # A link that can't be made is written as a text file instead, and what can't be deleted is deleted the next time.
    assert refused > 0.9 * count
