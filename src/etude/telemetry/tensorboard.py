"""Metrics for TensorBoard."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.errors import UserError
from etude.files.regular import own_folder
from etude.telemetry.names import COUNTERS, Row
from etude.telemetry.tensorboard_hparams import session_values

if TYPE_CHECKING:
    from etude.telemetry.histograms import Histograms
    from etude.telemetry.media import Media

_FORMAT = "brain.Event:2"
_PREFIX = "events.out.tfevents."
_DIGITS = 16  # microseconds since 1970; files of others have seconds, the same digits in front


class TensorBoardSink:
    """Write every metric as a TensorBoard curve; each row is with the operating system when `write` returns.

    `purge_step` is where a resumed run continues: what an earlier attempt logged beyond it disappears from the
    curves. `axis` is the counter on the x-axis, `updates` for an offline run. `hyper_parameters` are shown in a table of runs.

    Not torch's writer: that one writes from a thread, whose end on a full disk is a traceback amid the training's lines.
    """

    def __init__(
        self,
        log_dir: Path,
        purge_step: int | None = None,
        axis: str = "env_steps",
        hyper_parameters: Mapping[str, bool | float | str] | None = None,
    ) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, histogram_pb2, summary_pb2  # type: ignore[attr-defined] # by protobuf
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            raise UserError(
                "logging.tensorboard=true needs the 'tensorboard' extra: pip install 'etude[tensorboard]'"
            ) from error
        self._events: Any = event_pb2
        self._summaries: Any = summary_pb2
        self._histograms: Any = histogram_pb2
        self._record_writer = RecordWriter
        self._axis = axis
        own_folder(log_dir)
        name = f"{_PREFIX}{_next_stamp(log_dir)}.{socket.gethostname()}.{os.getpid()}"
        self._file = open(log_dir / name, "xb", buffering=0)  # noqa: SIM115 - closed by `close`
        try:
            self._append(step=purge_step or 0, file_version=_FORMAT)
            if purge_step is not None:
                start = self._events.SessionLog(status=self._events.SessionLog.START)
                self._append(step=purge_step, session_log=start)
            if hyper_parameters:
                self._append(step=0, summary=self._summaries.Summary(value=session_values(hyper_parameters)))
        except BaseException:
            self._file.close()
            raise

    def write(self, rows: Sequence[Row]) -> None:
        """Add one point to each curve a row has a value for: one event a row, a tenth of the cost of one a curve."""
        value = self._summaries.Summary.Value
        for row in rows:
            values = [value(tag=name, simple_value=number) for name, number in row.items() if name not in COUNTERS]
            self._append(step=int(row[self._axis]), summary=self._summaries.Summary(value=values))

    def write_media(self, row: Row, media: Media) -> None:
        """Add pictures, and videos as pictures that move."""
        summaries, values = self._summaries.Summary, []
        for name, medium in media.items():
            height, width = medium.pixels.shape[-3:-1]
            image = summaries.Image(height=height, width=width, colorspace=3, encoded_image_string=medium.encoded())
            values.append(summaries.Value(tag=f"media/{name}", image=image))
        self._append(step=int(row[self._axis]), summary=summaries(value=values))

    def write_histograms(self, row: Row, histograms: Histograms) -> None:
        """Add histograms."""
        summaries, values = self._summaries.Summary, []
        for name, each in histograms.items():
            number = sum(each.counts)
            proto = self._histograms.HistogramProto(
                min=each.edges[0],
                max=each.edges[-1],
                num=number,
                sum=each.mean * number,
                sum_squares=(each.std**2 + each.mean**2) * number,
                bucket_limit=each.edges[1:],
                bucket=each.counts,
            )
            values.append(summaries.Value(tag=name, histo=proto))
        self._append(step=int(row[self._axis]), summary=summaries(value=values))

    def flush(self) -> None:
        """Nothing waits here: every row has already gone to the operating system."""

    def close(self) -> None:
        """Finish the event file."""
        self._file.close()

    def _append(self, **content: Any) -> None:
        record = io.BytesIO()
        self._record_writer(record).write(self._events.Event(wall_time=time.time(), **content).SerializeToString())
        rest = record.getbuffer()
        while rest:
            rest = rest[self._file.write(rest) :]


def _next_stamp(folder: Path) -> str:
    """The time, or later: TensorBoard reads files in the order of their names, even if the clock was set back in between."""
    earlier = [path.name.removeprefix(_PREFIX).partition(".")[0] for path in folder.glob(f"{_PREFIX}*")]
    latest = max((int(stamp.ljust(_DIGITS, "0")) for stamp in earlier if stamp.isdecimal()), default=0)
    return f"{max(time.time_ns() // 1000, latest + 1):0{_DIGITS}d}"
