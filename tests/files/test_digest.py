"""A file's hash is that of what it holds now, and an unchanged file is read once."""

from __future__ import annotations

import builtins
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from etude.files import digest
from etude.files.digest import file_digest


@pytest.fixture(autouse=True)
def written_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "_SETTLED_NS", -(10**18))


def test_a_file_that_stays_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened, real = tmp_path / "a.py", [], builtins.open
    path.write_bytes(b"one")

    def counted(file: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(file)
        return real(file, *arguments, **options)

    monkeypatch.setattr(builtins, "open", counted)
    assert file_digest(path) == file_digest(path) == hashlib.sha256(b"one").digest()
    assert opened == [str(path)]


def test_a_change_is_seen_that_keeps_the_size_and_the_time_of_writing(tmp_path: Path) -> None:
    path, other = tmp_path / "a.py", tmp_path / "b.py"
    path.write_bytes(b"one")
    before = path.stat()
    assert file_digest(path) == hashlib.sha256(b"one").digest()
    other.write_bytes(b"two")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(other, path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert file_digest(path) == hashlib.sha256(b"two").digest()


def test_what_was_written_just_now_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "_SETTLED_NS", 10**18)
    monkeypatch.setattr(digest, "_read_once", None)
    (tmp_path / "a.py").write_bytes(b"one")
    assert file_digest(tmp_path / "a.py") == hashlib.sha256(b"one").digest()
