"""A process whose parent passes signals on may hear of one wish twice."""

from __future__ import annotations

import signal

import pytest

from etude.training import stop_signals


def test_the_same_wish_from_a_scheduler_and_a_parent_is_one_and_a_later_one_stops_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stop_signals, "_echoes", {"expected": False})
    stop_signals.expect_echoes()
    asked: list[str] = []
    with stop_signals.stopping_on_signals(asked.append, quiet=True) as received:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        assert (asked, received) == (["SIGINT"], [signal.SIGINT])
        monkeypatch.setattr(stop_signals, "ECHO_S", -1.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
