"""Where metric rows go, and why a broken destination never stops a training."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from etude.telemetry.names import Row


class Sink(Protocol):
    """Somewhere metric rows are written to."""

    def write(self, rows: Sequence[Row]) -> None:
        """Take the rows in order; they belong to the caller and must not be changed."""
        ...

    def flush(self) -> None:
        """Hand everything taken so far to its destination."""
        ...

    def close(self) -> None:
        """Flush and let go; nothing is written afterwards."""
        ...


class SinkGroup:
    """Several sinks as one; a sink that fails is reported once through `on_alert` and switched off."""

    def __init__(self, sinks: Iterable[Sink], on_alert: Callable[[str], None]) -> None:
        self._sinks = list(sinks)
        self._on_alert = on_alert

    def write(self, rows: Sequence[Row]) -> None:
        """Give the rows to every sink that still works."""
        self._each(lambda sink: sink.write(rows))

    def flush(self) -> None:
        """Flush every sink that still works."""
        self._each(lambda sink: sink.flush())

    def close(self) -> None:
        """Close every sink that still works; calling it again does nothing."""
        self._each(lambda sink: sink.close())
        self._sinks.clear()

    def _each(self, action: Callable[[Sink], None]) -> None:
        for sink in list(self._sinks):
            try:
                action(sink)
            except Exception as error:  # noqa: BLE001 - a sink may fail in any way; none of them may end a training
                self._switch_off(sink, error)

    def _switch_off(self, sink: Sink, error: Exception) -> None:
        # Removed before anyone hears of it: the alert may itself travel through this group.
        self._sinks.remove(sink)
        with contextlib.suppress(Exception):
            sink.close()
        reason = str(error) or type(error).__name__
        with contextlib.suppress(Exception):
            self._on_alert(f"{type(sink).__name__} failed and is off for the rest of this run: {reason}")
