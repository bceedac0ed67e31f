"""A disk that fails in the middle of a run: what must stop it stops it with one line, all else is an alert."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from etude.runs.index import find_runs
from etude.runs.run import Run
from tests.faults.failing_disk import ERRORS, Call, FailingDisk, failing
from tests.faults.tiny_run import assert_ends_as, assert_one_clear_line, assert_whole_to_the_last_row, only_run, resume, train

Printed = pytest.CaptureFixture[str]

# What a run can't do without: a part of the path, the call, and which of those calls fails.
NEEDED = {
    "state of a save": ("/state.json", "write", 4),
    "tensors of a save": ("/tensors.safetensors", "write", 9),
    "manifest of a save": ("/manifest.json", "write", 2),
    "opening a file of a save": ("/tensors.safetensors", "open", 5),
    "syncing a save": ("/manifest.json", "fsync", 2),
    "naming a save": ("/checkpoints/", "rename", 2),
    "the link to the last save": ("/checkpoints/.last", "symlink", 2),
    "the first save": ("/manifest.json", "write", 0),
    "the last save": ("-320-", "fsync", 0),
    "a row": ("/metrics.jsonl", "write", 5),
    "the first row": ("/metrics.jsonl", "write", 0),
    "syncing rows": ("/metrics.jsonl", "fsync", 2),
    "opening the rows": ("/metrics.jsonl", "open", 0),
}  # fmt: skip
# What it can do without: a part of the path, the call, and what the alert names.
UNNEEDED = {
    "metrics.csv": ("/.metrics.csv", "write", "metrics.csv"),
    "naming metrics.csv": ("/metrics.csv", "replace", "metrics.csv"),
    "summary.json": ("/.summary.json", "open", "summary.json"),
    "run.log": ("/run.log", "write", "run.log"),
    "opening run.log": ("/run.log", "open", "run.log"),
    "TensorBoard": ("/tfevents", "write", "tensorboard"),
    "opening TensorBoard": ("/logs/tensorboard", "mkdir", "tensorboard"),
    "videos": ("/videos/.steps-", "open", "videos"),
    "run_status.json": ("/.run_status.json", "open", "run_status.json"),
}  # fmt: skip


def nth(part: str, operation: str, count: int) -> FailingDisk:
    """A disk that fails from such a call on, of any file: what is full stays full."""
    met = 0

    def fails(number: int, call: Call) -> bool:
        nonlocal met
        met += part.replace("/tfevents", "events.out.tfevents") in f"/{call.path}" and call.operation == operation
        return met > count

    return FailingDisk(Path(), fails)


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("case", ["tensors of a save", "a row"])
def test_whatever_the_error_the_run_stops_clearly_and_goes_on_to_the_same_end(
    case: str, code: str, tmp_path: Path, whole: Run, capsys: Printed
) -> None:
    _stops_and_goes_on(NEEDED[case], code, tmp_path, whole, capsys)


@pytest.mark.parametrize("case", [case for case in NEEDED if case not in ("tensors of a save", "a row")])
def test_what_a_run_needs_stops_it_with_one_line_and_a_resume_ends_the_same(
    case: str, tmp_path: Path, whole: Run, capsys: Printed
) -> None:
    _stops_and_goes_on(NEEDED[case], "ENOSPC", tmp_path, whole, capsys)


def _stops_and_goes_on(case: tuple[str, str, int], code: str, root: Path, whole: Run, capsys: Printed) -> None:
    disk = nth(*case)
    disk.root, disk.code = root, ERRORS[code]
    with failing(disk):
        assert train(root) == 1
    assert disk.failed
    run = only_run(root)
    assert_one_clear_line(capsys, os.strerror(disk.code), "then `etude resume", run.id)
    assert_whole_to_the_last_row(run)
    assert resume(run) == 0
    assert_ends_as(whole, run)
    assert only_run(root).status == "finished"
    assert [path.name for path in run.path.glob(".*.tmp")] == []


@pytest.mark.parametrize("case", UNNEEDED)
def test_what_a_run_can_do_without_is_an_alert_and_the_run_ends_the_same(
    case: str, tmp_path: Path, whole: Run, capsys: Printed
) -> None:
    part, operation, named = UNNEEDED[case]
    words = []
    if "TensorBoard" in case:
        pytest.importorskip("tensorboard")
        words = ["logging.tensorboard=true"]
    if case == "videos":
        pytest.importorskip("imageio_ffmpeg")
        words = ["training.callbacks=[{type: video, every_steps: 64}]"]
    part = part.replace("/tfevents", "events.out.tfevents")

    def fails(number: int, call: Call) -> bool:
        return part in f"/{call.path}" and call.operation == operation

    with failing(FailingDisk(tmp_path, fails)) as disk:
        assert train(tmp_path, *words) == 0
    run = only_run(tmp_path)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert disk.failed
    if named is not None:
        told = [line for line in said.splitlines() if named in line]
        assert len(told) == 1, f"said once: {said}"
        assert os.strerror(disk.code) in told[0]
    if case == "videos":
        assert run.status == "finished"
    elif "TensorBoard" in case:
        assert_whole_to_the_last_row(run)
    else:
        assert_ends_as(whole, run)


@pytest.mark.parametrize("part", ["run.json", "config.yaml", "resolved.yaml", "checkpoints", "@last"])
def test_a_run_that_cannot_be_made_leaves_nothing_behind(part: str, tmp_path: Path, capsys: Printed) -> None:
    root = tmp_path / "runs"

    def fails(number: int, call: Call) -> bool:
        return part in call.path

    with failing(FailingDisk(root, fails, ERRORS["EDQUOT"])) as disk:
        assert train(root) == 1
    assert disk.failed
    assert_one_clear_line(capsys, "can't create a run in", os.strerror(disk.code))
    assert [path.name for path in root.iterdir()] == []
    assert Run.list(root) == []
    assert find_runs(root) == []


def test_a_record_that_cannot_be_written_at_the_end_is_set_right_by_a_resume(
    tmp_path: Path, whole: Run, capsys: Printed
) -> None:
    writes = 0

    def fails(number: int, call: Call) -> bool:
        nonlocal writes
        writes += "/.run.json" in f"/{call.path}" and call.operation == "open"
        return writes > 2 and "run.json" in call.path

    with failing(FailingDisk(tmp_path, fails)):
        assert train(tmp_path) == 0
    assert "run.json can't be written" in capsys.readouterr().err
    run = only_run(tmp_path)
    assert run.record["status"] == "running"
    assert resume(run) == 0
    assert_ends_as(whole, run)


def _dies_at(number: int, root: Path, whole: Run, code: int) -> None:
    root.mkdir()
    with failing(FailingDisk(root, lambda n, _: n >= number, code)):
        outcome = train(root)
    if not Run.list(root):
        assert outcome == 1
        return
    run = only_run(root)
    assert_whole_to_the_last_row(run)
    if run.status != "finished":
        assert resume(run) == 0
    assert_ends_as(whole, run)


def _calls(root: Path) -> int:
    with failing(FailingDisk(root)) as disk:
        assert train(root) == 0
    return len(disk.calls)


def test_a_disk_that_dies_at_a_random_call_costs_nothing(tmp_path: Path, whole: Run, capsys: Printed) -> None:
    count, generator = _calls(tmp_path / "counted"), random.Random(4)
    for number in generator.sample(range(count), 6):
        _dies_at(number, tmp_path / str(number), whole, generator.choice(list(ERRORS.values())))
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_disk_that_dies_at_any_call_costs_nothing(tmp_path: Path, whole: Run, capsys: Printed) -> None:
    count, codes = _calls(tmp_path / "counted"), list(ERRORS.values())
    for number in range(0, count, 3):
        _dies_at(number, tmp_path / str(number), whole, codes[number % len(codes)])
        shutil.rmtree(tmp_path / str(number))
    assert "Traceback" not in capsys.readouterr().err
