from __future__ import annotations

import json
import os
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from etude.runs import source_state
from etude.runs.provenance import capture, fingerprint, installed_packages


def git(cwd: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "code"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    (path / "train.py").write_text("print(1)\n")
    (path / "old name.py").write_text("x = 1\n" * 20)
    (path / "data.bin").write_bytes(bytes(range(256)))
    (path / ".gitignore").write_text("ignored/\n")
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "Start")
    return path


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


def captured(run_directory: Path, cwd: Path, *ignore: Path) -> Any:
    capture(run_directory, cwd=cwd, command=["etude", "train", "CartPole-v1:ppo"], ignore=ignore)
    return json.loads((run_directory / "provenance" / "git.json").read_text())


def test_the_patch_and_the_copies_rebuild_the_working_tree(repository: Path, run_directory: Path, tmp_path: Path) -> None:
    # What would break a naive `git diff`: every one of these settings changes its output.
    for setting in ("diff.noprefix=true", "color.ui=always", "diff.renames=copies", "diff.external=false"):
        git(repository, "config", *setting.split("="))
    (repository / "train.py").write_text("print(2)")
    (repository / "data.bin").write_bytes(bytes(reversed(range(256))))
    git(repository, "mv", "old name.py", "new näme.py")
    (repository / "staged.py").write_text("y = 1\n")
    git(repository, "add", "staged.py")
    (repository / "package").mkdir()
    (repository / "package" / "new.py").write_text("z = 1\n")

    note = captured(run_directory, repository / "package")
    assert note["commit"] == git(repository, "rev-parse", "HEAD").strip()
    assert (note["branch"], note["dirty"], note["problems"]) == ("main", True, [])

    again = tmp_path / "again"
    git(tmp_path, "clone", "-q", str(repository), str(again))
    git(again, "checkout", "-q", note["commit"])
    git(again, "apply", str(run_directory / "provenance" / note["patch"]))
    for path in (run_directory / "provenance" / "untracked").rglob("*.py"):
        target = again / path.relative_to(run_directory / "provenance" / "untracked")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())

    def tree(top: Path) -> dict[str, bytes]:
        files = [path for path in top.rglob("*") if path.is_file() and ".git" not in path.parts]
        return {str(path.relative_to(top)): path.read_bytes() for path in files}

    assert tree(again) == tree(repository)


def test_a_clean_tree_needs_no_patch(repository: Path, run_directory: Path) -> None:
    note = captured(run_directory, repository)
    assert (note["dirty"], note["patch"], note["untracked"], note["left_out"]) == (False, None, 0, [])
    assert sorted(os.listdir(run_directory / "provenance")) == ["command.json", "environment.json", "git.json", "modules.json"]


def test_what_is_left_out_is_listed_with_its_reason(
    repository: Path, run_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_state, "MAX_TOTAL", 250)
    monkeypatch.setattr(source_state, "MAX_FILE", 200)
    files = {"a.py": 150, "b.py": 201, "c.py": 150, "d.py": 50, ".env": 10, "ignored/x.py": 1, "runs/r/m.jsonl": 1}
    for name, size in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_bytes(b"#" * size)
    (repository / "link.py").symlink_to("/etc/passwd")
    (repository / "nested").mkdir()
    git(repository / "nested", "init", "-q")
    (repository / "nested" / "x.py").write_text("")
    note = captured(run_directory, repository, repository / "runs")
    copied = [path for path in (run_directory / "provenance" / "untracked").rglob("*") if not path.is_dir()]
    assert sorted(path.name for path in copied) == ["a.py", "d.py"]
    left_out = {entry["path"]: entry["reason"] for entry in note["left_out"]}
    assert sorted(left_out) == [".env", "b.py", "c.py", "link.py", "nested/"]
    assert "secret" in left_out[".env"]
    assert "together" in left_out["c.py"]


def test_outside_a_repository_git_is_null(run_directory: Path, tmp_path: Path) -> None:
    assert captured(run_directory, tmp_path) is None


def test_a_repository_without_commits_is_fine(run_directory: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    git(tmp_path / "new", "init", "-q", "-b", "main")
    (tmp_path / "new" / "a.py").write_text("")
    note = captured(run_directory, tmp_path / "new")
    assert (note["commit"], note["branch"], note["untracked"]) == (None, "main", 1)
    assert note["problems"] == ["the repository has no commit yet"]


def test_without_git_the_run_goes_on(run_directory: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "No such file" in captured(run_directory, repository)["error"]


def test_a_slow_repository_is_given_up_on(
    run_directory: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 10\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(source_state, "_TIMEOUT_S", 0.1)
    assert "took longer" in captured(run_directory, repository)["error"]


def test_nothing_raises_when_nothing_can_be_written(
    run_directory: Path, repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (run_directory / "provenance").write_text("in the way")
    capture(run_directory, cwd=repository, command=[], ignore=[])
    assert "could not be written" in caplog.text


def test_no_environment_variable_is_stored(run_directory: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2-hunter2")
    captured(run_directory, repository)
    for path in (run_directory / "provenance").rglob("*"):
        assert path.is_dir() or b"hunter2-hunter2" not in path.read_bytes()
    command = json.loads((run_directory / "provenance" / "command.json").read_text())
    assert command["argv"] == ["etude", "train", "CartPole-v1:ppo"]
    assert command["cwd"] == "code"


def test_the_environment_names_what_results_depend_on(run_directory: Path, repository: Path) -> None:
    captured(run_directory, repository)
    environment = json.loads((run_directory / "provenance" / "environment.json").read_text())
    assert environment["packages"]["torch"]
    assert environment["torch"]["threads"] >= 1
    assert environment["cpu"]["model"]
    assert isinstance(environment["gpus"], list)
    assert environment["python"]
    assert environment["os"]
    assert "compiler" in environment
    assert len(environment["etude_code"]) == 64


def test_packages_have_the_versions_that_they_say_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = installed_packages()
    for name in ("torch", "numpy", "gymnasium", "hydra-core", "PyYAML"):
        assert found[name] == metadata.version(name)
    folders = {"whole-1.5": "Metadata-Version: 2.1\nName: whole\nVersion: 1.5\n\nVersion: 9 said a README\n", "half-2": ""}
    for name, text in folders.items():
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "METADATA").write_text(text)
    (tmp_path / "old.egg-info").write_text("Metadata-Version: 1.0\nName: old\nVersion: 0.3\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert installed_packages() == {"old": "0.3", "whole": "1.5"}


def test_the_fingerprint_is_the_same_twice_and_is_json() -> None:
    first = fingerprint()
    assert json.loads(json.dumps(first)) == fingerprint()
    assert set(first) == {"python", "machine", "cpu", "torch", "threads", "packages"}
