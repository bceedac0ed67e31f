from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from etude.errors import UserError
from etude.runs import lock
from etude.runs.lock import brief_lock
from etude.runs.run import Run
from tests.runs.run_trees import make_run


def test_tags_are_added_once_and_removed(tmp_path: Path) -> None:
    run = make_run(tmp_path, "x", tags=["a"])
    assert run.edit_tags(add=["b", "a", " c ", "b"]) == ["a", "b", "c"]
    assert run.edit_tags(add=["d"], remove=["a", "nothing"]) == ["b", "c", "d"]
    assert Run.open(run.path).record["tags"] == ["b", "c", "d"]
    assert run.record["name"] == "x"


@pytest.mark.parametrize("tag", ["", "  ", "a,b", "a\nb"])
def test_a_tag_that_could_not_be_typed_again_is_refused(tmp_path: Path, tag: str) -> None:
    run = make_run(tmp_path, "x")
    with pytest.raises(UserError, match="no comma"):
        run.edit_tags(add=["fine", tag])
    assert run.record["tags"] == []


def test_tagging_while_the_trainer_writes_loses_neither(tmp_path: Path) -> None:
    run = make_run(tmp_path, "x")
    script = (
        "import sys; from pathlib import Path; from etude.runs.run import Run\n"
        "run = Run.open(Path(sys.argv[1]))\n"
        "for number in range(60):\n"
        "    {}\n"
    )
    writers = {
        "status": "run.update_status(status='running', **{f'field{number}': number})",
        "tags": "run.edit_tags(add=[f'a{number}'])",
        "others": "run.edit_tags(add=[f'b{number}'])",
    }
    commands = [[sys.executable, "-c", script.format(body), str(run.path)] for body in writers.values()]
    # The run's own lock is the trainer's, for hours; nobody waits for it here.
    with run.lock():
        children = [subprocess.Popen(command) for command in commands]
        assert [child.wait(timeout=240) for child in children] == [0] * 3
    record = run.record
    assert set(record["tags"]) == {f"{letter}{number}" for letter in "ab" for number in range(60)}
    assert [record[f"field{number}"] for number in range(60)] == list(range(60))


def test_an_owner_that_was_stopped_in_the_middle_does_not_hold_up_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    run = make_run(tmp_path, "x")
    with brief_lock(run.path / ".record.lock"):
        monkeypatch.setattr(lock, "time", clock)
        run.update_status(status="stopped")
        assert sum(pauses) == pytest.approx(lock._LONGEST_WAIT_S, abs=2 * max(pauses)), "it waited, and then no longer"
    assert run.status == "stopped"
