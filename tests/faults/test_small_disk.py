"""A real disk of two megabytes: it fills up, it is grown, it becomes read-only. Only root may mount one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.cli import run as run_command
from etude.runs.index import find_runs
from etude.runs.lock import exclusive_lock
from etude.runs.run import Run
from tests.faults.tiny_run import assert_ends_as, assert_one_clear_line, assert_whole_to_the_last_row, only_run, resume, train
from tests.runs_compared import stopped_after

Printed = pytest.CaptureFixture[str]


def _mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    try:
        mounted = _mount("-t", "tmpfs", "-o", "size=2m", "etude-test", str(place))
    except FileNotFoundError:
        pytest.skip("there is no `mount` here")
    if mounted.returncode:
        pytest.skip(f"a small disk can't be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def free(disk: Path) -> int:
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


def fill(disk: Path, leave: int) -> Path:
    """Fill the disk with something else, up to `leave` bytes."""
    ballast = disk / ".ballast"
    with ballast.open("wb") as file:
        file.write(bytes(max(0, free(disk) - leave)))
    return ballast


# Pages of 4 KiB: with 160 KiB the second save or so finds no room, with 90 the first, with 4 not even the run does.
# The run itself takes 50, and more where it has a git diff to keep.
@pytest.mark.parametrize("kibibytes", [250, 160, 100, 90])
def test_a_disk_that_fills_up_stops_the_run_and_more_room_lets_it_go_on(
    kibibytes: int, disk: Path, whole: Run, capsys: Printed
) -> None:
    fill(disk, kibibytes * 1024)
    assert train(disk) == 1
    run = only_run(disk)
    assert_one_clear_line(capsys, "No space left on device", "make room, then `etude resume", run.id)
    assert_whole_to_the_last_row(run)
    # Still full: the same again, and nothing lost.
    assert resume(run) == 1
    assert_one_clear_line(capsys, "No space left on device")
    assert_whole_to_the_last_row(run)
    assert len(find_runs(disk)) == 1
    assert _mount("-o", "remount,size=8m", str(disk)).returncode == 0
    assert resume(run) == 0
    assert_ends_as(whole, run)
    (found,) = find_runs(disk)
    assert found.status == "finished"


def test_a_run_that_finds_no_room_at_all_leaves_nothing(disk: Path, capsys: Printed) -> None:
    ballast = fill(disk, 4 * 1024)
    assert train(disk / "runs") == 1
    assert_one_clear_line(capsys, "can't create a run in", "No space left on device")
    assert find_runs(disk / "runs") == [] if (disk / "runs").exists() else True
    ballast.unlink()
    assert train(disk / "runs") == 0


def test_a_full_disk_can_be_looked_at_evaluated_and_locked(disk: Path, capsys: Printed) -> None:
    assert train(disk) == 0
    run = only_run(disk)
    (disk / ".index.sqlite").unlink(missing_ok=True)
    fill(disk, 0)
    capsys.readouterr()
    assert run_command(["runs", "list", "--runs", str(disk)]) == 0
    assert run.id in capsys.readouterr().out
    assert run_command(["evaluate", str(run.path), "--episodes", "1"]) == 0
    said = capsys.readouterr()
    assert "return" in said.out + said.err
    assert "the result is not noted there: No space left on device" in said.err
    assert run_command(["runs", "tag", str(run.path), "paper"]) == 1
    assert_one_clear_line(capsys, "run.json can't be written: No space left on device")
    with exclusive_lock(run.path / ".lock", "the run"):
        pass


def test_a_disk_that_is_read_only_says_so_and_the_run_goes_on_when_it_is_not(disk: Path, whole: Run, capsys: Printed) -> None:
    with stopped_after(5):
        assert train(disk) == 130
    run = only_run(disk)
    assert _mount("-o", "remount,ro", str(disk)).returncode == 0
    assert resume(run) == 1
    assert_one_clear_line(capsys, "Read-only file system; make it writable again, then `etude resume", "goes on from")
    assert train(disk) == 1
    assert_one_clear_line(capsys, "can't create a run in", "Read-only file system")
    assert [found.status for found in find_runs(disk)] == ["interrupted"]
    assert run_command(["evaluate", str(run.path), "--episodes", "1"]) == 0
    assert _mount("-o", "remount,rw", str(disk)).returncode == 0
    assert resume(run) == 0
    assert_ends_as(whole, run)


def test_a_verb_that_meets_a_full_disk_says_so_in_one_line(
    disk: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etude.cli import app

    ballast = fill(disk, 0)

    def write(*_: object, **__: object) -> None:
        (disk / "result").write_bytes(bytes(8192))

    monkeypatch.setattr(type(app), "__call__", write)
    assert run_command(["runs", "list"]) == 1
    assert_one_clear_line(capsys, "No space left on device; make room")
    ballast.unlink()
    monkeypatch.undo()
