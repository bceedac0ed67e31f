"""Metrics for TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etude.errors import UserError
from etude.telemetry.names import COUNTERS, Row


class TensorBoardSink:
    """Write every metric as a TensorBoard curve.

    `purge_step` is where a resumed run continues: what an earlier attempt logged beyond it disappears from the
    curves. `axis` is the counter on the x-axis, `updates` for an offline run.
    """

    def __init__(self, log_dir: Path, purge_step: int | None = None, axis: str = "env_steps") -> None:
        try:
            from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined] # made by protobuf
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError(
                "logging.tensorboard=true needs the 'tensorboard' extra: pip install 'etude[tensorboard]'"
            ) from error
        self._writer = SummaryWriter(str(log_dir), purge_step=purge_step)
        self._summary = Summary
        self._axis = axis

    def write(self, rows: Sequence[Row]) -> None:
        """Add one point to each curve a row has a value for: one event a row, a tenth of the cost of one a curve."""
        for row in rows:
            values = [self._summary.Value(tag=name, simple_value=value) for name, value in row.items() if name not in COUNTERS]
            self._writer._get_file_writer().add_summary(self._summary(value=values), int(row[self._axis]))

    def flush(self) -> None:
        """Write everything to the event file."""
        self._writer.flush()

    def close(self) -> None:
        """Finish the event file."""
        self._writer.close()
