"""Sinks of one's own: what they are told of the run, and how they are opened without holding it up.

A sink is named in a config by its import path, a registered name or an entry point (group `etude.sink`):

    logging.sinks: [{type: my_module.MySink, address: "https://…"}]

It is made as `MySink(run, **options)`, with a `SinkRun`, and has `write`, `flush` and `close`; `write_media`,
`write_histograms` and `write_results`, where it has them, are called too. A class method `check` may raise UserError before
the run exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.telemetry.names import Row
from etude.telemetry.sinks import HistogramSink, MediaSink, ResultSink, Sink

if TYPE_CHECKING:
    from etude.telemetry.histograms import Histograms
    from etude.telemetry.media import Media
    from etude.telemetry.results import Result


@dataclass(frozen=True)
class SinkRun:
    """The run that a sink is opened for."""

    id: str
    directory: Path
    project: str
    group: str | None
    tags: tuple[str, ...]
    config: Mapping[str, Any]
    """Every setting, as plain values."""
    rows_before: int
    """Rows of earlier sittings: more than 0 where the run is resumed."""
    axis: str = "env_steps"
    """The counter that curves run over."""


class LateSink:
    """A sink that is made when it is first called, in the thread of whoever calls: making one may take its time, or fail."""

    def __init__(self, name: str, make: Callable[[], Sink]) -> None:
        self.name = name
        self._make = make
        self._sink: Sink | None = None

    def open(self) -> Sink:
        """Make the sink, unless that was done."""
        if self._sink is None:
            self._sink = self._make()
        return self._sink

    def write(self, rows: Sequence[Row]) -> None:
        """Pass rows on."""
        self.open().write(rows)

    def write_media(self, row: Row, media: Media) -> None:
        """Pass videos and pictures on, if the sink can show them."""
        if isinstance(sink := self.open(), MediaSink):
            sink.write_media(row, media)

    def write_histograms(self, row: Row, histograms: Histograms) -> None:
        """Pass histograms on, if the sink can show them."""
        if isinstance(sink := self.open(), HistogramSink):
            sink.write_histograms(row, histograms)

    def write_results(self, results: Sequence[Result]) -> None:
        """Pass a report and policies on, if the sink keeps them."""
        if isinstance(sink := self.open(), ResultSink):
            sink.write_results(results)

    def flush(self) -> None:
        """Flush the sink."""
        self.open().flush()

    def close(self) -> None:
        """Close the sink; one that was never made has nothing to close."""
        if self._sink is not None:
            self._sink.close()
