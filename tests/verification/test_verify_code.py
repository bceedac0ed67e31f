"""A run is run again with the code it was made with, whatever has become of it since."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import etude
from etude.cli import run as command
from etude.runs.run import Run
from etude.verification import rerun
from tests.forked import fork_instead, run_forked
from tests.runs.repositories import edit_note, make_repository, whole_state, write

ALGORITHM = '''
"""PPO with a reward of its own."""
from etude.workflows.ppo import PPO

from constants import SCALE


class MyAlgorithm(PPO):
    def _prepare(self, columns):
        return super()._prepare({**columns, "reward": columns["reward"] * SCALE})
'''
SMALL = (
    *("training.total_steps=768", "environment.num_envs=8", "evaluation.every_steps=0"),
    *("algorithm.rollout_steps=32", "algorithm.epochs=2"),
)


def _run(folder: Path, home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: what it imports stays there."""
    clean = {**os.environ, "PYTHONPATH": str(Path(etude.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-m", "etude", *arguments],
        cwd=folder,
        env={**clean, "XDG_DATA_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A repository with a run of an algorithm in it, made of uncommitted work; and the data folder with the user's key."""
    home = tmp_path_factory.mktemp("home")
    files = {"work/my_algorithm.py": ALGORITHM, "work/constants.py": "SCALE = 0.25\n", ".gitignore": "runs/\n__pycache__/\n"}
    repository = make_repository(tmp_path_factory.mktemp("original") / "code", files)
    write(repository, {"work/constants.py": "from numbers_of_mine import SCALE\n", "work/numbers_of_mine.py": "SCALE = 0.5\n"})
    command = [sys.executable, "-m", "etude", "train", "CartPole-v1:my_algorithm.MyAlgorithm", "-q", *SMALL]
    done = run_forked(command, cwd=repository / "work", env={**os.environ, "XDG_DATA_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    return repository, home


@pytest.fixture
def stored(original: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """That run in a copy of the repository, in which a constant was changed since."""
    repository = shutil.copytree(original[0], tmp_path / "code", symlinks=True)
    monkeypatch.setenv("XDG_DATA_HOME", str(original[1]))
    write(repository, {"work/numbers_of_mine.py": "SCALE = 0.75\n"})
    monkeypatch.chdir(repository / "work")
    fork_instead(rerun, monkeypatch)
    return Run.resolve("@last", repository / "work" / "runs")


def test_the_stored_code_is_used_and_the_users_own_is_left_alone(stored: Run, capsys: pytest.CaptureFixture[str]) -> None:
    repository = stored.path.parents[2]
    before = whole_state(repository, leave_out=(f"work/runs/{stored.id}/logs",))
    assert command(["verify", "@last"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"code      commit [0-9a-f]{12} with uncommitted changes, in a worktree of .*/code\n", out)
    assert whole_state(repository, leave_out=(f"work/runs/{stored.id}/logs",)) == before
    assert not (repository / ".git" / "worktrees").exists()
    assert "my_algorithm" not in sys.modules, "a run's code runs in a process of its own"

    # The same with the code as it is now: the changed constant shows, and where.
    assert command(["verify", "@last", "--current-code"]) == 1
    said = capsys.readouterr()
    assert "1 file differs in 1 line (work/numbers_of_mine.py)" in said.err
    assert re.search(r"first     row 1 at 256 environment steps: train/\w+ was \S+, is \S+", said.out)


def test_code_that_somebody_changed_in_the_run_is_not_run(
    stored: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    planted = stored.path / "provenance" / "untracked" / "work" / "sitecustomize.py"
    planted.write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')\n")
    assert command(["verify", "@last"]) == 2
    assert "is not from you on this machine, and is not run" in capsys.readouterr().err
    assert not (tmp_path / "pwned").exists()


def test_what_can_not_be_restored_says_so_and_what_else_can_be_done(stored: Run, capsys: pytest.CaptureFixture[str]) -> None:
    edit_note(stored.path, commit="0" * 40)
    assert command(["verify", "@last", "--trust"]) == 2
    said = capsys.readouterr().err
    assert "does not have; `git fetch origin 0000" in said
    assert "--current-code" in said
    assert not list(stored.path.parents[2].glob(".git/worktrees/*"))


def test_ended_amid_a_re_run_it_leaves_nothing_behind(stored: Run, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "etude", "verify", "@last"],
        env={**os.environ, "PYTHONPATH": str(Path(etude.__file__).parents[1]), "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 240
        while not list(tmp_path.glob("tmp/*/again/request.json")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        (child,) = tmp_path.glob("tmp/*/again/child.log")
        process.terminate()
        assert process.wait(timeout=240) == 130
    finally:
        process.kill()
        process.wait()
    assert not child.exists()
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (stored.path.parents[2] / ".git" / "worktrees").exists()


def test_where_the_repository_is_etudes_own_the_stored_etude_is_used(tmp_path: Path, home: Path) -> None:
    repository = tmp_path / "etude"
    shutil.copytree(Path(etude.__file__).parent, repository / "src" / "etude", ignore=shutil.ignore_patterns("__pycache__"))
    make_repository(repository, {".gitignore": "/runs/\n__pycache__/\n"})
    path = {"PYTHONPATH": str(repository / "src")}
    assert _run(repository, home, "train", "CartPole-v1:ppo", "-q", *SMALL, **path).returncode == 0
    ppo = repository / "src" / "etude" / "workflows" / "ppo.py"
    changed = ppo.read_text().replace("log_ratio.exp()", "log_ratio.exp() * 1.5")
    assert changed != ppo.read_text()
    ppo.write_text(changed)
    done = _run(repository, home, "verify", "@last", "--json", **path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["outcome"] == "reproduced"
