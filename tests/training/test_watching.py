"""Alerts of real runs: in every place they go to, the same after a stop and a resume, and no secret in any file."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.config.compose import compose
from etude.errors import ConfigError, UserError
from etude.orchestration.callbacks import MOST_RECENT, Callback, Progress, Row
from etude.runs.run import Run
from etude.telemetry.alert_log import Transition, alerts_of
from etude.training import session
from tests.runs_compared import resume, stopped_after, train
from tests.telemetry.test_alert_delivery import answering, server

FEW = ("training.total_steps=2560", "algorithm.epochs=1", "evaluation.every_steps=0", "logging.every_steps=256")
RULES = """
table: {step_key: updates}
metrics:
  env_steps: {name: budget, max: 600, precision: 0}   # every run comes to this
  train/value_loss: {min: null}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(RULES)
    return path


def without_time(lines: list[Transition]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "time"} for line in lines]


class Sender(Callback):
    """Raises an alert of its own, takes it back, and looks at the rows there were."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_row(self, progress: Progress, row: Row) -> str | None:
        self.seen.append(len(progress.recent))
        assert progress.recent[-1] == row
        if row["env_steps"] == 1024:
            progress.send_alert("mine", "as I said", tip="think")
        if row["env_steps"] == 2048:
            progress.clear_alert("mine")
        return None


def bytes_of(run: Run) -> Iterator[bytes]:
    for path in run.path.rglob("*"):
        if path.is_file():
            yield path.read_bytes()


def test_alerts_are_the_same_after_a_resume_and_reach_every_place(
    tmp_path: Path, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*FEW, f"logging.rules={rules}")
    whole = train("CartPole-v1:ppo", tmp_path / "whole", *words)
    (alert,) = alerts_of(whole.path)
    assert (alert["id"], alert["state"], alert["env_steps"]) == ("budget_high", "raised", 768)
    log = whole.log_path.read_text()
    assert f"alert budget_high: env_steps is 768, above 600 (at {alert['updates']} updates)" in log
    assert "! budget_high" in log
    assert "alerts  budget_high  8 of 10 rows: env_steps is 768" in log

    with server(answering(200)) as (url, received):
        token = secrets.token_hex(16)  # not in any source: runs keep changes of the code they were made with
        monkeypatch.setenv("ETUDE_ALERT_WEBHOOK", f"{url}{token}")
        with stopped_after(6):
            cut = train("CartPole-v1:ppo", tmp_path / "cut", *words)
        assert [line["id"] for line in alerts_of(cut.path)] == ["budget_high"]
        rules.unlink()  # the run has its copy
        resume(cut)
    assert without_time(alerts_of(cut.path)) == without_time(alerts_of(whole.path))
    assert [(each["id"], each["run"]) for each in received] == [("budget_high", cut.id)]
    assert not any(token.encode() in data for data in bytes_of(cut))


def test_a_callback_sends_alerts_and_looks_back_on_rows(tmp_path: Path) -> None:
    training = session.start(compose("CartPole-v1:ppo", words=FEW), root=tmp_path, quiet=True)
    training.orchestrator.add_callback(sender := Sender())
    training.finish()
    lines = [(line["id"], line["state"], line["env_steps"]) for line in alerts_of(training.run.path)]
    assert lines == [("mine", "raised", 1024), ("mine", "cleared", 2048)]
    assert sender.seen == list(range(1, 11))
    assert training.orchestrator.recent.maxlen == MOST_RECENT


def test_strict_stops_the_run_at_its_first_alert_and_saves_it(tmp_path: Path, rules: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *FEW, f"logging.rules={rules}", "logging.strict=true")
    assert run.status == "stopped"
    assert run.record["stop_reason"] == "alert budget_high: env_steps is 768, above 600"
    assert run.checkpoints().newest_whole().counters["env_steps"] == 768


def test_what_is_wrong_is_found_before_the_run_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("metrics: {train/loss: {maxx: 1}}")
    for word, problem in (
        (f"logging.rules={wrong}", "did you mean 'max'"),
        (f"logging.rules={tmp_path / 'none.yaml'}", "there is no such file"),
        ("logging.webhook=https://a.example/T0/abcdefghijklmnopqrst", "holds a secret"),
        ("logging.webhook=env:NOBODY_SET_IT", "NOBODY_SET_IT is not set"),
        ("logging.email=me@example.com", "ETUDE_SMTP"),
    ):
        with pytest.raises((UserError, ConfigError), match=problem):
            train("CartPole-v1:random", tmp_path / "runs", "training.total_steps=64", word)
    assert not (tmp_path / "runs").exists()


def test_somebody_elses_settings_choose_nobody_to_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from etude.runs import trust
    from etude.training.watching import _deliveries

    run = train("CartPole-v1:random", tmp_path, "training.total_steps=64", "logging.webhook=http://127.0.0.1:9/")
    config = session.load_config(run)
    mine = _deliveries(run, config, print)
    monkeypatch.setattr(trust, "is_own", lambda path: False)
    assert len(mine) == 1
    assert _deliveries(run, config, print) == []
    mine[0].close()


def test_environment_variables_silence_the_log_and_lines_about_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etude.telemetry.silence import CHECKPOINT_PRINTS, SESSION_LOGS, is_silenced

    for names in (SESSION_LOGS, CHECKPOINT_PRINTS):
        assert not is_silenced(names)
        for name in names:
            with monkeypatch.context() as within:
                within.setenv(name, "1")
                assert is_silenced(names)
                within.setenv(name, "0")
                assert not is_silenced(names)
    with stopped_after(2):
        run = train("CartPole-v1:ppo", tmp_path, *FEW)
    monkeypatch.setenv("ETUDE_QUIET", "1")
    resume(run)
    log = run.log_path.read_text()
    assert "resumed from checkpoint" not in log
    monkeypatch.setenv("ETUDE_DISABLE_SESSION_LOGS", "1")
    resume(run, "training.total_steps=2816")
    assert run.log_path.read_text() == log


def test_a_file_that_takes_no_alerts_is_said_once_and_the_run_goes_on(tmp_path: Path, rules: Path) -> None:
    training = session.start(compose("CartPole-v1:ppo", words=(*FEW, f"logging.rules={rules}")), root=tmp_path, quiet=True)
    (training.run.path / "logs" / "alerts.jsonl").mkdir()
    training.orchestrator.add_callback(Sender())
    training.finish()
    assert training.run.status == "finished"
    log = training.run.log_path.read_text()
    assert log.count("is a folder, not a file") == 1
    assert "alert budget_high" in log
    assert "alert mine: as I said; think" in log
