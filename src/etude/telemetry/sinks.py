"""Where metric rows go, and why a broken destination never stops a training, unless it is the record itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from etude.telemetry.names import Row

if TYPE_CHECKING:
    from etude.telemetry.histograms import Histograms
    from etude.telemetry.media import Media
    from etude.telemetry.results import Result


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


@runtime_checkable
class MediaSink(Sink, Protocol):
    """A sink that can show videos and pictures too."""

    def write_media(self, row: Row, media: Media) -> None:
        """Take what belongs to a row that was written."""
        ...


@runtime_checkable
class ResultSink(Sink, Protocol):
    """A sink that keeps what a run has come to as well."""

    def write_results(self, results: Sequence[Result]) -> None:
        """Take the report and the policies of a sitting that has ended; their files stay as they are until `close`."""
        ...


@runtime_checkable
class HistogramSink(Sink, Protocol):
    """A sink that can show histograms too."""

    def write_histograms(self, row: Row, histograms: Histograms) -> None:
        """Take what belongs to a row that was written."""
        ...


class SinkGroup:
    """Several sinks as one; a sink that fails is reported once through `on_alert` and switched off.

    The `record` is the exception: it takes rows before the others do, and a row that it can't take is an error. A run whose
    rows are lost can't be compared, and can't be resumed to the same end.
    """

    def __init__(self, sinks: Iterable[Sink], on_alert: Callable[[str], None], *, record: Sink | None = None) -> None:
        self._sinks = list(sinks)
        self._on_alert = on_alert
        self._record = record
        self._is_told = False

    def write(self, rows: Sequence[Row]) -> None:
        """Give the rows to every sink that still works."""
        if self._record is not None:
            try:
                self._record.write(rows)
            except Exception:
                # Who hears of this needs no alert about the same file on top.
                self._is_told = True
                raise
        self._each(lambda sink: sink.write(rows))

    def write_media(self, row: Row, media: Media) -> None:
        """Give videos and pictures to every sink that can show them."""
        self._each(lambda sink: sink.write_media(row, media) if isinstance(sink, MediaSink) else None)

    @property
    def keeps_results(self) -> bool:
        """Whether any sink that still works wants what the run has come to."""
        return any(isinstance(sink, ResultSink) for sink in self._sinks)

    def write_results(self, results: Sequence[Result]) -> None:
        """Give what the run has come to to every sink that keeps it."""
        self._each(lambda sink: sink.write_results(results) if isinstance(sink, ResultSink) else None)

    def write_histograms(self, row: Row, histograms: Histograms) -> None:
        """Give histograms to every sink that can show them."""
        self._each(lambda sink: sink.write_histograms(row, histograms) if isinstance(sink, HistogramSink) else None)

    def flush(self) -> None:
        """Flush every sink that still works."""
        if self._record is not None:
            self._record.flush()
        self._each(lambda sink: sink.flush())

    def close(self) -> None:
        """Close every sink that still works; calling it again does nothing."""
        if self._record is not None:
            record, self._record = self._record, None
            try:
                record.close()
            except Exception as error:  # noqa: BLE001 - what it holds was synced with the last checkpoint: an alert is enough
                if not self._is_told:
                    self._alert(record, error)
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
        self._alert(sink, error)

    def _alert(self, sink: Sink, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        name = getattr(sink, "name", type(sink).__name__)
        with contextlib.suppress(Exception):
            self._on_alert(f"{name} failed and is off for the rest of this run: {reason}")
