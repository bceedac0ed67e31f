"""`etude runs checkout` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli import run as command
from tests.runs.repositories import make_repository, make_run, write


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of a repository that has changed since; the current folder is in the repository."""
    repository = make_repository(tmp_path / "code", {"part/train.py": "RATE = 1\n"})
    monkeypatch.chdir(repository / "part")
    write(repository, {"part/train.py": "RATE = 2\n"})
    run = make_run(repository / "runs", repository / "part")
    write(repository, {"part/train.py": "RATE = 3\n"})
    return run


def test_the_path_goes_to_stdout_and_the_rest_to_stderr(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["runs", "checkout", str(stored)]) == 0
    said = capsys.readouterr()
    place = Path(said.out.strip())
    assert (place / "part" / "train.py").read_text() == "RATE = 2\n"
    assert f"of {stored.parents[1]}, as it was for run {stored.name}" in said.err
    assert command(["runs", "checkout", str(stored), "--remove"]) == 0
    assert not place.exists()


def test_json_says_where_it_is_and_where_in_it_the_run_was_started(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = stored.parents[2] / "there"
    assert command(["runs", "checkout", str(stored), "--to", str(place), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["path"], report["folder"], report["own"], report["notes"]) == (str(place), "part", True, [])


def test_elsewhere_the_repository_is_named(
    stored: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert command(["runs", "checkout", str(stored)]) == 2
    assert "name it with --repo" in capsys.readouterr().err
    assert command(["runs", "checkout", str(stored), "--repo", str(stored.parents[1])]) == 0


def test_a_strangers_code_comes_with_a_warning(stored: Path, capsys: pytest.CaptureFixture[str], home: Path) -> None:
    (home / "etude" / "key").unlink()
    assert command(["runs", "checkout", str(stored)]) == 0
    assert "you did not make this run on this machine; look at the code" in capsys.readouterr().err


def test_a_run_made_outside_git_has_no_code_to_restore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain").mkdir()
    run = make_run(tmp_path / "runs", tmp_path / "plain")
    assert command(["runs", "checkout", str(run)]) == 2
    assert "made outside a git repository" in capsys.readouterr().err
