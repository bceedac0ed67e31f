"""The runs whose files are damaged or replaced: stopped in their middle, with every kind of file that a run can have."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from etude.cli import INTERRUPTED
from etude.runs.run import Run
from tests.runs_compared import rows, state, stopped_after
from tools.attack.victims import VICTIMS
from tools.attack.workshop import prepare

SETTINGS = ("checkpoint.keep=3",)
_SEGMENT = re.compile(r"/\d{12}-[0-9a-f]{16}\.")


@dataclass(frozen=True)
class Subject:
    """A run that is put back after every attack, always at the same place."""

    name: str
    kept: Path
    """The run as it was made."""
    path: Path
    """Where it is attacked."""
    victim: str
    below: str = ""
    """Only files whose path begins so are attacked: the others are as those of another subject."""

    def restore(self) -> Path:
        """Put the run back as it was made."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.path.parent.mkdir(parents=True)
        shutil.copytree(self.kept, self.path, symlinks=True)
        return self.path

    def files(self) -> dict[str, Path]:
        """Every file and link of the run, relative to it, by what kind of file it is."""
        numbered = sorted(path.name for path in (self.kept / "checkpoints").glob("[0-9]*"))
        found = {}
        for path in sorted(self.kept.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                continue
            relative = path.relative_to(self.kept)
            kind = _SEGMENT.sub("/segment.", str(relative))
            for name in numbered:
                kind = kind.replace(f"/{name}/", "/newest/" if name == numbered[-1] else "/older/")
            if kind.startswith(self.below):
                found.setdefault(kind, relative)
        return found


def make_subjects(folder: Path) -> list[Subject]:
    """Train the runs: one with an algorithm of the user's own, in a repository; one with a replay buffer."""
    _make_repository(folder)
    return [_make(folder, "own", "own-file"), _make(folder, "replay", "dqn", below="checkpoints")]


def _make(folder: Path, name: str, victim: str, below: str = "") -> Subject:
    chosen, root = VICTIMS[victim], folder / "made" / name
    with stopped_after(5):
        prepare(["train", chosen.spec, *chosen.settings, *SETTINGS, "--group", "g", "--runs", str(root)], INTERRUPTED)
    (run,) = Run.list(root)
    # Settings that change make logs/changes.jsonl, an older checkpoint logs/superseded.jsonl.
    older = [saved for saved in run.checkpoints().list() if saved.kind == "full"][-2].name
    with stopped_after(2):
        prepare(["resume", str(run.path), "logging.every_steps=48", "--checkpoint", older], INTERRUPTED)
    prepare(["evaluate", str(run.path), "--episodes", "1"])
    prepare(["runs", "list", "--runs", str(root)])
    (run.path / ".lock").touch()
    return Subject(name, run.path, folder / "attacked" / name / run.path.name, victim, below)


def _make_repository(folder: Path) -> None:
    """Something to note as the code of a run: a commit, a change and a file that git does not know."""
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    (folder / ".gitignore").write_text("made\nattacked\nhome\nout\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    (folder / ".gitignore").write_text("made\nattacked\nhome\nout\ncanary\n")
    (folder / "notes.txt").write_text("not yet committed\n")


def computed(run: Path) -> str:
    """What a run has computed, as a hash: every row without its times, every tensor and every value of its newest state."""
    opened = Run.open(run)
    return fingerprint([[sorted(row.items()) for row in rows(opened)], state(opened)])


def fingerprint(value: Any) -> str:
    """A hash of a tree of tensors and plain values."""
    digest = hashlib.sha256()
    _digest(value, digest)
    return digest.hexdigest()


def _digest(value: Any, digest: Any) -> None:
    if isinstance(value, torch.Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        if value.numel():
            digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, dict):
        for key in value:
            digest.update(repr(key).encode())
            _digest(value[key], digest)
    elif isinstance(value, list | tuple):
        for item in value:
            _digest(item, digest)
    else:
        digest.update(repr(value).encode())


def steady(text: str) -> Any:
    """What a command printed as JSON, without times and places that change."""
    value = json.loads(text)
    return _without_times(value)


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        changing = ("time", "elapsed", "created", "seconds", "age", "when", "took", "ended", "size")
        return {key: _without_times(item) for key, item in value.items() if not any(word in key for word in changing)}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def tree_hash(folder: Path) -> str:
    """A hash of everything below a folder: names, kinds, contents, links."""
    digest = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*files, *(each for each in folders if os.path.islink(os.path.join(place, each)))]):
            path = os.path.join(place, name)
            digest.update(os.path.relpath(path, folder).encode(errors="surrogateescape"))
            digest.update(os.readlink(path).encode() if os.path.islink(path) else Path(path).read_bytes())
    return digest.hexdigest()
