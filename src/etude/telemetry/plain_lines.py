"""A run reported in plain lines, for pipes, CI and run.log."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from etude.telemetry import readable
from etude.telemetry.history import History
from etude.telemetry.names import Row, split
from etude.telemetry.run_header import RunHeader, RunOutcome
from etude.telemetry.sparkline import sparkline

if TYPE_CHECKING:
    from etude.telemetry.monitor import Recap

SECONDS_BETWEEN_LINES = 2.0
RETURN_CURVES = {"return": "collect/return_mean", "eval": "eval/return_mean"}
MOST_ALERTS = 8
"""Alerts of a run that are recalled at its end; alerts.jsonl has them all."""


class ProgressLines:
    """Chooses which rows become a line: one every two seconds, every evaluation, and the last one."""

    def __init__(self, header: RunHeader, history: History, clock: Callable[[], float]) -> None:
        self.header = header
        self._history = history
        self._clock = clock
        self._last_line = -math.inf
        self._waiting = False

    def after(self, row: Row, alerts: Sequence[str] = ()) -> list[str]:
        """Return the lines to print now that `row` was recorded: one or none."""
        self._waiting = True
        evaluated = any(name.startswith("eval/") for name in row)
        if not evaluated and self._clock() - self._last_line < SECONDS_BETWEEN_LINES:
            return []
        return self.rest(alerts, evaluated=evaluated)

    def rest(self, alerts: Sequence[str] = (), *, evaluated: bool = False) -> list[str]:
        """Return the newest row's line if it was held back."""
        if not self._waiting:
            return []
        self._waiting = False
        self._last_line = self._clock()
        return [progress_line(self.header, self._history.latest, evaluated, alerts)]


def progress_line(header: RunHeader, latest: Row, evaluated: bool, alerts: Sequence[str] = ()) -> str:
    """Return one line like ``40,960 steps  41%  9.8k/s  eta 0:06  return 312.4  eval 487.0  kl 0.004``."""
    parts = [f"{int(latest.get(counter, 0)):>9,} {counter.removeprefix('env_')}" for counter in header.totals]
    progress = header.progress(latest)
    if progress is not None:
        parts.append(f"{percent(progress):>4}")
    if speed(latest) in latest:
        parts.append(f"{readable.rate(latest[speed(latest)]):>6}")
    if "time/eta_s" in latest:
        parts.append(f"eta {readable.duration(latest['time/eta_s'])}")
    if "collect/return_mean" in latest:
        parts.append(f"return {readable.number(latest['collect/return_mean'])}")
    if evaluated and "eval/return_mean" in latest:
        parts.append(f"eval {readable.number(latest['eval/return_mean'])}")
    if "train/approx_kl" in latest:
        parts.append(f"kl {latest['train/approx_kl']:.3f}")
    elif losses := sorted(name for name in latest if name.startswith("train/") and name.endswith("loss")):
        parts.append(f"{split(losses[0])[1]} {readable.number(latest[losses[0]])}")
    if alerts:
        parts.append(f"! {' '.join(alerts)}")
    return "  ".join(parts)


def speed(latest: Row) -> str:
    """Return the metric that says how fast it goes: updates where environment steps stand still."""
    stands_still = latest.get("time/steps_per_second") == 0 and "time/updates_per_second" in latest
    return "time/updates_per_second" if stands_still else "time/steps_per_second"


def percent(share: float) -> str:
    """Return a whole percentage that says 100% only when it is all done."""
    return f"{math.floor(share * 100 + 1e-9)}%"


def title(header: RunHeader) -> str:
    """Return the line that names a run."""
    return " · ".join(part for part in (header.environment, header.algorithm, header.run_id, header.device) if part)


def intro_lines(header: RunHeader) -> list[str]:
    """Return what is said once, when a run starts."""
    width = "1 environment" if header.num_envs == 1 else f"{header.num_envs:,} environments"
    facts = [header.mode, f"seed {header.seed}", width]
    totals = {"steps": header.total_steps, "updates": header.total_updates}
    if lengths := [f"{total:,} {unit}" for unit, total in totals.items() if total is not None]:
        facts.append(" + ".join(lengths))
    if len(header.phases) > 1:
        facts.append("phases " + " → ".join(header.phases))
    return [title(header), *(f"  {line}" for line in (" · ".join(facts), str(header.run_dir), *header.notes))]


def summary_lines(outcome: RunOutcome, history: History, recap: Sequence[Recap] = ()) -> list[str]:
    """Return what is said once, when a run ends."""
    lines = [_ending(outcome)]
    for label, name in RETURN_CURVES.items():
        if name in history.metrics:
            curve = history.metrics[name].values
            ends = " → ".join(readable.number(value) for value in dict.fromkeys((curve[0], history.metrics[name].last)))
            lines.append(f"  {label:<7} {sparkline(curve, 32)}  {ends}")
    if outcome.best is not None or outcome.last_eval is not None:
        scores = (("best", outcome.best, _when(outcome)), ("last", outcome.last_eval, ""))
        shown = " · ".join(f"{word} {readable.number(score)}{when}" for word, score, when in scores if score is not None)
        lines.append(f"  {'score':<7} {shown}")
    lines.append(f"  {'took':<7} {_effort(outcome)}")
    lines += _alert_lines(recap)
    lines.append(f"  {'run':<7} {outcome.run_dir}")
    if outcome.next_commands:
        lines += ["Next:", *(f"  {command}" for command in outcome.next_commands)]
    return lines


def _alert_lines(recap: Sequence[Recap]) -> list[str]:
    """The alerts of the whole run, those that held longest first; one that was told before any row held for none."""
    width = max((len(each.alert.id) for each in recap[:MOST_ALERTS]), default=0)
    lines = []
    for place, each in enumerate(recap[:MOST_ALERTS]):
        label, ends = "" if place else "alerts", "" if each.is_active else ", cleared"
        lines.append(f"  {label:<7} {each.alert.id:<{width}}  {each.rows} of {each.of} rows{ends}: {each.alert.message}")
    if len(recap) > MOST_ALERTS:
        lines.append(f"  {'':<7} +{len(recap) - MOST_ALERTS} more in logs/alerts.jsonl")
    return lines


def final_line(outcome: RunOutcome) -> str:
    """Return the whole ending in one line, for a quiet console."""
    best = "" if outcome.best is None else f" · best {readable.number(outcome.best)}{_when(outcome)}"
    return f"{_ending(outcome)} · {_effort(outcome)}{best} · {outcome.run_dir}"


def _ending(outcome: RunOutcome) -> str:
    ending = "Interrupted and saved" if outcome.status == "interrupted" else outcome.status.capitalize()
    return ending + (f": {outcome.reason}" if outcome.reason else "")


def _when(outcome: RunOutcome) -> str:
    return "" if outcome.best_at is None else f" at {_work(outcome.best_at, outcome.best_updates)}"


def _effort(outcome: RunOutcome) -> str:
    return f"{_work(outcome.env_steps, outcome.updates)} in {readable.duration(outcome.elapsed_s)}"


def _work(steps: int, updates: int | None) -> str:
    return f"{steps:,} steps" if updates is None else f"{steps:,} steps and {updates:,} updates"
