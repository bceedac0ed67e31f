"""A sink that may hang, such as one across a network, in its own thread: training waits for it once, and not for long."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from etude.telemetry.names import Row
from etude.telemetry.sinks import HistogramSink, MediaSink, ResultSink, Sink

if TYPE_CHECKING:
    from etude.telemetry.histograms import Histograms
    from etude.telemetry.media import Media
    from etude.telemetry.results import Result

PATIENCE_S = 60.0
"""How long one call of the sink may take before it counts as dead. Uploads that are only slow take seconds."""


class BackgroundSink:
    """Passes rows on to `sink` from another thread; what the sink raises is raised by the next call here.

    Rows wait in memory while the sink is busy. Once a single call has taken longer than `patience_s`, the next call here is a
    TimeoutError, the sink is given up, and its thread is left behind: nothing can end a call that does not return.
    """

    def __init__(self, sink: Sink, *, patience_s: float = PATIENCE_S) -> None:
        self.name = getattr(sink, "name", type(sink).__name__)
        self._sink = sink
        self._patience_s = patience_s
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._busy_since: float | None = None
        self._error: BaseException | None = None
        self._given_up = False
        # A daemon: a sink that hangs must not keep the program from ending either.
        self._thread = threading.Thread(target=self._work, name=f"etude-{self.name}", daemon=True)
        self._thread.start()

    def write(self, rows: Sequence[Row]) -> None:
        """Hand the rows over; returns at once."""
        self._check()
        copies = [dict(row) for row in rows]
        self._waiting.put(lambda: self._sink.write(copies))

    def write_media(self, row: Row, media: Media) -> None:
        """Hand videos and pictures over, if the sink can show them; returns at once."""
        self._check()
        sink = self._sink
        if isinstance(sink, MediaSink):
            self._waiting.put(lambda: sink.write_media(row, media))

    def write_histograms(self, row: Row, histograms: Histograms) -> None:
        """Hand histograms over, if the sink can show them; returns at once."""
        self._check()
        sink = self._sink
        if isinstance(sink, HistogramSink):
            self._waiting.put(lambda: sink.write_histograms(row, histograms))

    def write_results(self, results: Sequence[Result]) -> None:
        """Hand the report and the policies over, if the sink keeps them; returns at once."""
        self._check()
        sink = self._sink
        if isinstance(sink, ResultSink):
            self._waiting.put(lambda: sink.write_results(results))

    def flush(self) -> None:
        """Ask for a flush; returns at once."""
        self._check()
        self._waiting.put(self._sink.flush)

    def close(self) -> None:
        """Let the sink finish what it has and close, for as long as it gets anywhere; calling it again does nothing."""
        if self._given_up:
            return
        self._given_up = True
        if self._error is None:
            self._waiting.put(self._sink.close)
        self._waiting.put(None)
        while self._thread.is_alive():
            self._thread.join(0.05)
            self._check()
        self._check()

    def _work(self) -> None:
        while (action := self._waiting.get()) is not None:
            self._busy_since = time.monotonic()
            try:
                action()
            except Exception as error:  # noqa: BLE001 - raised again by whoever calls next
                self._error = error
                return
            finally:
                self._busy_since = None

    def _check(self) -> None:
        if self._error is not None:
            self._given_up = True
            raise self._error
        since = self._busy_since
        if since is not None and time.monotonic() - since > self._patience_s:
            self._given_up = True
            raise TimeoutError(f"no answer for {self._patience_s:g} seconds")
