"""`etude train --seed 1,2,3`: a group of runs, watched while it trains."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TextIO

from etude.cli.output import OutputClosedError, note, say, styled
from etude.compute.processors import available_cpus
from etude.config.hashing import config_hash
from etude.config.schema import Config
from etude.files.printable import printable
from etude.runs.places import runs_option
from etude.telemetry.live_area import LiveArea
from etude.telemetry.readable import duration, number
from etude.training.seed_group import Seed, SeedGroup

SECONDS_BETWEEN_LINES = 30.0


def train_group(
    config: Config, root: Path, arguments: list[str], seeds: list[int], parallel: int | None, auto_resume: bool, quiet: bool
) -> int:
    """Train every seed in its own process and print the result of them all."""
    # A pre-empted job has to find its own group again; a new experiment gets its own group.
    mark = config_hash(config, with_seed=False)[:8] if auto_resume else f"{datetime.now():%Y%m%d-%H%M%S}"
    group = SeedGroup(
        name=config.experiment.group or f"{config.experiment.name}-{mark}",
        root=root,
        arguments=arguments,
        seeds=seeds,
        parallel=parallel or max(1, available_cpus() // (config.experiment.threads or 1)),
    )
    code = group.train(GroupView(group, sys.stderr, quiet=quiet).show)
    # Nobody may be reading any more: the runs are what was asked for, and they are done.
    with contextlib.suppress(OutputClosedError):
        for line in result_lines(group, config.checkpoint.monitor):
            say(line)
    note(f"compare them: etude runs compare --group {shlex.quote(group.name)}{runs_option(root)}")
    return code


class GroupView:
    """Shows a group while it trains: a table redrawn in place on a terminal, else a line when something changes."""

    def __init__(self, group: SeedGroup, stream: TextIO, *, quiet: bool = False) -> None:
        self._group, self._stream, self._quiet = group, stream, quiet
        self._said: dict[int, str] = {}
        self._last_lines = time.monotonic()
        self._area = None
        if stream.isatty() and not quiet:
            self._area = LiveArea(stream, self._write)

    def show(self, members: Sequence[Seed]) -> None:
        """Show how the seeds stand."""
        if self._area is not None:
            self._area.show([styled(line) for line in group_lines(self._group.name, members)])
            return
        overdue = time.monotonic() - self._last_lines > SECONDS_BETWEEN_LINES
        for member in members:
            changed = self._said.get(member.seed) != member.state and member.state != "waiting"
            if not self._quiet and (changed or (overdue and member.state == "running")):
                self._said[member.seed] = member.state
                self._last_lines = time.monotonic()
                self._write(printable(_line(member)) + "\n")

    def _write(self, text: str) -> None:
        # A terminal or a pipe that went away is no reason for a training to end.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def group_lines(name: str, members: Sequence[Seed]) -> list[str]:
    """Return the lines of the live table."""
    done = sum(member.code is not None for member in members)
    return [f"{name} · {done} of {len(members)} seeds done", *(_line(member) for member in members)]


def _line(member: Seed) -> str:
    run = member.run
    if run is None:
        return f"  seed {member.seed:<4} {member.state}"
    steps, total = run.env_steps or 0, run.total_steps or 1
    share = min(1.0, steps / total)
    bar = ("━" * round(share * 24)).ljust(24, "─")
    last = f"  eval {number(run.last)}" if run.last is not None else ""
    took = run.metrics.get("time/elapsed_s", run.elapsed_s)
    return f"  seed {member.seed:<4} {bar} {share:4.0%}  {member.state:<11}{last}{f'  {duration(took)}' if took else ''}"


def result_lines(group: SeedGroup, metric: str) -> list[str]:
    """Return the result of the group: one row of all seeds together, of the metric that they monitor."""
    summary = group.result(metric)
    if summary is None:
        return []
    finished = f"{summary.count} of {len(group.members)} seeds"
    if summary.mean.interval is None:
        return [f"{metric} {number(summary.mean.value)} ({finished}; an interval needs two)"]
    (low, high), iqm = summary.mean.interval, summary.iqm
    inner = f", IQM {number(iqm.value)} [{number(iqm.interval.low)}, {number(iqm.interval.high)}]" if iqm.interval else ""
    spread = f"min {number(summary.low)}, max {number(summary.high)}"
    mean = f"mean {number(summary.mean.value)}, 95% CI [{number(low)}, {number(high)}]"
    return [f"{metric} over {finished}: {mean}{inner}, {spread}"]
