"""A stranger's folder can't make Etude write elsewhere, wait for ever or read without end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etude.errors import EtudeError
from etude.files.regular import RefusedFileError, append_lines, open_descriptor, own_folder, read_bytes

WRITING = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def test_a_link_is_never_written_through(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "run.log").symlink_to(precious)
    with pytest.raises(RefusedFileError, match="is a link, which is never followed"):
        open_descriptor(tmp_path / "run.log", WRITING | os.O_TRUNC)
    assert precious.read_text() == "mine"


def test_a_link_to_nothing_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedFileError, match="is a link"):
        open_descriptor(tmp_path / "run.log", WRITING)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("flags", [os.O_RDONLY, WRITING])
def test_a_fifo_is_refused_without_waiting(tmp_path: Path, flags: int) -> None:
    os.mkfifo(tmp_path / "summary.json")
    with pytest.raises(RefusedFileError, match="not a regular file"):
        open_descriptor(tmp_path / "summary.json", flags)


def test_a_device_is_refused() -> None:
    with pytest.raises(RefusedFileError, match="not a regular file"):
        read_bytes(Path("/dev/zero"))


def test_a_folder_in_a_files_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(RefusedFileError, match="is a folder, not a file"):
        open_descriptor(tmp_path / "metrics.jsonl", WRITING)


def test_no_more_is_read_than_allowed(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 100)
    assert len(read_bytes(tmp_path / "large", 100)) == 100
    with pytest.raises(RefusedFileError, match="larger than the 99 bytes allowed"):
        read_bytes(tmp_path / "large", 99)


def test_a_new_file_has_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    os.close(open_descriptor(tmp_path / "new", WRITING))
    (tmp_path / "plain").touch()
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_own_folder_is_made_and_no_link(tmp_path: Path) -> None:
    assert own_folder(tmp_path / "logs").is_dir()
    assert own_folder(tmp_path / "logs").is_dir()
    (tmp_path / "linked").symlink_to(tmp_path / "logs")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    for name in ("linked", "dangling"):
        with pytest.raises(RefusedFileError, match="is a link"):
            own_folder(tmp_path / name)
    with pytest.raises(RefusedFileError, match="not a folder"):
        own_folder(tmp_path / "file")


def test_a_refusal_is_one_line_for_the_user_and_an_os_error_for_code(tmp_path: Path) -> None:
    (tmp_path / "run.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EtudeError) as caught:
        read_bytes(tmp_path / "run.log")
    assert isinstance(caught.value, OSError)
    assert str(caught.value).startswith(f"{tmp_path / 'run.log'}: is a link")


def test_a_line_is_never_glued_to_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "changes.jsonl"
    append_lines(path, "one")
    path.write_bytes(path.read_bytes() + b"ha")
    append_lines(path, "two")
    append_lines(path, "three")
    assert path.read_text() == "one\nha\ntwo\nthree\n"
