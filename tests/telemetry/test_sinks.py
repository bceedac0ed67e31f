from __future__ import annotations

import pytest

from etude.telemetry.sinks import SinkGroup


class ListSink:
    def __init__(self):
        self.rows, self.flushed, self.closed = [], 0, 0

    def write(self, rows):
        self.rows += rows

    def flush(self):
        self.flushed += 1

    def close(self):
        self.closed += 1


class FullDiskSink(ListSink):
    calls = 0

    def write(self, rows):
        self.calls += 1
        raise OSError("No space left on device")


def test_a_failing_sink_becomes_one_alert_and_the_others_go_on():
    alerts = []
    good, bad = ListSink(), FullDiskSink()
    group = SinkGroup([bad, good], alerts.append)
    for step in range(3):
        group.write([{"env_steps": step}])
    group.flush()
    group.close()
    assert [row["env_steps"] for row in good.rows] == [0, 1, 2]
    assert good.flushed == 1
    assert good.closed == 1
    assert bad.calls == 1
    assert alerts == ["FullDiskSink failed and is off for the rest of this run: No space left on device"]


def test_a_failing_alert_does_not_crash_either():
    def alert(message):
        raise RuntimeError(message)

    good = ListSink()
    group = SinkGroup([FullDiskSink(), good], alert)
    group.write([{"env_steps": 1}])
    assert good.rows


def test_an_alert_may_be_written_to_the_same_group():
    good = ListSink()
    group = SinkGroup([FullDiskSink(), good], lambda message: group.write([{"alert": 1.0}]))
    group.write([{"env_steps": 1}])
    assert good.rows == [{"alert": 1.0}, {"env_steps": 1}]


def test_a_row_that_the_record_cannot_take_is_an_error_and_reaches_nobody():
    alerts, other = [], ListSink()
    group = SinkGroup([other], alerts.append, record=FullDiskSink())
    with pytest.raises(OSError, match="No space"):
        group.write([{"env_steps": 1}])
    assert (other.rows, alerts) == ([], [])


def test_a_record_that_cannot_be_closed_is_an_alert():
    class BrokenSink(ListSink):
        def close(self):
            raise OSError("Input/output error")

    alerts, other = [], ListSink()
    group = SinkGroup([other], alerts.append, record=BrokenSink())
    group.close()
    assert alerts == ["BrokenSink failed and is off for the rest of this run: Input/output error"]
    assert other.closed == 1


def test_an_interrupt_is_not_a_failing_sink():
    class Interrupted(ListSink):
        def flush(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SinkGroup([Interrupted()], print).flush()
