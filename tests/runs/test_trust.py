from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from etude.config.compose import compose
from etude.errors import UserError
from etude.runs.trust import check_key, is_own, is_own_code, sign, sign_ahead
from etude.training import session


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "20260101-000000-x"
    path.mkdir(parents=True)
    (path / "config.yaml").write_text("seed: 1\n")
    (path / "resolved.yaml").write_text("device: cpu\n")
    return path


def test_a_signed_run_is_own(run_directory: Path) -> None:
    assert not is_own(run_directory)
    sign(run_directory)
    assert is_own(run_directory)


@pytest.mark.parametrize("file", ["config.yaml", "resolved.yaml"])
def test_an_edited_config_is_no_longer_own(run_directory: Path, file: str) -> None:
    sign(run_directory)
    with open(run_directory / file, "a") as opened:
        opened.write("target: os.system\n")
    assert not is_own(run_directory)


@pytest.mark.parametrize("file", ["config.yaml", "resolved.yaml", "provenance/origin.json", "provenance/changes.patch"])
@pytest.mark.parametrize("kind", ["fifo", "device", "link", "dangling", "huge"])
def test_what_is_no_file_of_ours_is_not_read_and_not_own(run_directory: Path, file: str, kind: str) -> None:
    (run_directory / "provenance").mkdir()
    (run_directory / "provenance" / "changes.patch").write_text("x")
    sign(run_directory)
    path = run_directory / file
    kept = path.rename(run_directory / "kept")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "huge":
        path.touch()
        os.truncate(path, 2**40)
    else:
        path.symlink_to({"device": Path("/dev/zero"), "link": kept, "dangling": Path("nowhere")}[kind])
    assert not is_own_code(run_directory) if file.endswith(".patch") else not is_own(run_directory)


def test_a_signature_is_neither_read_nor_written_through_a_link(run_directory: Path, tmp_path: Path) -> None:
    sign(run_directory)
    elsewhere = (run_directory / "provenance").rename(tmp_path / "elsewhere")
    (run_directory / "provenance").symlink_to(elsewhere)
    before = (elsewhere / "origin.json").read_bytes()
    assert not is_own(run_directory)
    (run_directory / "config.yaml").write_text("seed: 2\n")
    sign(run_directory)
    assert (elsewhere / "origin.json").read_bytes() == before


def test_settings_that_are_about_to_change_are_signed_before_and_after(run_directory: Path) -> None:
    sign(run_directory)
    sign_ahead(run_directory, "device: cuda\n")
    assert is_own(run_directory)  # killed before they changed
    (run_directory / "resolved.yaml").write_text("device: cuda\n")
    assert is_own(run_directory)  # killed after
    sign(run_directory)
    (run_directory / "resolved.yaml").write_text("device: cpu\n")
    assert not is_own(run_directory)  # the earlier signature is gone


def test_a_run_is_its_owner_s_from_the_moment_that_it_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(path: Path, record: object) -> None:
        assert is_own(path.parent)
        assert (path.parent / "provenance" / "git.json").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("etude.runs.run.write_record", killed)
    with pytest.raises(KeyboardInterrupt):
        session.start(compose("CartPole-v1:random"), root=tmp_path / "new", quiet=True)


def test_lines_moved_between_the_files_are_noticed(run_directory: Path) -> None:
    sign(run_directory)
    (run_directory / "config.yaml").write_text("seed: 1\ndevice: cpu\n")
    (run_directory / "resolved.yaml").write_text("")
    assert not is_own(run_directory)


def test_a_run_of_another_machine_is_not_own(run_directory: Path, data_home: Path) -> None:
    sign(run_directory)
    shutil.rmtree(data_home)
    assert not is_own(run_directory)
    sign(run_directory.parent)  # makes this machine's own key
    assert not is_own(run_directory)


def test_a_signature_does_not_move_to_another_run(run_directory: Path) -> None:
    sign(run_directory)
    shutil.copytree(run_directory, run_directory.with_name("other"))
    assert not is_own(run_directory.with_name("other"))


@pytest.mark.parametrize("origin", ["", "[]", "{}", '{"hmac_sha256": 1}', '{"hmac_sha256": "é"}', "[" * 4000])
def test_a_strange_signature_is_not_own(run_directory: Path, origin: str) -> None:
    sign(run_directory)
    (run_directory / "provenance" / "origin.json").write_text(origin)
    assert not is_own(run_directory)


def test_the_key_is_private_and_outside_the_run(run_directory: Path, data_home: Path) -> None:
    sign(run_directory)
    key = data_home / "etude" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_bytes()) == 32
    assert key.read_bytes().hex() not in (run_directory / "provenance" / "origin.json").read_text()
    assert [path.name for path in key.parent.iterdir()] == ["key"]


def test_without_a_home_nothing_is_signed_and_nothing_fails(
    run_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    sign(run_directory)
    assert not (run_directory / "provenance").exists()
    assert not is_own(run_directory)


def test_processes_that_start_together_agree_on_one_key(run_directory: Path, data_home: Path) -> None:
    script = "import sys; from pathlib import Path; from etude.runs.trust import sign; sign(Path(sys.argv[1]))"
    copies = [run_directory.with_name(f"run-{index}") for index in range(6)]
    for copy in copies:
        shutil.copytree(run_directory, copy)
    children = [subprocess.Popen([sys.executable, "-c", script, str(copy)]) for copy in copies]
    assert [child.wait(timeout=240) for child in children] == [0] * len(copies)
    assert all(is_own(copy) for copy in copies)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_can_read_is_refused_with_the_way_out(run_directory: Path, data_home: Path, mode: int) -> None:
    # Defect 10: whoever can read it can sign code in this user's name.
    sign(run_directory)
    key = data_home / "etude" / "key"
    key.chmod(mode)
    for attempt in (lambda: is_own(run_directory), lambda: sign(run_directory), check_key):
        with pytest.raises(UserError, match=f"can be read or changed by others.*chmod 600 {key}"):
            attempt()
    key.chmod(0o600)
    check_key()
    assert is_own(run_directory)


def test_a_key_of_another_user_signs_nothing(run_directory: Path, data_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign(run_directory)
    another = os.getuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    assert not is_own(run_directory)


def test_a_run_is_not_begun_with_a_key_that_others_can_read(data_home: Path, tmp_path: Path) -> None:
    check_key()
    (data_home / "etude" / "key").chmod(0o644)
    with pytest.raises(UserError, match="chmod 600"):
        session.start(compose("CartPole-v1:ppo"), root=tmp_path / "runs", quiet=True)
    assert not (tmp_path / "runs").exists()
