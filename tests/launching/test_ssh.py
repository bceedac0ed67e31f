"""`etude launch ssh` with stubs for ssh and rsync: exactly what is copied, exactly what is called."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.launching import own_files
from etude.launching.own_files import own_files as found_files
from tests.launching.conftest import HOSTILE, Stubs, assert_no_secret, dry_files

TRAIN = ("train", "CartPole-v1:ppo", "training.total_steps=600")
NAME = ("--job-name", "it")


def test_dry_prints_what_is_then_used_and_does_nothing(stubs: Stubs, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stubs.add("ssh", "process 17\n")
    stubs.add("rsync")
    (work / "mine.py").write_text("GAMMA = 0.9\n")
    words = ["launch", "ssh", "me@box", "--port", "2222", "--unchecked", *NAME, *TRAIN, "--seed", "1-2"]
    assert etude([*words, "--dry"]) == 0
    shown = capsys.readouterr().out
    assert [path.name for path in work.iterdir()] == ["mine.py"]
    assert stubs.calls("ssh") == []
    assert etude(words) == 0
    for path, text in dry_files(shown).items():
        assert Path(path).read_text() == text
    ssh = ["-p", "2222", "-o", "ServerAliveInterval=15", "--", "me@box"]
    there = "etude-launches/it"
    assert stubs.calls("ssh") == [
        [*ssh, f"mkdir -p {there}/code {there}/runs {there}/logs {there}/exit"],
        [*ssh, f"bash {there}/job.sh check"],
        [*ssh, f"bash {there}/job.sh start"],
    ]
    copy = ["-rlptz", "--from0", "--files-from=-", "-e", "ssh -p 2222 -o ServerAliveInterval=15"]
    assert stubs.calls("rsync") == [
        [*copy, f"{work}/", f"me@box:{there}/code/"],
        [*copy, f"{work}/runs/.launch/it/", f"me@box:{there}/"],
    ]
    for name in ("ssh", "rsync"):
        for call in stubs.calls(name):
            assert shlex.join([name, *call]) in shown
    assert (stubs.folder / "rsync.in").read_bytes() == b"job.sh\0"
    assert "# reads mine.py\n" in shown
    assert_no_secret(work)


def test_tar_copies_where_rsync_is_missing(stubs: Stubs, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stubs.add("ssh", errors="bash: line 1: rsync: command not found\n", code=127)
    stubs.add("rsync", errors="bash: line 1: rsync: command not found\n", code=12)
    stubs.add("ssh", "process 17\n")
    assert etude(["launch", "ssh", "box", "--unchecked", *NAME, *TRAIN]) == 2
    assert "box has no rsync: install it there, or add --copy tar" in capsys.readouterr().err
    assert etude(["launch", "ssh", "box", "--copy", "tar", "--unchecked", *NAME, *TRAIN]) == 0
    assert "tar --no-same-owner -xf - -C etude-launches/it" in stubs.calls("ssh")[-3]
    assert etude(["launch", "sync", "it", "--dry"]) == 0
    shown = capsys.readouterr().out
    parts = [shown.index(f"pack {part}") for part in ("checkpoints", "rest", "logs")]
    assert parts == sorted(parts), "checkpoints first: rows are then never older than one of them"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-oProxyCommand=touch gone"], "a host is written HOST or USER@HOST"),
        (["a b"], "a host is written"),
        (["box;x"], "a host is written"),
        (["box", "--remote", "$(x)"], "--remote '$(x)'"),
        (["box", "--remote=-x"], "--remote '-x'"),
        (["box", "--remote", "/"], "--remote '/'"),
        (["box", "--ssh-config", "a b"], "--ssh-config 'a b'"),
        (["box", "--port", "0"], "--port 0"),
        (["box", "--setup", "a\nb"], "--setup: one line each"),
    ],
)
def test_slips_are_one_line(words: list[str], said: str, stubs: Stubs, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stubs.add("ssh")
    assert etude(["launch", "ssh", "--unchecked", *words[1:], "--", words[0], *TRAIN]) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert len(errors.splitlines()) == 1
    assert stubs.calls("ssh") == []
    assert not list(work.rglob("gone"))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_words_arrive_as_they_are(name: str, stubs: Stubs, work: Path, tmp_path: Path) -> None:
    printing = tmp_path / "print words"
    printing.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    printing.chmod(0o755)
    stubs.add("ssh")
    stubs.add("rsync")
    assert etude(["launch", "ssh", "box", "--unchecked", *NAME, "--python", str(printing), *TRAIN, f"--name={name}"]) == 0
    there = tmp_path / "the re"
    for folder in ("code", "runs", "logs", "exit"):
        (there / folder).mkdir(parents=True)
    shutil.copy(work / "runs/.launch/it/job.sh", there)
    subprocess.run(["bash", str(there / "job.sh"), "task", "0"], cwd=tmp_path, check=True)
    words = (there / "logs" / "0.log").read_text().split("\0")[:-1]
    assert words == ["-m", "etude", *TRAIN, f"--name={name}", "--auto-resume", f"--runs={there}/runs"]
    assert (there / "exit" / "0").read_text() == "0\n"
    assert not list(tmp_path.rglob("gone"))


def test_gpus_are_dealt_out(stubs: Stubs, work: Path, tmp_path: Path) -> None:
    stubs.add("ssh")
    stubs.add("rsync")
    stubs.add("nvidia-smi", "GPU 0\nGPU 1\nGPU 2\nGPU 3\n")
    showing = tmp_path / "showing"
    showing.write_text("#!/bin/sh\necho gpus $CUDA_VISIBLE_DEVICES\nsleep 0.5\n")
    showing.chmod(0o755)
    words = ["launch", "ssh", "box", "--unchecked", *NAME, "--gpus", "2", "--python", str(showing), *TRAIN, "--seed", "1-4"]
    assert etude(words) == 0
    there = tmp_path / "there"
    for folder in ("code", "runs", "logs", "exit"):
        (there / folder).mkdir(parents=True)
    shutil.copy(work / "runs/.launch/it/job.sh", there)
    subprocess.run(["bash", str(there / "job.sh"), "all"], check=True)
    seen = sorted((there / "logs" / f"{number}.log").read_text() for number in range(4))
    assert seen == ["gpus 0,1\n"] * 2 + ["gpus 2,3\n"] * 2


def test_states_are_read_and_a_living_launch_is_not_started_twice(
    stubs: Stubs, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stubs.add("ssh", "alive\n0 0\n1 \n")
    stubs.add("rsync")
    launch = ["launch", "ssh", "box", "--unchecked", *NAME, *TRAIN, "--seed", "1-3"]
    assert etude(launch) == 0
    capsys.readouterr()
    assert etude(["launch", "status", "it"]) == 0
    shown = capsys.readouterr().out
    for number, state in enumerate(("finished", "running", "waiting")):
        assert f"  {number}  {state}" in shown
    assert etude(launch) == 2
    stubs.add("ssh", "0 0\n1 \n2 1\n")
    assert etude(["launch", "status", "it"]) == 0
    shown = capsys.readouterr().out
    for number, state in enumerate(("finished", "gone", "failed (1)")):
        assert f"  {number}  {state}" in shown


def test_own_files_are_what_git_does_not_ignore(work: Path) -> None:
    for name in (
        "a.py",
        "b.bin",
        "secret.txt",
        ".env",
        ".env.local",
        "sub/c.yaml",
        "runs/x/config.yaml",
        "env/pyvenv.cfg",
        "env/z.py",
    ):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x")
    assert found_files(work, but=work / "runs") == ["a.py", "secret.txt", "sub/c.yaml"], "code and settings, no environment"
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    (work / ".gitignore").write_text("secret.txt\nenv/\n")
    assert found_files(work, but=work / "runs") == [".gitignore", "a.py", "b.bin", "sub/c.yaml"]


def test_a_home_folder_is_not_copied_by_mistake(
    stubs: Stubs, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(own_files, "MOST_FILES", 2)
    for number in range(3):
        (work / f"{number}.py").write_text("x")
    assert etude(["launch", "ssh", "box", "--unchecked", "--dry", *TRAIN]) == 2
    assert "3 files of" in capsys.readouterr().err
    assert etude(["launch", "ssh", "box", "--unchecked", "--dry", "--no-code", *TRAIN]) == 0


@pytest.mark.usefixtures("nothing_installed")
def test_a_missing_tool_is_one_line_with_the_way_out(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for backend, tool in {"ssh box": "ssh", "ray": "ray", "docker": "docker", "modal --yes": "modal"}.items():
        assert etude(["launch", *backend.split(), "--unchecked", *TRAIN]) == 2
        said = capsys.readouterr().err
        assert f"`{tool}` is not installed here: " in said
        assert len(said.splitlines()) == 1
    assert not list(work.iterdir())
