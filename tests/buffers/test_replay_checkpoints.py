"""A replay's checkpoints: each row is written once, and every checkpoint stays whole for as long as it is kept."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from etude.buffers import store_state
from etude.buffers.columns import leaves
from etude.buffers.replay import ReplayBuffer
from etude.errors import CheckpointError, EtudeError
from etude.runs.checkpoint import Checkpoint, CheckpointStore
from tests.buffers.transitions import transition
from tests.forked import run_forked

ROWS, N = 20, 2
ROW_BYTES = sum(tensor.nbytes for name, column in transition(0, N).items() if name != "next_observation"
                for tensor in leaves({name: column}))  # fmt: skip


@pytest.fixture(autouse=True)
def segments_of_four_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_state, "SMALLEST_SEGMENT", 4 * ROW_BYTES)
    monkeypatch.setattr(store_state, "SEGMENTS_PER_RING", 10**6)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "run" / "checkpoints", keep=2)


def make(rows: int = ROWS) -> ReplayBuffer:
    return ReplayBuffer(rows * N, N, name="memory")


def fill(buffer: ReplayBuffer, count: int) -> None:
    for t in range(buffer.store.written, buffer.store.written + count):
        buffer.add(transition(t, N))


def save(store: CheckpointStore, buffer: ReplayBuffer) -> Checkpoint:
    parts = {"policy": {"w": torch.ones(2)}, "rank/0": {"memory": buffer.state_dict()}}
    return store.save(parts, counters={"env_steps": buffer.store.written, "updates": 0}, metadata={})


def load(checkpoint: Checkpoint, rows: int = ROWS) -> ReplayBuffer:
    buffer = make(rows)
    state: Any = checkpoint.load(["rank/0"])["rank/0"]
    buffer.load_state_dict(state["memory"])
    return buffer


def assert_same(one: ReplayBuffer, other: ReplayBuffer) -> None:
    left, right = (buffer.sample_many(2, 300, Generator().manual_seed(1)) for buffer in (one, other))
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(leaves(left), leaves(right), strict=True))
    assert (one.store.written, one.store.begin) == (other.store.written, other.store.begin)


def files(store: CheckpointStore) -> dict[str, os.stat_result]:
    return {str(path.relative_to(store.directory)): path.stat() for path in store.directory.glob("replay/memory/*")}


@pytest.mark.parametrize("steps", [0, 1, 3, 4, 19, 20, 21, 43, 60])
def test_the_next_batch_after_loading_is_the_same(store: CheckpointStore, steps: int) -> None:
    buffer = make()
    fill(buffer, steps)
    loaded = load(save(store, buffer))
    assert loaded.size == buffer.size
    for _ in range(2):
        if buffer.size:
            assert_same(buffer, loaded)
        fill(buffer, 3)
        fill(loaded, 3)
    assert_same(buffer, loaded)


def test_each_row_is_written_once(store: CheckpointStore) -> None:
    """By inode: a file that is still the same one was not written again."""
    buffer, written = make(), {}
    for _ in range(16):
        fill(buffer, 5)
        save(store, buffer)
        now = {name: status.st_ino for name, status in files(store).items()}
        assert all(written.get(name, inode) == inode for name, inode in now.items())
        written |= now
    first_rows = sorted(int(name.split("/")[-1].split("-")[0]) for name in written)
    assert first_rows == list(range(0, 76, 4)), "every row is in one segment, and in no other; the newest in none yet"


def test_a_save_writes_little_more_than_the_new_rows(store: CheckpointStore) -> None:
    buffer = make(rows=400)
    fill(buffer, 1000)
    before = _bytes_written(save(store, buffer), set())
    known = set(files(store))
    fill(buffer, 5)
    after = _bytes_written(save(store, buffer), known)
    assert before > 395 * ROW_BYTES
    # The new rows, the segments at both ends that are not whole, headers, and the list of segments.
    assert after < (5 + 4 + 4) * ROW_BYTES + 40_000


def _bytes_written(checkpoint: Checkpoint, known: set[str]) -> int:
    own = sum(record.size for record in checkpoint.files.values())
    return own + sum(record.size for path, record in checkpoint.segments.items() if path not in known)


def test_overwriting_rows_in_memory_leaves_older_checkpoints_as_they_were(store: CheckpointStore) -> None:
    buffer, as_it_was = make(), make()
    fill(buffer, 33)
    fill(as_it_was, 33)
    older = save(store, buffer)
    fill(buffer, 35)
    newer = save(store, buffer)
    assert_same(load(older), as_it_was)
    assert_same(load(newer), buffer)
    older.verify()


def test_segments_go_when_no_checkpoint_needs_them(store: CheckpointStore) -> None:
    buffer = make()
    for _ in range(7):
        fill(buffer, 10)
        save(store, buffer)
        needed = {path for checkpoint in store.list() for path in checkpoint.segments}
        assert set(files(store)) == needed
        assert len(needed) <= 2 * ROWS // 4
        assert len(buffer._saver._stored) <= ROWS // 4, "nor are they remembered"


def test_a_checkpoint_that_can_not_be_read_keeps_every_segment(store: CheckpointStore) -> None:
    buffer = make()
    fill(buffer, 20)
    damaged = save(store, buffer)
    (damaged.path / "manifest.json").write_text("{}")
    for _ in range(3):
        fill(buffer, 20)
        save(store, buffer)
    assert set(damaged.segments) <= set(files(store))


def test_a_segment_that_was_deleted_is_written_again(store: CheckpointStore) -> None:
    buffer = make()
    fill(buffer, 20)
    first = save(store, buffer)
    shutil.rmtree(store.directory / "replay")
    fill(buffer, 2)
    second = save(store, buffer)
    second.verify()
    assert_same(load(second), buffer)
    with pytest.raises(CheckpointError, match=rf"checkpoint {first.name} is damaged: replay/memory/000000000000-.*: missing"):
        first.verify()


def test_damage_to_a_segment_is_found_and_named(store: CheckpointStore) -> None:
    buffer = make()
    fill(buffer, 20)
    saved = save(store, buffer)
    path = store.directory / next(iter(saved.segments))
    whole = path.read_bytes()
    for broken, reason in ((whole[:-1] + bytes([whole[-1] ^ 1]), "hash differs"), (whole[:-5], "bytes instead of")):
        path.write_bytes(broken)
        for attempt in (saved.verify, lambda: load(saved), store.newest_whole):
            with pytest.raises(CheckpointError, match=rf"{saved.name} is damaged: replay/memory/{path.name}: .*{reason}"):
                attempt()
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match="link, which is never followed"):
        saved.verify()


def test_the_policy_loads_without_a_single_segment(store: CheckpointStore) -> None:
    buffer = make()
    fill(buffer, 20)
    saved = save(store, buffer)
    shutil.rmtree(store.directory / "replay")
    assert Checkpoint.open(saved.path).load(["policy"])


def test_a_run_copied_with_its_folder_works(store: CheckpointStore, tmp_path: Path) -> None:
    buffer = make()
    fill(buffer, 27)
    saved = save(store, buffer)
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    moved = CheckpointStore(tmp_path / "elsewhere" / "checkpoints", keep=2)
    loaded = load(moved.newest_whole())
    assert_same(loaded, buffer)
    fill(loaded, 2)
    again = save(moved, loaded)
    again.verify()
    assert len(set(again.segments) - set(saved.segments)) == 1, "the others are where they were"


def test_a_loaded_buffer_writes_none_of_its_segments_again(store: CheckpointStore) -> None:
    buffer = make()
    fill(buffer, 20)
    loaded = load(save(store, buffer))
    before = {name: status.st_ino for name, status in files(store).items()}
    save(store, loaded)
    assert {name: status.st_ino for name, status in files(store).items()} == before


def test_into_another_folder_everything_is_written(store: CheckpointStore, tmp_path: Path) -> None:
    buffer = make()
    fill(buffer, 20)
    save(store, buffer)
    other = CheckpointStore(tmp_path / "other" / "checkpoints", keep=1)
    save(other, buffer).verify()
    assert len(files(other)) == len(files(store))


def test_another_course_from_the_same_checkpoint_does_not_touch_the_first(store: CheckpointStore) -> None:
    """Rolled back and continued otherwise, the rows have the same numbers and other contents."""
    buffer = make()
    fill(buffer, 6)
    fork = save(store, buffer)
    fill(buffer, 10)
    one_way = save(store, buffer)
    other = load(fork)
    for t in range(100, 110):
        other.add(transition(t, N))
    other_way = save(store, other)
    assert_same(load(one_way), buffer)
    assert_same(load(other_way), other)


def test_a_smaller_ring_takes_the_newest_rows_from_segments(store: CheckpointStore) -> None:
    buffer = make()
    fill(buffer, 31)
    loaded = load(save(store, buffer), rows=7)
    assert set((loaded.sample(500, Generator().manual_seed(0))["action"] // 1000).tolist()) == set(range(24, 31))
    fill(loaded, 9)
    save(store, loaded).verify()


def test_equal_rows_are_equal_states_whenever_they_were_saved(tmp_path: Path) -> None:
    often, once = (CheckpointStore(tmp_path / name / "checkpoints", keep=5) for name in ("often", "once"))
    one, other = make(), make()
    for _ in range(7):
        fill(one, 7)
        save(often, one)
    fill(other, 49)
    save(once, other)
    left, right = (store.newest_whole().load(["rank/0"])["rank/0"]["memory"] for store in (often, once))  # type: ignore[index] # a dict
    assert left["segments"] == right["segments"]
    assert len(left["segments"]) > 2
    assert all(torch.equal(left[end]["reward"], right[end]["reward"]) for end in ("head", "tail"))


def test_rows_overwritten_before_they_were_saved_are_never_saved_as_others() -> None:
    buffer = make()
    fill(buffer, 20)
    oldest, *_, newest = buffer.state_dict()["segments"]
    fill(buffer, 1)
    assert newest.load()["action"].tolist() == [[1000 * t, 1000 * t + 1] for t in range(12, 16)]
    with pytest.raises(RuntimeError, match="rows 0 to 4 of buffer 'memory' were overwritten"):
        oldest.load()


def test_a_list_of_segments_with_a_gap_is_refused(store: CheckpointStore) -> None:
    buffer = make()
    fill(buffer, 20)
    state: Any = save(store, buffer).load(["rank/0"])["rank/0"]
    del state["memory"]["segments"][1]
    with pytest.raises(EtudeError, match="rows 4 to 8 are not in the checkpoint"):
        make().load_state_dict(state["memory"])


KILLED_EVERYWHERE = """
import os, sys
from pathlib import Path
import torch
from etude.buffers import store_state
from etude.buffers.replay import ReplayBuffer
from etude.runs.checkpoint import CheckpointStore
from tests.buffers.transitions import transition
from tests.forked import run_forked

