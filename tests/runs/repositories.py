"""Small git repositories for tests, and what must not change in them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from etude.runs import provenance, trust


def git(cwd: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True, text=True).stdout


def make_repository(path: Path, files: dict[str, str]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    git(path, "init", "-q", "-b", "main")
    write(path, files)
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "Start")
    return path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def make_run(root: Path, cwd: Path, run_id: str = "20260301-120000-x-s1") -> Path:
    """A run directory with nothing but what a checkout needs, made by this user in `cwd`."""
    path = root / run_id
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"version": 1, "id": run_id, "status": "finished"}))
    (path / "config.yaml").write_text("")
    provenance.capture(path, cwd=cwd, command=[], ignore=[root])
    trust.sign(path)
    return path


def edit_note(run: Path, **fields: Any) -> None:
    path = run / "provenance" / "git.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def files_of(top: Path) -> dict[str, bytes]:
    """Every file of a tree, git's own aside."""
    found = [path for path in top.rglob("*") if not path.is_dir() and ".git" not in path.relative_to(top).parts]
    return {str(path.relative_to(top)): path.read_bytes() for path in found}


def whole_state(top: Path, *, leave_out: tuple[str, ...] = ()) -> dict[str, str]:
    """Everything a user could miss: each file with its mode, ignored and untracked ones too, index, HEAD, refs, stash, logs."""
    state = {"status": git(top, "--no-optional-locks", "status", "--porcelain"), "stash": git(top, "stash", "list")}
    for folder, folders, names in os.walk(top):
        inside = Path(folder).relative_to(top).as_posix()
        folders[:] = [name for name in folders if Path(inside, name).as_posix() not in (".git/worktrees", *leave_out)]
        for name in names:
            path = Path(folder, name)
            content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
            state[str(path.relative_to(top))] = f"{path.lstat().st_mode:o} {hashlib.sha256(content).hexdigest()}"
    return state
