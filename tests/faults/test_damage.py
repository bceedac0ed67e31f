"""Whatever happens to the bytes of a checkpoint, it is noticed, named, and never anything but a CheckpointError."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etude.errors import CheckpointError
from etude.runs.checkpoint import Checkpoint, CheckpointStore
from etude.runs.run import Run
from tests.faults.tiny_run import assert_ends_as, assert_one_clear_line, only_run, resume
from tests.runs_compared import stopped_after
from tests.runs_compared import train as train_in_silence

FLIPS = 1000


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A PPO run with several checkpoints, stopped in its middle."""
    from tests.faults.tiny_run import SPEC, WORDS

    with stopped_after(7):
        return train_in_silence(SPEC, tmp_path_factory.mktemp("stopped"), *WORDS)


@pytest.fixture
def checkpoint(stopped: Run, tmp_path: Path) -> Path:
    newest = stopped.checkpoints().newest_whole()
    shutil.copytree(newest.path, tmp_path / newest.name)
    return tmp_path / newest.name


def files_of(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file())


def load_everything(path: Path) -> None:
    """What a resume does: the manifest, every hash, every part."""
    found = Checkpoint.open(path)
    found.verify()
    found.load()


@contextmanager
def changed(path: Path, data: bytes) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(whole)


def assert_named(checkpoint: Path, path: Path) -> None:
    with pytest.raises(CheckpointError) as told:
        load_everything(checkpoint)
    relative = re.escape(str(path.relative_to(checkpoint)))
    said = str(told.value)
    newer = path.name == "manifest.json" and "written by a newer Etude" in said  # a bit of the version's number
    assert newer or re.search(f"^checkpoint {checkpoint.name} is damaged: {relative}: ", said), said
    assert "\n" not in said


def test_the_checkpoint_that_is_damaged_here_is_a_whole_one(checkpoint: Path) -> None:
    load_everything(checkpoint)
    parts = {"policy", "shared", "rank/0"}
    expected = {f"{part}/{name}" for part in parts for name in ("state.json", "tensors.safetensors")} | {"manifest.json"}
    assert {str(path.relative_to(checkpoint)) for path in files_of(checkpoint)} >= expected


def test_every_one_of_a_thousand_flipped_bits_is_found(checkpoint: Path) -> None:
    generator, files = random.Random(1), files_of(checkpoint)
    for number in range(FLIPS):
        # Every file as often as any other: most bytes are in one of them.
        path = files[number % len(files)]
        data = bytearray(path.read_bytes())
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        with changed(path, bytes(data)):
            assert_named(checkpoint, path)
    load_everything(checkpoint)


def test_every_region_of_the_manifest_counts(checkpoint: Path) -> None:
    path = checkpoint / "manifest.json"
    whole, generator = path.read_bytes(), random.Random(2)
    for at in range(0, len(whole), 3):
        data = bytearray(whole)
        data[at] ^= 1 << generator.randrange(8)
        path.write_bytes(data)
        with pytest.raises(CheckpointError):
            Checkpoint.open(checkpoint)


def test_every_truncation_is_found(checkpoint: Path) -> None:
    for path in files_of(checkpoint):
        whole = path.read_bytes()
        lengths = {0, 1, 7, 8, 9, len(whole) // 4, len(whole) // 2, len(whole) - 1, *range(0, len(whole), len(whole) // 20 + 1)}
        for length in sorted(length for length in lengths if 0 <= length < len(whole)):
            with changed(path, whole[:length]):
                assert_named(checkpoint, path)
        with changed(path, whole + b"\0"):
            assert_named(checkpoint, path)
        with changed(path, bytes(len(whole))):  # the size is right, and every byte is zero: a power cut without a sync
            assert_named(checkpoint, path)


def _remove(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _rename(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.old"))


@pytest.mark.parametrize("change", [_remove, _empty, _link, _folder, _pipe, _rename])
def test_a_file_that_is_gone_empty_renamed_or_something_else_is_named(checkpoint: Path, change: Callable[[Path], None]) -> None:
    for relative in [path.relative_to(checkpoint) for path in files_of(checkpoint)]:
        place = checkpoint.parent / "copy" / checkpoint.name
        shutil.copytree(checkpoint, place)
        change(place / relative)
        assert_named(place, place / relative)
        shutil.rmtree(place.parent)


def test_a_file_too_many_is_named(checkpoint: Path) -> None:
    for extra in ("policy/extra.bin", "extra", "rank/1/state.json"):
        (checkpoint / extra).parent.mkdir(exist_ok=True)
        (checkpoint / extra).write_bytes(b"x")
        assert_named(checkpoint, checkpoint / extra)
        (checkpoint / extra).unlink()


def test_files_swapped_between_checkpoints_are_found(stopped: Run, tmp_path: Path) -> None:
    full = [saved.path for saved in stopped.checkpoints().list() if saved.kind == "full"]
    assert len(full) >= 2
    for relative in [path.relative_to(full[-1]) for path in files_of(full[-1])]:
        place = tmp_path / "swapped" / full[-1].name
        shutil.copytree(full[-1], place)
        shutil.copy(full[-2] / relative, place / relative)
        if (full[-2] / relative).read_bytes() != (full[-1] / relative).read_bytes():
            assert_named(place, place / relative)
        shutil.rmtree(place.parent)


def test_a_checkpoint_under_another_ones_name_is_found(stopped: Run, tmp_path: Path) -> None:
    older, newer = [saved.path for saved in stopped.checkpoints().list() if saved.kind == "full"][-2:]
    shutil.copytree(older, tmp_path / newer.name)
    with pytest.raises(CheckpointError, match=f"manifest.json: is of checkpoint {older.name}"):
        load_everything(tmp_path / newer.name)


def test_a_resume_from_damage_offers_the_older_whole_one_which_ends_the_same(
    stopped: Run, tmp_path: Path, whole: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(stopped.path, tmp_path / stopped.id, symlinks=True)
    run = only_run(tmp_path)
    newest, before = [saved for saved in reversed(run.checkpoints().list()) if saved.kind == "full"][:2]
    tensors = newest.path / "shared" / "tensors.safetensors"
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 1
    tensors.write_bytes(data)
    assert resume(run) == 1
    number = before.name.partition("-")[0]
    assert_one_clear_line(capsys, f"{newest.name} is damaged: shared/tensors.safetensors", f"--checkpoint {number}")
    assert resume(run, "--checkpoint", number) == 0
    assert_ends_as(whole, run)


def test_nothing_whole_is_said_as_such(stopped: Run, tmp_path: Path) -> None:
    shutil.copytree(stopped.path / "checkpoints", tmp_path / "checkpoints", symlinks=True)
    for manifest in (tmp_path / "checkpoints").glob("*/manifest.json"):
        manifest.write_bytes(b"{}")
    with pytest.raises(CheckpointError, match="there is no other whole one"):
        CheckpointStore(tmp_path / "checkpoints", keep=1).newest_whole()
