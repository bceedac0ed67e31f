"""Whoever goes on with a run after changing its code is told so; each code is noted, and the old one can be used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.cli import stored_code
from etude.runs.run import Run
from tests.forked import fork_instead
from tests.runs.repositories import make_repository, whole_state, write

WORDS = ["training.total_steps=512", "algorithm.epochs=1", "evaluation.every_steps=0"]
CODE = "from pathlib import Path\nfrom etude.workflows.ppo import PPO\nWHICH = 'first'\nclass Mine(PPO):\n    pass\n"
MARKED = CODE + "Path({mark!r}).write_text(WHICH)\n"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


@pytest.fixture
def repository(tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"my_changed_module.py": MARKED.format(mark=str(mark)), ".gitignore": "runs/\n__pycache__/\n"}
    top = make_repository(tmp_path / "code", files)
    monkeypatch.chdir(top)
    monkeypatch.syspath_prepend(str(top))
    assert etude(["train", "CartPole-v1:my_changed_module.Mine", *WORDS, "-q"]) == 0
    yield top
    sys.modules.pop("my_changed_module", None)


def test_changed_code_is_said_and_noted(repository: Path, mark: Path, capsys: pytest.CaptureFixture[str]) -> None:  # Defect 17
    run = Run.resolve("@last", Path("runs"))
    assert etude(["evaluate", "@last", "--episodes", "1"]) == 0
    assert "your code has changed" not in capsys.readouterr().err
    write(repository, {"my_changed_module.py": MARKED.format(mark=str(mark)).replace("first", "second")})
    assert etude(["evaluate", "@last", "--episodes", "1"]) == 0
    assert "your code has changed since: my_changed_module;" in capsys.readouterr().err
    assert etude(["resume", "@last", "training.total_steps=768", "-q"]) == 0
    assert "your code has changed since: my_changed_module;" in run.log_path.read_text()
    assert "+WHICH = 'second'" in (run.path / "sittings" / "2" / "provenance" / "changes.patch").read_text()
    # The third sitting has the code of the second, and that is what counts.
    capsys.readouterr()
    assert etude(["resume", "@last", "training.total_steps=1024", "-q"]) == 0
    assert run.log_path.read_text().count("your code has changed") == 1
    assert not (run.path / "sittings" / "3").exists()


def test_the_stored_code_is_used_on_request_and_the_users_files_stay(
    repository: Path, mark: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # Defect 17
    fork_instead(stored_code, monkeypatch)
    write(repository, {"my_changed_module.py": MARKED.format(mark=str(mark)).replace("first", "second"), "new.txt": "mine"})
    before = whole_state(repository, leave_out=("runs",))
    mark.unlink()
    assert etude(["evaluate", "@last", "--episodes", "1", "--stored-code"]) == 0
    assert mark.read_text() == "first"
    assert "code: commit" in capfd.readouterr().err
    assert whole_state(repository, leave_out=("runs",)) == before


def test_outside_a_repository_there_is_no_stored_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert etude(["train", "CartPole-v1:ppo", *WORDS, "-q"]) == 0
    assert etude(["resume", "@last", "--stored-code"]) == 2
    assert "was made outside a git repository" in capsys.readouterr().err
