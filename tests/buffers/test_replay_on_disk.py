"""A replay whose frames lie in a file gives the batches of one in memory, bit for bit, and takes none of their memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from etude.buffers import frame_file, store, store_state
from etude.buffers.columns import leaves
from etude.buffers.frame_file import FrameFile
from etude.buffers.places import Priority
from etude.buffers.replay import ReplayBuffer
from etude.buffers.replay_config import StoreConfig, device_of
from etude.cli import run as run_command
from etude.errors import EtudeError, UserError
from etude.runs.checkpoint import CheckpointStore
from etude.runs.run import Run
from tests.buffers.test_frame_stacks import K
from tests.buffers.test_frame_stacks import _rows as stacked_rows
from tests.buffers.test_hindsight import make as make_hindsight
from tests.buffers.test_hindsight import row as goal_row
from tests.buffers.transitions import transition
from tests.faults.tiny_run import assert_one_clear_line
from tests.runs_compared import assert_resumes_again_and_again

N, ROWS = 2, 20
KINDS: dict[str, Callable[..., ReplayBuffer]] = {
    "steps": ReplayBuffer,
    "n_step": lambda *args, **options: ReplayBuffer(*args, n_step=3, gamma=0.9, **options),
    "sequence": lambda *args, **options: ReplayBuffer(*args, sequence=4, **options),
    "online": lambda *args, **options: ReplayBuffer(*args, sequence=4, online=True, **options),
    "rewritten": lambda *args, **options: ReplayBuffer(*args, sequence=4, rewritten=("latent",), **options),
    "prioritized": lambda *args, **options: ReplayBuffer(*args, sequence=3, priority=Priority(), **options),
    "frame_stack": lambda *args, **options: ReplayBuffer(*args, frame_stack=K, **options),
    "hindsight": lambda capacity, n, **options: make_hindsight(capacity // n, n, **options),
}


@pytest.fixture(autouse=True)
def everything_is_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """Observations of a few bytes lie in files too, and segments are of a few steps."""
    monkeypatch.setattr(frame_file, "SMALLEST_FRAME", 1)
    monkeypatch.setattr(store_state, "SMALLEST_SEGMENT", 500)
    monkeypatch.setattr(store_state, "SEGMENTS_PER_RING", 10**6)


def rows(kind: str, count: int) -> list[dict[str, Any]]:
    if kind == "frame_stack":
        return stacked_rows(count)
    ends = [[(t + env) % 5 == 4 for env in range(N)] for t in range(-1, count)]
    if kind == "hindsight":
        return [goal_row(t, N, ends[t + 1], [t == 0 or end for end in ends[t]]) for t in range(count)]
    made = [transition(t, N, truncated=ends[t + 1], is_first=[t == 0 or end for end in ends[t]]) for t in range(count)]
    return [{**row, "latent": row["reward"][:, None].bfloat16()} for row in made] if kind == "rewritten" else made


def fill(buffer: ReplayBuffer, kind: str, first: int, end: int) -> None:
    for row in rows(kind, end)[first:]:
        buffer.add(row)


def learn(buffer: ReplayBuffer, kind: str, seed: int) -> None:
    batch = buffer.sample(8, Generator().manual_seed(seed)) if kind in ("prioritized", "rewritten", "online") else {}
    if kind == "prioritized":
        buffer.learned(batch["index"], batch["generation"], priority=batch["reward"][:, 0])
    elif kind == "rewritten":
        buffer.learned(batch["index"], batch["generation"], latent=batch["latent"] + seed)


def assert_same_batches(one: ReplayBuffer, other: ReplayBuffer, seed: int = 0) -> None:
    batches = [buffer.sample_many(2, 30, Generator().manual_seed(seed)) for buffer in (one, other)]
    for a, b in zip(*map(leaves, batches), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def files(buffer: ReplayBuffer) -> list[FrameFile]:
    return [part for part in leaves(buffer.store.memory) if isinstance(part, FrameFile)]


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_a_replay_in_memory(kind: str, tmp_path: Path) -> None:
    on_disk, in_memory = KINDS[kind](ROWS * N, N, storage="disk", folder=tmp_path), KINDS[kind](ROWS * N, N)
    for t, row in enumerate(rows(kind, 3 * ROWS)):
        for buffer in (on_disk, in_memory):
            buffer.add(row)
        if in_memory.bounds.count and t % 3 == 0:
            assert_same_batches(on_disk, in_memory, t)
            for buffer in (on_disk, in_memory):
                learn(buffer, kind, t)
    assert files(on_disk)
    assert not on_disk.is_tensor_function, "reading a file is nothing to compile or capture"


def test_with_few_places_for_ends_it_gives_up_the_same_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ROOM_FOR_ENDS", 1)
    on_disk, in_memory = (ReplayBuffer(ROWS * N, N, storage=kind, folder=tmp_path) for kind in ("disk", "memory"))  # type: ignore[arg-type] # as literals
    for t in range(30):
        for buffer in (on_disk, in_memory):
            buffer.add(transition(t, N, truncated=[True] * N, is_first=[True] * N))
        assert_same_batches(on_disk, in_memory)
    assert in_memory.size < ROWS * N


def test_small_parts_stay_in_memory_and_frames_take_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    buffer = ReplayBuffer(1000, 1, storage="disk", folder=tmp_path)
    for t in range(20):
        row = transition(t, 1)
        for key in ("observation", "next_observation"):
            row[key] = {**row[key], "picture": row[key]["picture"][..., :1, :1].expand(1, 3, 32, 32)}
        buffer.add(row)
    seen = buffer.store.memory["observation"]
    assert isinstance(seen["picture"], FrameFile)
    assert isinstance(seen["vector"], torch.Tensor)
    assert buffer.nbytes < 1000 * 150, "with the frames it would be 3 MB"
    assert seen["picture"].disk_bytes > 1000 * 3 * 32 * 32
    batch = buffer.sample(64, Generator().manual_seed(0))["observation"]
    assert torch.equal(batch["picture"][:, 0, 0, 0], (batch["vector"][:, 0] % 251).to(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int16, torch.bool])
def test_frames_of_any_type_come_back_as_they_were(dtype: torch.dtype, tmp_path: Path) -> None:
    frames = torch.randn(6, 3, 4, generator=Generator().manual_seed(0)).mul(3).to(dtype)
    file = FrameFile(frames[:3], slots=2, ends=0, folder=tmp_path, name="replay")
    file[0:6] = frames
    places = torch.tensor([[5, 0], [3, 3]])
    assert torch.equal(file[places], frames[places])
    assert file[0:6].dtype is dtype


def test_a_window_is_read_in_one_call_and_calls_go_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = ReplayBuffer(100 * N, N, storage="disk", folder=tmp_path, sequence=10)
    for t in range(100):
        buffer.add(transition(t, N))
    calls: list[int] = []

    def counted(descriptor: int, buffers: Any, offset: int, read: Any = os.preadv) -> int:
        calls.append(offset)
        return read(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", counted)
    buffer.sample(16, Generator().manual_seed(0), columns=("observation",))
    assert len(calls) <= 2 * 2 * 16, "for each part a window, or two where it goes round"
    assert sum(b < a for a, b in pairwise(calls)) <= 1, "one part after the other"


# ---- checkpoints ----------------------------------------------------------------------------------------------------------


def save(folder: Path, buffer: ReplayBuffer) -> Any:
    parts = {"policy": {}, "rank/0": buffer.state_dict()}
    return CheckpointStore(folder, keep=3).save(parts, counters={"env_steps": buffer.store.written, "updates": 0}, metadata={})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("before", "after"), [("disk", "disk"), ("disk", "memory"), ("memory", "disk")])
def test_the_next_batch_after_loading_is_the_same(kind: str, before: Any, after: Any, tmp_path: Path) -> None:
    buffer, loaded = (KINDS[kind](ROWS * N, N, storage=storage, folder=tmp_path) for storage in (before, after))
    if kind == "frame_stack":
        for each in (buffer, loaded):
            each.begin(rows(kind, 1)[0]["observation"])
    fill(buffer, kind, 0, 47)
    learn(buffer, kind, 1)
    loaded.load_state_dict(save(tmp_path / "checkpoints", buffer).load()["rank/0"])
    assert_same_batches(buffer, loaded)
    for each in (buffer, loaded):
        fill(each, kind, 47, 55)
    assert_same_batches(buffer, loaded)


def test_a_save_reads_and_writes_only_what_is_new(tmp_path: Path) -> None:
    buffer = ReplayBuffer(400 * N, N, storage="disk", folder=tmp_path)
    fill(buffer, "steps", 0, 300)
    first = save(tmp_path / "checkpoints", buffer)
    fill(buffer, "steps", 300, 305)
    second = save(tmp_path / "checkpoints", buffer)
    new = set(second.segments) - set(first.segments)
    assert len(second.segments) > 20
    assert len(new) <= 3


def test_going_back_to_a_save_forgets_what_was_written_since(tmp_path: Path) -> None:
    buffer = ReplayBuffer(ROWS * N, N, storage="disk", folder=tmp_path)
    fill(buffer, "steps", 0, 33)
    saved = save(tmp_path / "checkpoints", buffer)
    before = buffer.sample(50, Generator().manual_seed(0))
    fill(buffer, "steps", 33, 60)
    buffer.load_state_dict(saved.load()["rank/0"])
    after = buffer.sample(50, Generator().manual_seed(0))
    assert all(torch.equal(a, b) for a, b in zip(leaves(before), leaves(after), strict=True))


def test_a_run_that_was_stopped_is_the_run_that_was_not(tmp_path: Path) -> None:
    words = ("environment.num_envs=3", "training.total_steps=450", "checkpoint.every_steps=200", "evaluation.every_steps=0")
    spec = "CartPole-v1:tests.buffers.off_policy_double.LinearQ"
    run = assert_resumes_again_and_again(spec, tmp_path, *words, "buffers.memory.storage=disk", most=30)
    assert [path.name for path in run.path.parent.iterdir() if "tmp" in path.name] == [], "the file of frames left nothing"


# ---- faults ---------------------------------------------------------------------------------------------------------------


def test_a_file_that_was_cut_is_said_so(tmp_path: Path) -> None:
    buffer = ReplayBuffer(ROWS * N, N, storage="disk", folder=tmp_path)
    fill(buffer, "steps", 0, 10)
    os.ftruncate(files(buffer)[0]._descriptor, 17)
    with pytest.raises(
        EtudeError, match=rf"buffer 'replay': its file of frames in {tmp_path} ends at byte .*: something cut it"
    ):
        buffer.sample(50, Generator().manual_seed(0))


def test_a_disk_that_fills_up_ends_the_run_with_one_line_and_what_was_saved_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = "CartPole-v1:tests.buffers.off_policy_double.LinearQ"
    words = ("training.total_steps=400", "checkpoint.every_steps=100", "evaluation.every_steps=0", "experiment.device=cpu")
    written = 0

    def full_after_a_while(descriptor: int, data: Any, offset: int, write: Any = os.pwrite) -> int:
        nonlocal written
        written += 1
        if written > 500:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full_after_a_while)
        assert run_command(["train", spec, *words, "buffers.memory.storage=disk", "-q", "--runs", str(tmp_path)]) == 1
    (run,) = Run.list(tmp_path)
    line = f"{tmp_path}: No space left on device; make room, then `etude resume {run.id} --runs {tmp_path}` goes on from"
    assert_one_clear_line(capsys, line)
    assert run_command(["resume", str(run.path), "-q"]) == 0


def test_a_folder_that_is_a_link_a_file_or_closed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text("")
    for name, reason in (("link", "is a link, which is never followed"), ("file", "is a file, not a folder")):
        buffer = ReplayBuffer(ROWS, 1, storage="disk", folder=tmp_path / name)
        with pytest.raises(EtudeError, match=reason):
            buffer.add(transition(0, 1))
    buffer = ReplayBuffer(ROWS, 1, storage="disk", folder="/proc")
    with pytest.raises(UserError, match=r"buffers.replay.folder=/proc: .*; name a folder that can be written"):
        buffer.add(transition(0, 1))


def test_two_runs_may_share_a_folder_and_none_leaves_a_name(tmp_path: Path) -> None:
    one, other = (ReplayBuffer(ROWS * N, N, storage="disk", folder=tmp_path) for _ in range(2))
    for t in range(10):
        one.add(transition(t, N))
        other.add(transition(t + 100, N))
    marks = [set((buffer.sample(99, Generator().manual_seed(0))["action"] // 1000).tolist()) for buffer in (one, other)]
    assert marks == [set(range(10)), set(range(100, 110))]
    assert list(tmp_path.iterdir()) == []


def test_a_nan_in_a_frame_is_blamed_on_the_environment(tmp_path: Path) -> None:
    buffer = ReplayBuffer(ROWS * N, N, storage="disk", folder=tmp_path)
    fill(buffer, "steps", 0, 5)
    assert buffer.given_non_finite() is None
    row = transition(5, N)
    row["observation"]["vector"] = torch.tensor([[5000.0, 5000.0], [float("inf"), 0.0]]).double()
    buffer.add(row)
    assert buffer.given_non_finite() == "an observation ('vector') of inf to copy 1"


def test_frames_on_disk_stay_with_the_host() -> None:
    assert device_of(StoreConfig(storage="disk"), "cuda", "replay") == "cpu"
    with pytest.raises(UserError, match=r"buffers.replay.device=cuda: not with storage=disk, .*; leave it at auto"):
        device_of(StoreConfig(storage="disk", device="cuda"), "cuda", "replay")
