"""A run that is run again gives the same numbers, and whatever does not is found and named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from etude.cli import run as command
from etude.errors import UserError
from etude.orchestration.callbacks import Callback, Progress, Row
from etude.orchestration.orchestrator import Orchestrator
from etude.runs.requests import ask
from etude.runs.run import Run
from etude.training import attendant
from etude.verification import rerun
from etude.verification import verify as verification
from etude.verification.verify import Request, verify
from tests.forked import fork_instead
from tests.runs_compared import forge_settings, resume, stopped_after, train

SMALL = ("training.total_steps=1536", "algorithm.epochs=2", "evaluation.episodes=2")
# One line for each algorithm and kind of environment; later ones join here.
CASES = {
    "cartpole": ("CartPole-v1:ppo", *SMALL),
    "pendulum": ("Pendulum-v1:ppo", *SMALL, "algorithm.rollout_steps=64", "environment.normalize_observations=rolling"),
    "lake": ("FrozenLake-v1:ppo", *SMALL, "algorithm.rollout_steps=32"),
}
RESUMED = ("pendulum",)


@pytest.fixture(autouse=True)
def outside_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where code is not stored, so that these tests are about numbers alone."""
    folder = tmp_path / "plain"
    folder.mkdir()
    monkeypatch.chdir(folder)
    fork_instead(rerun, monkeypatch)
    return folder


@pytest.fixture
def trained(tmp_path: Path) -> Callable[..., Run]:
    return lambda case="cartpole", *words: train(CASES[case][0], tmp_path / "runs", *CASES[case][1:], *words)


def tree(run: Run) -> dict[str, bytes]:
    files = [path for path in run.path.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(run.path)): path.read_bytes() for path in files if path.name != "verified.json"}


@pytest.mark.parametrize("case", CASES)
def test_a_run_reproduces(case: str, trained: Callable[..., Run], capsys: pytest.CaptureFixture[str]) -> None:
    if case in RESUMED:
        with stopped_after(3):
            run = trained(case)
        resume(run)
    else:
        run = trained(case)
    before = tree(run)
    assert command(["verify", str(run.path), "--json"]) == 0
    said = capsys.readouterr()
    report = json.loads(said.out)
    (check,) = report["checks"]
    assert report["outcome"] == "reproduced"
    assert check["rows"] == len(run.metrics_path.read_text().splitlines())
    assert check["env_steps"] == 1536
    assert check["tensors"] > 20
    assert "1,536 of 1,536 environment steps" in said.err
    assert tree(run) == before, "nothing in the run's directory changes"
    noted = json.loads((run.logs / "verified.json").read_text())
    assert (noted["version"], noted["outcome"], noted["fingerprint"]["threads"]) == (1, "reproduced", 1)


