"""The plateau callback: tells once, or stops, and knows after a resume what it knew."""

from __future__ import annotations

import pytest

from etude.errors import UserError
from etude.orchestration.callbacks import Progress
from etude.orchestration.plateau import Plateau
from etude.telemetry.monitor import Monitor


def feed(callback: Plateau, *values: float, monitor: Monitor | None = None) -> list[str | None]:
    progress = Progress({}, "train", 0, None, alerts=monitor)
    return [callback.on_row(progress, {"eval/return_mean": value}) for value in values]


def test_it_stops_once_patience_is_over_and_a_gain_begins_anew() -> None:
    assert feed(Plateau(patience=2, action="stop"), 1, 1, 2, 2)[-1] is None
    (*_, reason) = feed(Plateau(patience=2, action="stop", min_delta=0.5), 1, 1.2, 1.4)
    assert reason == "eval/return_mean has not improved on 1 for 2 of its values"
    assert feed(Plateau(patience=1, mode="min", action="stop"), 3, 2, 2)[-1] is not None


def test_it_raises_an_alert_and_clears_it_when_it_improves() -> None:
    monitor = Monitor()
    feed(callback := Plateau(patience=2), 1, 1, 1, 1, monitor=monitor)
    assert list(monitor.active) == ["plateau"]
    resumed = Plateau(patience=2)
    resumed.load_state_dict(callback.state_dict())
    feed(resumed, 2, monitor=monitor)
    assert monitor.active == {}


def test_wrong_options_are_one_line() -> None:
    with pytest.raises(UserError, match="must be max or min"):
        Plateau(mode="up")  # type: ignore[arg-type] # a user's slip
    with pytest.raises(UserError, match="at least 1"):
        Plateau(patience=0)
