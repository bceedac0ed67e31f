from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from etude.errors import CheckpointError, UserError
from etude.runs.checkpoint import Checkpoint, CheckpointStore

Save = Callable[..., Checkpoint]


def steps(store: CheckpointStore) -> list[int]:
    return [checkpoint.counters["env_steps"] for checkpoint in store.list()]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_the_newest_full_ones_and_the_best_are_kept(store: CheckpointStore, save: Save) -> None:
    save(0, best=True)
    for step in range(1, 7):
        save(step)
    assert steps(store) == [0, 4, 5, 6]


def test_policies_other_than_the_best_are_removed(store: CheckpointStore, save: Save) -> None:
    save(1)
    save(2, policy_only=True, best=True)
    save(3, policy_only=True)
    assert steps(store) == [1, 2, 3]
    save(4, policy_only=True, best=True)
    assert steps(store) == [1, 4]
    assert [checkpoint.kind for checkpoint in store.list()] == ["full", "policy"]


def test_what_last_points_at_is_kept(store: CheckpointStore, save: Save) -> None:
    save(1)
    for step in range(2, 7):
        save(step, last=False)
    assert steps(store) == [1, 4, 5, 6]
    assert os.readlink(store.directory / "last") == "000000-1-2"


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="keep=0: must be at least 1"):
        CheckpointStore(tmp_path, 0)


def test_links_follow_the_saves(store: CheckpointStore, save: Save) -> None:
    save(1, best=True)
    save(2)
    save(3, policy_only=True)
    assert os.readlink(store.directory / "last") == "000001-2-2"
    assert os.readlink(store.directory / "best") == "000000-1-2"


def test_last_needs_no_link(store: CheckpointStore, save: Save) -> None:
    save(1)
    save(2)
    (store.directory / "last").unlink()
    assert store.find("last").counters["env_steps"] == 2
    os.symlink("000000-1-2", store.directory / "last")
    assert store.find("latest").counters["env_steps"] == 2


def test_best_survives_the_loss_of_its_link(store: CheckpointStore, save: Save) -> None:
    save(1, best=True)
    save(2, policy_only=True, best=True)
    (store.directory / "best").unlink()
    save(3)
    assert store.find("best").counters["env_steps"] == 2


def test_an_existing_checkpoint_can_be_marked_best(store: CheckpointStore, save: Save) -> None:
    first = save(1)
    save(2, best=True)
    store.mark_best(first)
    assert store.find("best").name == first.name
    assert [checkpoint.is_best for checkpoint in store.list()] == [True, False]
    first.verify()
    shutil.rmtree(first.path)
    with pytest.raises(UserError, match="is not in"):
        store.mark_best(first)


@pytest.mark.parametrize(
    ("selector", "found"),
    [("last", 2), ("best", 1), ("000000", 0), ("0", 0), ("500", 1), ("000001-500-2", 1), ("1", 1), ("0500", 1)],
)
def test_a_checkpoint_is_found_by_what_a_user_types(store: CheckpointStore, save: Save, selector: str, found: int) -> None:
    save(0)
    save(500, best=True)
    save(1000)
    assert store.find(selector).sequence == found


def test_at_equal_steps_the_one_to_continue_from_is_found(store: CheckpointStore, save: Save) -> None:
    save(500)
    save(500, policy_only=True, best=True)
    assert store.find("500").kind == "full"


@pytest.mark.parametrize("selector", ["", "750", "lst", "../x", "9" * 5000, "\u0663"])
def test_what_is_not_found_lists_what_exists(store: CheckpointStore, save: Save, selector: str) -> None:
    with pytest.raises(UserError, match="no checkpoints"):
        store.find(selector)
    save(500)
    with pytest.raises(UserError, match="which has 000000-500-2"):
        store.find(selector)


def test_where_nothing_is_best_it_is_said_why(store: CheckpointStore, save: Save) -> None:
    save(1)
    with pytest.raises(UserError, match="no evaluation came before a save; there is 000000-1-2") as refused:
        store.find("best")
    assert "did you mean" not in str(refused.value)


def test_the_newest_is_verified_and_the_one_before_it_offered(store: CheckpointStore, save: Save) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint to continue from"):
        store.newest_whole()
    saved = [save(step) for step in (1, 2, 3)]
    save(4, policy_only=True, best=True)
    assert store.newest_whole() == saved[2]
    flip(saved[2].path / "shared" / "tensors.safetensors")
    with pytest.raises(CheckpointError) as raised:
        store.newest_whole()
    assert str(raised.value) == (
        "checkpoint 000002-3-2 is damaged: shared/tensors.safetensors: hash differs; "
        "the one before it is whole: --checkpoint 000001"
    )
    (saved[1].path / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="the newest whole one: --checkpoint 000000"):
        store.newest_whole()
    flip(saved[0].path / "policy" / "state.json")
    with pytest.raises(CheckpointError, match="there is no other whole one"):
        store.newest_whole()


def test_a_damaged_one_is_listed_and_never_deleted(store: CheckpointStore, save: Save) -> None:
    damaged = save(1)
    flip(damaged.path / "manifest.json")
    for step in range(2, 8):
        save(step)
    listed = store.list()
    assert [checkpoint.kind for checkpoint in listed] == ["damaged", "full", "full", "full"]
    with pytest.raises(CheckpointError, match=r"000000-1-2 is damaged: manifest\.json"):
        listed[0].load()
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        store.find("000000").verify()


def test_leftovers_of_a_crash_are_removed_by_the_next_save(store: CheckpointStore, save: Save) -> None:
    save(1)
    (store.directory / ".saving-000001-9-9" / "policy").mkdir(parents=True)
    (store.directory / ".deleting-000000-0-0").mkdir()
    (store.directory / ".last.0123.tmp").symlink_to("nowhere")
    assert len(store.list()) == 1
    save(2)
    assert sorted(os.listdir(store.directory)) == ["000000-1-2", "000001-2-2", "last"]
