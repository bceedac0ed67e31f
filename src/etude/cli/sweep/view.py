"""A sweep while it runs: a table redrawn in place on a terminal, else a line when something changes."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from etude.cli.output import styled
from etude.files.printable import printable
from etude.runs.run_keys import value_of
from etude.telemetry.live_area import LiveArea
from etude.telemetry.readable import duration, number

if TYPE_CHECKING:
    from etude.tuning.plan import Plan
    from etude.tuning.runner import Member, SweepRunner
    from etude.tuning.study import Study, Trial

SECONDS_BETWEEN_LINES = 30.0
_FEWEST_ROWS = 3


class SweepView:
    """Shows how the trials stand: state, values, the last metric, the best so far, and the time that is left."""

    def __init__(self, runner: SweepRunner, stream: TextIO, *, quiet: bool = False) -> None:
        self._runner, self._stream, self._quiet = runner, stream, quiet
        self._said: dict[int, str] = {trial.number: trial.state for trial in runner.study.trials if trial.ended}
        self._restarts: dict[int, int] = {}
        self._done_before = len(self._said)
        self._last_lines = time.monotonic()
        self._names = short_names([*runner.plan.space.searched, *runner.plan.space.derived])
        self._area = LiveArea(stream, self._write) if stream.isatty() and not quiet else None

    def show(self, runner: SweepRunner) -> None:
        """Show how it stands."""
        if self._area is not None:
            self._area.show([styled(line) for line in self._table(self._area.size[1])])
        elif not self._quiet:
            self._lines()

    def close(self) -> None:
        """Leave the last table on the screen."""
        if self._area is not None:
            self._area.leave()

    def _lines(self) -> None:
        runner = self._runner
        overdue = time.monotonic() - self._last_lines > SECONDS_BETWEEN_LINES
        for trial in runner.study.trials:
            members = runner.members.get(trial.number, ())
            restarts = sum(member.restarts for member in members)
            changed = self._said.get(trial.number) != trial.state
            again = restarts > self._restarts.get(trial.number, 0)
            if changed or again or (overdue and any(member.state == "running" for member in members)):
                self._said[trial.number], self._restarts[trial.number] = trial.state, restarts
                self._last_lines = time.monotonic()
                self._write(printable(f"{self._line(trial)}{'  killed, goes on' if again else ''}\n"))
                if changed and trial.ended:
                    self._write(printable(f"  {self._standing()}\n"))

    def _table(self, height: int) -> list[str]:
        runner = self._runner
        running = [runner.study.trials[index] for index in runner.members]
        best = [trial for trial in runner.study.best(3) if trial not in running]
        failed = [trial for trial in runner.study.trials if trial.state == "failed"][-1:]
        recent = [trial for trial in runner.study.trials if trial.ended and trial not in best and trial not in failed]
        room = max(_FEWEST_ROWS, height - 2 - len(best) - len(failed))
        shown = [*running[:room], *best, *failed]
        shown += recent[-max(0, height - 1 - len(shown)) :] if len(shown) < height - 1 else []
        shown.sort(key=lambda trial: (trial.ended, -trial.number if trial.ended else trial.number))
        shown.sort(key=lambda trial: best.index(trial) if trial in best else len(best) if trial.ended else -1)
        marks = {trial.number: "★ " for trial in best[:1]}
        return [f"{runner.plan.sweep.name} · {self._standing()}", *(self._line(t, marks.get(t.number, "  ")) for t in shown)]

    def _standing(self) -> str:
        runner = self._runner
        study, total = runner.study, runner.total
        counts = Counter(trial.state for trial in study.trials if trial.ended)
        done = sum(counts.values())
        parts = [f"{done} of {total} trials" if total is not None else f"{done} trials"]
        parts += [f"{counts[state]} {state}" for state in ("pruned", "failed") if counts[state]]
        best = study.best(1)
        if best and best[0].result is not None:
            parts.append(f"best {number(best[0].result[0])} (trial {best[0].number:04d})")
        left = self._left(done)
        return " · ".join([*parts, *([f"{duration(left)} left"] if left is not None else [])])

    def _left(self, done: int) -> float | None:
        """How long the rest takes, from how long this sitting took for what it did, parts of trials included."""
        runner = self._runner
        finals = any(runner.study.trials[number].ended for number in runner.members)
        if runner.total is None or runner.stopping is not None or finals:
            return None
        under_way = sum(_share(members) for members in runner.members.values())
        did = done - self._done_before + under_way
        elapsed = time.monotonic() - runner.began
        if did < 0.2 or elapsed < 2:
            return None
        return max(0.0, runner.total - done - under_way) * elapsed / did

    def _line(self, trial: Trial, mark: str = "") -> str:
        members = self._runner.members.get(trial.number, ())
        objective = self._runner.plan.sweep.objective[0]
        state, result = trial.state, ""
        if trial.objective is not None and members:
            state = "final"
            result = f"{_share(members):4.0%}  {'  '.join(number(value) for value in trial.objective)}"
        elif trial.result is not None:
            result = "  ".join(number(value) for value in trial.result)
        elif members:
            state = _state(members)
            lasts = [value_of(member.run, objective.metric) for member in members if member.run is not None]
            known = [value for value in lasts if isinstance(value, int | float)]
            result = f"{_share(members):4.0%}" + (f"  {number(sum(known) / len(known))}" if known else "")
        error = f"  {trial.error.splitlines()[-1]}" if trial.error else ""
        # What came of it first: many values go past a terminal's edge.
        return f"{mark}{trial.number:04d}  {state:<9} {result:<14}  {self._values(trial)}{error}"

    def _values(self, trial: Trial) -> str:
        return shown_values(trial.values or trial.settings, self._names) or "the defaults"

    def _write(self, text: str) -> None:
        # A terminal or a pipe that went away is no reason for a sweep to end.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def result_lines(plan: Plan, study: Study) -> list[str]:
    """Return what came of a sweep, in short."""
    counts = Counter(trial.state for trial in study.trials)
    lines = [f"{plan.sweep.name}: " + ", ".join(f"{count} {state}" for state, count in counts.items())]
    best = study.best(1)
    if best and best[0].result is not None:
        named = zip(plan.sweep.objective, best[0].result, strict=True)
        values = ", ".join(f"{objective.metric} {number(value)}" for objective, value in named)
        names = short_names([*plan.space.searched, *plan.space.derived])
        lines.append(f"best: trial {best[0].number:04d}, {values}: {shown_values(best[0].settings, names)}")
    errors = {trial.error.splitlines()[-1] if trial.error else "": trial for trial in study.trials if trial.state == "failed"}
    lines += [f"trial {trial.number:04d} failed: {error}" for error, trial in errors.items()]
    return lines


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return for each key the shortest end of it that no other has."""
    names = {}
    for key in keys:
        parts = key.split(".")
        ends = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        names[key] = next((e for e in ends if sum(k == e or k.endswith(f".{e}") for k in keys) == 1), key)
    return names


def shown_values(settings: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return settings in short: `learning_rate=0.001 hidden_dims=[64,64]`."""
    return " ".join(f"{names.get(key, key)}={_shown(value)}" for key, value in settings.items())


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _state(members: Sequence[Member]) -> str:
    states = {member.state for member in members}
    return next((state for state in ("running", "waiting", "stopped") if state in states), "running")


def _share(members: Sequence[Member]) -> float:
    def share(member: Member) -> float:
        run = member.run
        if member.state == "done" or run is None:
            return float(member.state == "done")
        return min(1.0, (run.env_steps or 0) / (run.total_steps or 1))

    return sum(map(share, members)) / max(1, len(members))
