"""Programs that do nothing but remember how they were called, in the place of those that would reach other machines."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Stubs:
    """The stubs of a test, first on its PATH."""

    folder: Path

    def add(self, name: str, output: str = "", *, code: int = 0, errors: str = "") -> None:
        """Put a program there that prints `output`, whatever it is asked."""
        (self.folder / f"{name}.out").write_text(output)
        (self.folder / f"{name}.err").write_text(errors)
        program = self.folder / name
        # printf and cat of the shell: no Python has to start. Each word ends with a NUL, each call with an empty word.
        program.write_text(
            f'#!/bin/sh\nprintf "%s\\0" "$@" "" >> {self.folder}/{name}.calls\n[ -t 0 ] || cat > {self.folder}/{name}.in\n'
            f"cat {self.folder}/{name}.out\ncat {self.folder}/{name}.err >&2\nexit {code}\n"
        )
        program.chmod(0o755)

    def calls(self, name: str) -> list[list[str]]:
        """How it was called: the words of each call, the program's own name left out."""
        try:
            words = (self.folder / f"{name}.calls").read_text().split("\0")
        except FileNotFoundError:
            return []
        found: list[list[str]] = [[]]
        for word in words[:-1]:
            if word:
                found[-1].append(word)
            else:
                found.append([])
        return found[:-1]


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stubs:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return Stubs(folder)


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with no tool at all."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to launch from, with secrets in the environment."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "HF_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    return folder


SECRET = "sekret-3141592653589793"
PYTHON = sys.executable
HOSTILE = [
    "two words",
    "it's",
    'say "x"',
    "$(touch gone)",
    "`touch gone`",
    "; touch gone",
    "&& touch gone",
    "| touch gone",
    "> gone",
    "line\nbreak\n#SBATCH --array=0-99\ntouch gone",
    "back\\slash\\",
    "$HOME ${PATH} ~ * ? [a]",
    "--leading-dashes",
    "-rf",
    "%j %a",
    "é→日本",
    "{{ jinja }} {0}",
    '"""quotes"""',
]
"""Names as they must arrive: a shell, a scheduler or a template could take each for something else."""


def dry_files(text: str) -> dict[str, str]:
    """Return the files that --dry printed, by their paths."""
    files: dict[str, str] = {}
    for part in text.split("\n### ")[0:]:
        head, _, body = part.removeprefix("### ").partition("\n")
        kind, _, name = head.partition(" ")
        if kind == "file":
            files[name] = body if body.endswith("\n") else f"{body}\n"
    return files


def assert_no_secret(folder: Path) -> None:
    """No file below the folder has a secret of the environment in it."""
    for path in folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    assert os.environ["WANDB_API_KEY"] == SECRET
