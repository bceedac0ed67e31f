"""Whatever has happened to a run's files: what is damaged is said in one line, and nothing is written outside the run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.runs.run import Run
from tests.runs.test_checkpoint_hostile import plant
from tests.runs_compared import assert_same_run, resume, stopped_after, train

WORDS = ("training.total_steps=1024", "algorithm.epochs=1", "evaluation.episodes=1", "checkpoint.every_steps=256")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with stopped_after(3):
        return train("CartPole-v1:ppo", tmp_path_factory.mktemp("runs"), *WORDS)


@pytest.fixture
def run(stopped: Run, tmp_path: Path) -> Run:
    return Run(Path(shutil.copytree(stopped.path, tmp_path / "runs" / stopped.id, symlinks=True)))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must fail, with one line and no traceback, and return the line."""

    def command(*words: str | Path) -> str:
        code = etude([str(word) for word in words])
        told = capsys.readouterr().err
        assert code in (1, 2), told
        assert "Traceback" not in told
        return told

    return command


def newest(run: Run) -> Path:
    return max(path for path in run.checkpoints_path.iterdir() if path.name[0] == "0")


# ---- Defect 1: links ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "logs", "checkpoints", "videos", "provenance"])
def test_nothing_is_written_through_a_link(run: Run, tmp_path: Path, said: Callable[..., str], name: str) -> None:  # Defect 1
    precious = tmp_path / "precious"
    if (run.path / name).is_dir():
        shutil.move(run.path / name, precious)
    else:
        precious.write_text("mine\n")
        (run.path / name).unlink(missing_ok=True)
    before = sorted((path, path.read_bytes()) for path in [precious, *precious.rglob("*")] if path.is_file())
    (run.path / name).symlink_to(precious)
    assert f"{name}: is a link" in said("resume", run.path)
    assert before == sorted((path, path.read_bytes()) for path in [precious, *precious.rglob("*")] if path.is_file())