def test_a_changed_setting_is_found_and_where_it_first_shows(
    trained: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained()
    text = run.resolved_path.read_text()
    edited = text.replace("gamma: 0.98", "gamma: 0.97")
    assert edited != text
    forge_settings(run, edited)
    assert command(["verify", str(run.path)]) == 1
    said = capsys.readouterr()
    first = re.search(r"first     row 1 at 256 environment steps: (train/\w+) was (\S+), is (\S+)", said.out)
    assert first is not None, said.out
    assert first[2] != first[3]
    assert re.search(r"in all    \d+ keys in 6 of 6 rows", said.out)
    assert re.search(r"weights   \d+ of \d+ tensors .* differ", said.out)
    assert "resolved.yaml is not the config that the run began with" in said.out
    assert "differs in row 1" in said.err, "said at once, not at the end"


def test_a_flipped_bit_is_found_and_its_checkpoint_file_and_tensor_are_named(trained: Callable[..., Run]) -> None:
    run = trained()
    checkpoint = run.checkpoints().list()[-1]
    file = checkpoint.path / "policy" / "tensors.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    report = verify(run)
    assert report.exit_code == 1
    (damage,) = report.damage
    assert (damage.checkpoint, damage.file) == (checkpoint.name, "policy/tensors.safetensors")
    assert len(damage.tensors) == 1
    assert damage.tensors[0] in str(damage)


def test_damage_in_another_checkpoint_needs_no_re_run(trained: Callable[..., Run]) -> None:
    run = trained()
    checkpoint = run.checkpoints().list()[0]
    (checkpoint.path / "rank" / "0" / "state.json").write_text("{}")
    report = verify(run)
    assert (report.exit_code, report.checks) == (1, [])
    assert str(report.damage[0]).startswith(f"checkpoint {checkpoint.name} is damaged: rank/0/state.json")


def test_an_interrupted_run_is_verified_as_far_as_it_came(trained: Callable[..., Run]) -> None:
    with stopped_after(4):
        run = trained("cartpole", "logging.every_steps=600", "checkpoint.every_steps=0", "evaluation.every_steps=0")
    report = verify(run)
    (check,) = report.checks
    assert report.outcome == "reproduced"
    assert (check.env_steps, check.rows.rows) == (1024, 1)
    assert check.states is not None, "the weights at the place it was stopped, where nothing else was due"


def test_a_crashed_run_is_verified_to_its_last_row(trained: Callable[..., Run]) -> None:
    import shutil

    run = trained("cartpole", "checkpoint.every_steps=500")
    run.update_status(status="finished", pid_started="0")
    run.update_status(status="running")
    run.record_path.write_text(json.dumps({**run.record, "pid": 2**22 + 1}))
    lines = run.metrics_path.read_text().splitlines(keepends=True)
    run.metrics_path.write_text("".join(lines[:5]) + lines[5][:40])
    for checkpoint in run.checkpoints().list():
        if checkpoint.counters["env_steps"] > 1100:
            shutil.rmtree(checkpoint.path)
    assert run.status == "crashed"
    report = verify(run)
    (check,) = report.checks
    assert report.outcome == "reproduced"
    assert (check.env_steps, check.rows.rows) == (1280, 5)
    assert check.checkpoint is not None
    assert check.checkpoint.split("-")[1] == "1024"
    assert check.states is not None, "saved there although nothing stopped"


def test_what_was_changed_on_the_way_is_changed_again(trained: Callable[..., Run]) -> None:
    run = trained("cartpole", "training.total_steps=704")
    resume(run, "training.total_steps=1200", "algorithm.learning_rate=1e-05")
    report = verify(run)
    assert report.outcome == "reproduced", "\n".join(report.lines())
    assert report.checks[0].env_steps == 1200


def test_what_was_changed_while_it_trained_is_changed_again(
    trained: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two changes at one place, and one at another."""
    at = {512: ["algorithm.learning_rate=1e-5", "algorithm.clip_range=0.1"], 1024: ["logging.every_steps=256"]}

    class Asking(Callback):
        def on_row(self, progress: Progress, row: Row) -> None:
            for word in at.pop(progress.counters["env_steps"], []):
                ask(Run(cast(Path, progress.run_dir)), "set", [word])

    monkeypatch.setattr(attendant, "TICK_S", 0.0)
    monkeypatch.setattr(attendant, "REQUESTS_EVERY_S", 0.0)
    built = Orchestrator.begin
    monkeypatch.setattr(Orchestrator, "begin", lambda self: (self.add_callback(Asking()), built(self))[1])
    run = trained("cartpole", "logging.every_steps=128", "evaluation.every_steps=0")
    assert not at
    report = verify(run)
    assert report.outcome == "reproduced", "\n".join(report.lines())


def test_a_stop_and_a_resume_at_a_random_place_change_nothing(trained: Callable[..., Run]) -> None:
    report = verify(trained("cartpole", "training.total_steps=768"), Request(resume_at="random", seed=3))
    assert report.outcome == "reproduced"
    again, resumed = report.checks
    assert re.fullmatch(r"run again, stopped at (256|512) environment steps and resumed", resumed.what)
    assert resumed.rows.rows == again.rows.rows
    assert resumed.states is not None


@pytest.mark.slow
def test_an_eager_and_a_compiled_step_end_at_the_same_place(
    trained: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained("pendulum", "network.actor.hidden_dims=[8]", "network.critic.hidden_dims=[8]")
    report = verify(run, Request(steps=256, eager_vs_compiled=True))
    assert report.outcome == "reproduced"
    assert report.modes is not None
    assert report.modes["mode"] == "compiled"
    assert 0 < report.modes["largest"] <= 1e-5
    assert report.modes["tensors"] > 20
    monkeypatch.setattr(verification, "MODES_LIMIT", 0.0)
    assert verify(run, Request(steps=256, eager_vs_compiled=True)).exit_code == 1


def test_the_first_steps_alone(trained: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    report = verify(trained("cartpole", "checkpoint.keep=20"), Request(steps=600, keep=True))
    (check,) = report.checks
    assert report.outcome == "reproduced"
    assert (check.env_steps, check.rows.rows) == (768, 3)
    assert check.checkpoint is not None
    assert check.checkpoint.split("-")[1] == "512"
    assert report.kept is not None
    assert list(Path(report.kept).glob("again/runs/2*/metrics.jsonl"))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("cpu", "Another CPU", "cpu: the run had Another CPU, here it is"),
        ("threads", 7, "threads: the run had 7, here it is 1"),
        ("packages", {"etude": "0.0.1"}, "etude: the run had 0.0.1, here it is .*; pip install 'etude==0.0.1'"),
        ("packages", {"numpy": "1.0"}, "numpy: the run had 1.0, here it is .*; pip install 'numpy==1.0'"),
    ],
)
def test_another_fingerprint_is_not_comparable(
    field: str, value: object, said: str, trained: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    from etude.runs import provenance

    real = provenance.fingerprint()
    other = {**real, field: {**real["packages"], **value} if isinstance(value, dict) else value}  # type: ignore[dict-item] # a dict
    with monkeypatch.context() as patched:
        patched.setattr(provenance, "fingerprint", lambda: other)
        run = trained("cartpole", "training.total_steps=300")
    report = verify(run)
    assert report.exit_code == 2
    assert re.search(said, report.reasons[0])
    assert not (run.logs / "verified.json").exists()


def test_what_can_not_be_asked_is_said(trained: Callable[..., Run]) -> None:
    run = trained("cartpole", "training.total_steps=300")
    with pytest.raises(UserError, match="--steps 0"):
        Request(steps=0)
    with pytest.raises(UserError, match="--resume-at soon"):
        Request(resume_at="soon")
    with pytest.raises(UserError, match="must lie within the run, from 1 to 303"):
        verify(run, Request(resume_at="5000"))
    run.update_status(status="running")
    with pytest.raises(UserError, match=r"is still running \(process \d+\)"):
        verify(run)