torch.set_num_threads(1)
store_state.SMALLEST_SEGMENT, store_state.SEGMENTS_PER_RING = 1, 10**6
store = CheckpointStore(Path(sys.argv[1]), keep=2)
buffer = ReplayBuffer(8, 1, name="memory")

def save():
    written = buffer.store.written
    store.save({"policy": {}, "rank/0": buffer.state_dict()}, counters={"env_steps": written, "updates": 0}, metadata={})

def fill(count):
    for t in range(buffer.store.written, buffer.store.written + count):
        buffer.add(transition(t, 1))

fill(9)
save()
for n in range(1, 200):
    child = os.fork()
    if child == 0:
        count = 0
        def dying(original):
            def call(*arguments, **options):
                global count
                count += 1
                if count == n:
                    os._exit(9)
                return original(*arguments, **options)
            return call
        for name in ("fsync", "rename", "replace", "symlink", "mkdir", "unlink"):
            setattr(os, name, dying(getattr(os, name)))
        fill(1)
        save()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    whole = store.newest_whole()
    for checkpoint in store.list():
        checkpoint.verify()
    fresh = ReplayBuffer(8, 1, name="memory")
    fresh.load_state_dict(whole.load()["rank/0"])
    newest = whole.counters["env_steps"]
    held = set((fresh.sample(200, torch.Generator().manual_seed(0))["action"] // 1000).tolist())
    assert held == set(range(newest - 8, newest)), (n, held)
    if os.waitstatus_to_exitcode(status) == 0:
        break
assert n > 10, n
fill(3)
save()
needed = {path for checkpoint in store.list() for path in checkpoint.segments}
found = {str(path.relative_to(store.directory)) for path in store.directory.glob("replay/memory/*")}
assert found == needed, found ^ needed
assert not [path for path in store.directory.glob("replay/**/.*")]
"""


def test_a_kill_at_any_step_of_a_save_leaves_whole_checkpoints_and_no_litter(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_EVERYWHERE, str(tmp_path)]
    done = run_forked(command, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
