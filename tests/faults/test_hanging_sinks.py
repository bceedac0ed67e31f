"""A destination across a network that is dead, slow or silent: the run goes on without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from etude.runs.run import Run
from etude.telemetry import background
from etude.telemetry.background import BackgroundSink
from etude.telemetry.sinks import SinkGroup
from etude.training import sitting
from tests.faults.tiny_run import assert_ends_as, only_run, train

ROWS = [{"env_steps": float(step)} for step in range(5)]


class Remote:
    """Takes rows in a time of its own choosing."""

    def __init__(self, hangs_in: str = "") -> None:
        self.taken: list[dict[str, float]] = []
        self.released = threading.Event()
        self._hangs_in = hangs_in

    def write(self, rows: Sequence[Any]) -> None:
        self._wait("write")
        self.taken += rows

    def flush(self) -> None:
        self._wait("flush")

    def close(self) -> None:
        self._wait("close")

    def _wait(self, where: str) -> None:
        if where == self._hangs_in:
            self.released.wait()


@pytest.fixture
def hanging() -> Iterator[Any]:
    made = []

    def make(where: str) -> Remote:
        made.append(Remote(where))
        return made[-1]

    yield make
    for remote in made:
        remote.released.set()


def test_rows_are_handed_over_without_waiting_arrive_in_order_and_closing_waits_for_them(hanging: Any) -> None:
    remote = hanging("write")
    sink = BackgroundSink(remote)
    for row in ROWS:
        sink.write([row])
    assert remote.taken == []
    remote.released.set()
    sink.close()
    assert remote.taken == ROWS


def test_rows_are_copies_because_the_caller_may_change_its_own() -> None:
    remote, row = Remote(), {"env_steps": 1.0}
    sink = BackgroundSink(remote)
    sink.write([row])
    row["env_steps"] = 2.0
    sink.close()
    assert remote.taken == [{"env_steps": 1.0}]


@pytest.mark.parametrize("where", ["write", "flush", "close"])
def test_a_sink_that_never_answers_becomes_one_alert_after_its_time(where: str, hanging: Any) -> None:
    alerts: list[str] = []
    group = SinkGroup([BackgroundSink(hanging(where), patience_s=0.1)], alerts.append)
    group.write(ROWS)
    group.flush()
    time.sleep(0.2)
    group.write(ROWS)
    group.flush()
    group.close()
    assert alerts == ["Remote failed and is off for the rest of this run: no answer for 0.1 seconds"]


def test_what_a_sink_raises_is_told_and_ends_it() -> None:
    class Refusing(Remote):
        def write(self, rows: Sequence[Any]) -> None:
            raise ConnectionError("the server is gone")

    alerts: list[str] = []
    group = SinkGroup([BackgroundSink(Refusing())], alerts.append)
    group.write(ROWS)
    group.close()
    assert alerts == ["Refusing failed and is off for the rest of this run: the server is gone"]


@pytest.mark.parametrize("where", ["write", "close"])
def test_a_run_does_not_wait_for_a_silent_server(
    where: str, hanging: Any, tmp_path: Path, whole: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(background, "PATIENCE_S", 0.2)
    monkeypatch.setattr(sitting, "optional_sinks", lambda *_: [BackgroundSink(hanging(where), patience_s=0.2)])
    assert train(tmp_path) == 0
    run = only_run(tmp_path)
    assert_ends_as(whole, run)
    said = "Remote failed and is off for the rest of this run: no answer for 0.2 seconds"
    assert capsys.readouterr().err.count(said) == 1
    assert run.log_path.read_text().count(said) == 1


def test_a_sink_that_cannot_be_opened_is_an_alert(
    tmp_path: Path, whole: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from etude.telemetry import wandb
    from etude.training import run_sinks

    def refuse(**_: Any) -> None:
        raise RuntimeError("the account is closed")

    monkeypatch.setattr(run_sinks, "find_spec", lambda _: True)
    monkeypatch.setattr(wandb, "WandbSink", refuse)
    assert train(tmp_path, "logging.wandb.enabled=true") == 0
    assert only_run(tmp_path).status == "finished"
    assert "logging.wandb could not be opened and is off for this run: the account is closed" in capsys.readouterr().err