def test_a_linked_log_costs_its_lines_and_not_the_run(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # Defect 1
    (tmp_path / "precious").write_text("mine\n")
    run.log_path.unlink()
    run.log_path.symlink_to(tmp_path / "precious")
    assert etude(["resume", str(run.path), "-q"]) == 0
    assert "run.log can't be written: is a link" in capsys.readouterr().err
    assert (tmp_path / "precious").read_text() == "mine\n"


@pytest.mark.parametrize("name", ["logs", "logs/evaluations.jsonl"])
def test_an_evaluation_is_not_noted_through_a_link(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:  # Defect 1
    precious = tmp_path / "precious"
    if name == "logs":
        shutil.move(run.logs, precious)
    else:
        precious.write_text("mine\n")
    (run.path / name).symlink_to(precious)
    assert etude(["evaluate", str(run.path), "--episodes", "1"]) == 0
    assert "is a link, which is never followed" in capsys.readouterr().err
    assert not (precious / "evaluations.jsonl").exists()
    assert precious.is_dir() or precious.read_text() == "mine\n"


# ---- Defect 2: damage passed over --------------------------------------------------------------------------------------------


def flip(run: Run) -> None:
    path = newest(run) / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"sequence"', b'"sequfnce"'))


def link(run: Run) -> None:
    path = newest(run)
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


@pytest.mark.parametrize("damage", [flip, link])
@pytest.mark.parametrize("verb", ["resume", "evaluate", "export", "init-from", "path", "verify"])
def test_a_damaged_newest_checkpoint_is_never_passed_over(
    run: Run, said: Callable[..., str], verb: str, damage: Callable[[Run], None], tmp_path: Path
) -> None:  # Defect 2
    name = newest(run).name
    damage(run)
    commands: dict[str, list[str | Path]] = {
        "resume": ["resume", run.path],
        "evaluate": ["evaluate", run.path, "--checkpoint", "last"],
        "export": ["export", run.path, "--checkpoint", "last", "--out", tmp_path / "out"],
        "init-from": ["train", "CartPole-v1:ppo", "--init-from", run.path, "--runs", tmp_path / "new"],
        "path": ["runs", "path", run.path, "--checkpoint", "last"],
        "verify": ["verify", run.path],
    }
    told = said(*commands[verb])
    assert f"checkpoint {name} is damaged" in told
    assert verb == "verify" or "--checkpoint 00000" in told


# ---- Defects 6, 7, 8: settings, rows and states ------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["resume", "evaluate", "verify"])
def test_one_flipped_digit_of_the_settings_is_noticed(run: Run, said: Callable[..., str], verb: str) -> None:  # Defect 6
    text = run.resolved_path.read_text()
    run.resolved_path.write_text(text.replace("gamma: 0.98", "gamma: 0.97"))
    assert run.resolved_path.read_text() != text
    assert "resolved.yaml: has changed since the run was made, or is damaged" in said(verb, run.path)


def test_one_flipped_digit_of_a_row_is_noticed(run: Run, said: Callable[..., str]) -> None:  # Defect 6
    first, *rest = run.metrics_path.read_text().splitlines()
    row = json.loads(first)
    run.metrics_path.write_text(
        "\n".join([first.replace(f"{row['train/loss']}", f"{row['train/loss']}"[:-1] + "7"), *rest, ""])
    )
    assert run.metrics_path.read_text().splitlines()[0] != first
    assert "rows in it have changed since the checkpoint was saved" in said("resume", run.path)


@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_a_flipped_digit_of_a_record_is_noticed(run: Run, capsys: pytest.CaptureFixture[str], name: str) -> None:  # Defect 6
    path = run.path / name
    path.write_text(path.read_text().replace('"seed": 1', '"seed": 8'))
    etude(["runs", "rebuild", "--runs", str(run.path.parent)])
    assert f"{name} is damaged: its checksum differs" in capsys.readouterr().err


BOMB = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("verb", ["resume", "evaluate", "export"])
@pytest.mark.parametrize(
    "text",
    [BOMB.encode(), b"[" * 100_000, b"a: " + b"9" * 5_000, b"a: \xff\xfe", b"", b"[1, 2]", None],
    ids=["aliases", "deep", "digits", "bytes", "empty", "list", "/dev/zero"],
)
def test_hostile_settings_are_one_line(
    run: Run, said: Callable[..., str], verb: str, text: bytes | None
) -> None:  # Defects 7 and 8
    run.resolved_path.unlink()
    if text is None:
        run.resolved_path.symlink_to("/dev/zero")
    else:
        run.resolved_path.write_bytes(text)
    record = {key: value for key, value in run.record.items() if key != "resolved_sha256"}
    run.record_path.write_text(json.dumps(record))  # as a stranger would
    assert "resolved.yaml: " in said(verb, run.path)


@pytest.mark.parametrize("state", [[], {}, 7, "text", None, {"actor": 1}, {"shared": []}, [[[]]]], ids=repr)
@pytest.mark.parametrize("part", ["policy", "shared", "rank/0"])
def test_a_state_of_the_wrong_kind_is_one_line(
    run: Run, said: Callable[..., str], state: object, part: str, tmp_path: Path
) -> None:  # Defect 8
    plant(newest(run), f"{part}/state.json", json.dumps(state).encode())
    if part == "policy":
        assert "does not fit" in said("evaluate", run.path, "--checkpoint", "last")
    else:
        assert "does not fit" in said("resume", run.path)
    if part == "shared":
        assert "does not fit" in said("train", "CartPole-v1:ppo", "--init-from", run.path, "--runs", tmp_path / "new")


@pytest.mark.parametrize(("name", "is_folder"), [("logs", False), ("metrics.jsonl", True), ("checkpoints", False)])
def test_a_file_for_a_folder_and_a_folder_for_a_file_are_one_line(
    run: Run, said: Callable[..., str], name: str, is_folder: bool
) -> None:  # Defect 8
    path = run.path / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.mkdir() if is_folder else path.touch()
    assert name in said("resume", run.path)


def test_a_fifo_does_not_hang(run: Run, said: Callable[..., str]) -> None:  # Defect 3
    run.metrics_path.unlink()
    os.mkfifo(run.metrics_path)
    assert "metrics.jsonl: not a regular file" in said("resume", run.path)


# ---- Defects 15 and 16: what a resume may change -----------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["experiment.seed=5", "experiment.init_from=elsewhere"])
def test_what_a_run_began_with_is_not_changed_afterwards(run: Run, said: Callable[..., str], word: str) -> None:  # Defect 15
    before = run.record_path.read_bytes()
    assert f"{word}: run {run.id} began with" in said("resume", run.path, word)
    assert run.record_path.read_bytes() == before


def test_a_resume_may_add_and_remove_early_stopping(run: Run) -> None:  # Defect 16
    words = ["training.early_stop=train", "training.return_threshold=100000", "training.total_steps=1536"]
    with stopped_after(1):
        assert etude(["resume", str(run.path), "-q", *words]) == 130
    assert "callback EarlyStop begins here" in run.log_path.read_text()
    assert etude(["resume", str(run.path), "-q", "training.early_stop=off"]) == 0
    assert "callback EarlyStop ends here" in run.log_path.read_text()


# ---- Defect 4: killed after going back ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands in for SIGKILL: nothing of ours catches it."""


@pytest.mark.parametrize(
    "moment", ["etude.training.session.Training.__init__", "etude.orchestration.orchestrator.Orchestrator.save"]
)
def test_a_resume_from_an_earlier_checkpoint_that_saved_nothing_has_never_been(
    stopped: Run, run: Run, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:  # Defect 4
    before = run.metrics_path.read_bytes()

    def killed(*arguments: object, **options: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(moment, killed)
        with pytest.raises(Killed):
            resume(run, checkpoint="000001")
    assert run.metrics_path.read_bytes() != before
    resume(run)
    assert run.status == "finished"
    again = Run(Path(shutil.copytree(stopped.path, run.path.parent.with_name("again") / stopped.id, symlinks=True)))
    resume(again)
    assert_same_run(run, again)
    assert run.metrics_path.read_bytes().startswith(before)


def test_a_finished_run_that_was_taken_back_and_killed_is_resumed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:  # Defect 4
    resume(run)
    whole = run.metrics_path.read_bytes()

    def killed(*arguments: object, **options: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("etude.training.session.Training.__init__", killed)
        with pytest.raises(Killed):
            resume(run, checkpoint="000002")
    run.update_status(pid=2**22 + 1)  # as if the process were gone
    resume(run)
    assert run.status == "finished"
    assert run.metrics_path.read_bytes() == whole
