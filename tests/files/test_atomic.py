from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from etude.files.atomic import read_link, replace_link, write_bytes_atomic, write_json_atomic, write_text_atomic


def test_a_written_file_holds_exactly_the_data_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_bytes_atomic(tmp_path / "a", b"\0\xff")
    write_text_atomic(tmp_path / "b", "é\n")
    assert (tmp_path / "a").read_bytes() == b"\0\xff"
    assert (tmp_path / "b").read_bytes() == "é\n".encode()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    write_text_atomic(tmp_path / "a", "old")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full_disk)
    with pytest.raises(OSError, match="No space"):
        write_text_atomic(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_text_atomic(tmp_path / "a", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


def test_json_is_standard_json_even_with_nan(tmp_path: Path) -> None:
    write_json_atomic(tmp_path / "a.json", {"x": [float("nan"), 1.5], "y": float("inf")})

    def no_constant(name: str) -> None:
        raise AssertionError(name)

    text = (tmp_path / "a.json").read_text()
    assert json.loads(text, parse_constant=no_constant) == {"x": [None, 1.5], "y": None}


def test_a_link_is_relative_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    replace_link(tmp_path / "last", "one")
    replace_link(tmp_path / "last", "two")
    assert os.readlink(tmp_path / "last") == "two"
    assert read_link(tmp_path / "last") == "two"
    assert sorted(os.listdir(tmp_path)) == ["last", "one", "two"]


def test_without_symlinks_a_text_file_takes_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", unsupported)
    replace_link(tmp_path / "last", "one")
    replace_link(tmp_path / "last", "two")
    assert (tmp_path / "last").is_file()
    assert read_link(tmp_path / "last") == "two"


@pytest.mark.parametrize("target", ["../elsewhere", "/etc", "..", "a\\b"])
def test_a_link_that_leads_out_of_its_folder_is_no_link(tmp_path: Path, target: str) -> None:
    os.symlink(target, tmp_path / "link")
    (tmp_path / "text").write_text(target)
    assert read_link(tmp_path / "link") is None
    assert read_link(tmp_path / "text") is None
    assert read_link(tmp_path / "absent") is None
