"""What a user sees while a run trains: a live view on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from etude.files.printable import printable
from etude.telemetry.history import History
from etude.telemetry.names import Row
from etude.telemetry.plain_lines import ProgressLines, final_line, intro_lines, summary_lines
from etude.telemetry.run_header import RunHeader, RunOutcome
from etude.telemetry.run_log import real_stream

if TYPE_CHECKING:
    from etude.telemetry.live_area import LiveArea
    from etude.telemetry.monitor import Monitor

__all__ = ["Console", "RunHeader", "RunOutcome"]

SECONDS_BETWEEN_DRAWINGS = 0.2
DRAWING_SHARE = 0.01

_STATUS_STYLES = {
    "finished": "bold green",
    "stopped": "bold yellow",
    "interrupted": "bold yellow",
    "failed": "bold red",
}


class Console:
    """Shows a run on stderr; `log` receives the same story as plain lines, for run.log.

    Nothing here can end a training: when the terminal goes away (a closed pipe), the console falls silent.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        quiet: bool = False,
        log: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Past the tee: drawings in run.log would be unreadable.
        self._stream: TextIO = real_stream(sys.stderr) if stream is None else stream
        self._quiet = quiet
        self._log = log
        self._clock = clock
        self._gone = False
        self._history = History()
        self._header: RunHeader | None = None
        self._lines: ProgressLines | None = None
        self._area: LiveArea | None = None
        self._monitor: Monitor | None = None
        self._next_drawing = -math.inf

    def watch(self, monitor: Monitor) -> None:
        """Show metrics by the monitor's rules, and mark those that it has alerts about."""
        self._monitor = monitor

    def start(self, header: RunHeader, past: Iterable[Row] = ()) -> None:
        """Introduce the run; a resumed one brings its `past` rows, so that its curves are whole."""
        for row in past:
            self._history.record(row)
        self._header = header
        self._lines = ProgressLines(header, self._history, self._clock)
        if not self._quiet and _can_redraw(self._stream):
            from etude.telemetry.live_area import LiveArea  # rich is loaded only by who draws with it

            self._area = LiveArea(self._stream, self._write)
            self._area.redirect_prints()
        title, *facts = intro_lines(header)
        self._tell_plainly(title)  # the live view has its own
        for line in facts:
            self._print(line)
        self._draw()

    def change_header(self, header: RunHeader) -> None:
        """Show the run against another budget from here on."""
        if self._header is not None and self._lines is not None:
            self._header = self._lines.header = header

    def write(self, rows: Sequence[Row]) -> None:
        """Take new rows, and draw or print them if it is time to."""
        for row in rows:
            self._history.record(row)
            for line in self._lines.after(row, self._active()) if self._lines else ():
                self._tell_plainly(line)
        if self._clock() >= self._next_drawing:
            self._draw()

    def message(self, text: str, *, error: bool = False) -> None:
        """Say something above the live view; a quiet console says only errors."""
        for line in printable(text).splitlines():
            self._print(line, style="red" if error else "", even_quiet=error)

    def finish(self, outcome: RunOutcome) -> None:
        """Show the last state and the summary of the run."""
        self._end_live_view()
        recap = () if self._monitor is None else self._monitor.recap()
        ending, *rest = summary_lines(outcome, self._history, recap)
        if self._quiet:
            self._print(final_line(outcome), even_quiet=True, logged=False)
        self._print(ending, style=_STATUS_STYLES[outcome.status])
        for line in rest:
            self._print(line)
        self.close()

    def flush(self) -> None:
        """Nothing waits here but the drawing, which has its own rhythm."""

    def close(self) -> None:
        """Show the last state and give the terminal back; calling it again does nothing."""
        self._end_live_view()
        if self._area:
            self._area.restore_prints()
            self._area = None

    def _end_live_view(self) -> None:
        for line in self._lines.rest(self._active()) if self._lines else ():
            self._tell_plainly(line)
        self._lines = None
        if self._area and self._header:
            self._draw()
            self._area.leave()
            self._header = None

    def _tell_plainly(self, line: str) -> None:
        line = printable(line)
        if self._log:
            self._log(line)
        if not self._area and not self._quiet:
            self._write(line + "\n")

    def _active(self) -> list[str]:
        return [] if self._monitor is None else list(self._monitor.active)

    def _draw(self) -> None:
        if not self._area or not self._header:
            return
        from etude.telemetry.live_view import draw

        begin = self._clock()
        watched = {} if self._monitor is None else {"rules": self._monitor.rules, "active": self._monitor.active}
        self._area.show(draw(self._header, self._history, *self._area.size, **watched))
        end = self._clock()
        self._next_drawing = end + max(SECONDS_BETWEEN_DRAWINGS, (end - begin) / DRAWING_SHARE)

    def _print(self, line: str, style: str = "", even_quiet: bool = False, logged: bool = True) -> None:
        line = printable(line)
        if self._log and logged:
            self._log(line)
        if self._quiet and not even_quiet:
            return
        if self._area:
            from rich.text import Text

            self._area.print(Text(line, style=style))
        else:
            self._write(line + "\n")

    def _write(self, text: str) -> None:
        if self._gone:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # a closed pipe, a closed file
            self._gone = True


def _can_redraw(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"
