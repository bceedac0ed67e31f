"""What a sweep shows while it runs: how trials stand, the best so far, and the time left while that can be known."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace
from typing import Any

import pytest

from etude.cli.sweep import view
from etude.cli.sweep.view import SweepView
from etude.tuning.backend import Job
from etude.tuning.functions import make_study
from etude.tuning.runner import Member
from etude.tuning.spec import ObjectiveConfig
from etude.tuning.study import Study


def member(state: Any = "running") -> Member:
    return Member(Job("s/0000", 1, ()), state)


@pytest.fixture
def runner() -> Any:
    study: Study = make_study({"algorithm.gamma": [0.9, 0.95, 0.99]}, method="grid")
    sweep = SimpleNamespace(name="s", objective=[ObjectiveConfig()])
    plan = SimpleNamespace(sweep=sweep, space=SimpleNamespace(searched={"algorithm.gamma": None}, derived={}))
    return SimpleNamespace(study=study, plan=plan, members={}, total=3, stopping=None, began=time.monotonic() - 60.0)


def shown(runner: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str]]:
    """What a log says from here on, and the table that a terminal would show."""
    monkeypatch.setattr(view, "SECONDS_BETWEEN_LINES", -1.0)
    stream = io.StringIO()
    SweepView(runner, stream).show(runner)
    return stream.getvalue(), SweepView(runner, io.StringIO())._table(20)


def test_a_trial_that_has_ended_is_said_with_the_best_so_far_and_the_time_left(runner: Any) -> None:
    stream = io.StringIO()
    whole = SweepView(runner, stream)
    first, second = runner.study.ask(), runner.study.ask()
    runner.study.complete(first, [7.0])
    runner.members[second.number] = [member()]
    whole.show(runner)
    assert "0000  complete  7.000" in stream.getvalue()
    assert "1 of 3 trials · best 7.000 (trial 0000) · 2:0" in stream.getvalue()
    table = whole._table(20)
    assert any(line.startswith("★ 0000") for line in table)
    assert any("0001  running" in line and "gamma=0.95" in line for line in table)


def test_finals_are_said_and_no_time_is_promised_for_them(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for score in (1.0, 3.0, 2.0):
        runner.study.complete(runner.study.ask(), [score])
    runner.members = {1: [member("done"), member()]}
    said, table = shown(runner, monkeypatch)
    assert "0001  final      50%  3.000" in said
    assert "left" not in table[0]
    assert table[0].endswith("3 of 3 trials · best 3.000 (trial 0001)")
