from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from etude.runs.checkpoint import Checkpoint, CheckpointStore
from etude.runs.checkpoint_history import abandoned_spans
from etude.runs.checkpoint_selection import outline_checkpoints

Save = Callable[..., Checkpoint]


def steps(store: CheckpointStore) -> list[int]:
    return [checkpoint.counters["env_steps"] for checkpoint in store.list()]


def test_each_full_one_keeps_the_policy_that_was_the_best_by_then(store: CheckpointStore, save: Save) -> None:
    save(1)
    save(2, policy_only=True, best=True)
    early = save(3)
    save(4, policy_only=True, best=True)
    save(5)
    assert steps(store) == [1, 2, 3, 4, 5]
    assert store.go_on_from(early)
    assert os.readlink(store.directory / "best") == "000001-2-2"
    assert store.find("best").counters["env_steps"] == 2


def test_what_is_abandoned_is_not_the_best_even_without_the_link(store: CheckpointStore, save: Save) -> None:
    # Defect 18.
    early = save(1)
    save(2, policy_only=True, best=True)
    save(3)
    assert store.go_on_from(early)
    save(1)
    assert not any(checkpoint.is_best for checkpoint in store.list())
    assert not any(outline.is_best for outline in outline_checkpoints(store.directory))
    again = CheckpointStore(store.directory, keep=3)
    assert not again.go_on_from(again.newest_whole())
    again.save({"policy": {}, "shared": {}}, counters={"env_steps": 9, "updates": 1}, metadata={})
    assert not any(checkpoint.is_best for checkpoint in again.list()), "a later sitting knows it too"


def test_an_abandoned_best_is_removed_with_the_next_save(store: CheckpointStore, save: Save) -> None:
    store.keep = 1
    save(1, policy_only=True, best=True)
    early = save(2)
    save(3, policy_only=True, best=True)
    store.go_on_from(early)
    save(4)
    assert steps(store) == [1, 4]
    assert store.find("best").counters["env_steps"] == 1


@pytest.mark.parametrize(
    "metadata", [None, {}, {"abandoned": 3}, {"abandoned": [[1]]}, {"abandoned": [["a", 2], [1, None], "xy"]}]
)
def test_what_a_stranger_calls_abandoned_is_nothing(metadata: object) -> None:
    assert abandoned_spans(metadata) == ()
