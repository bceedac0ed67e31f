"""`etude runs cleanup`: make room."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.cli.output import emit_json, note, say
from etude.cli.parameters import AsJson, RunsFolder
from etude.cli.places import existing_runs_root
from etude.cli.runs.list import Filters
from etude.cli.runs.words import age, number, size

if TYPE_CHECKING:
    from etude.runs.cleanup import Verdict


def cleanup(
    *,
    keep_best: int | None = None,
    keep_recent: float | None = None,
    metric: str | None = None,
    filters: Filters = None,
    whole: bool = False,
    yes: bool = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> int:
    """Remove the checkpoints and videos of runs; without --yes it only says what would go.

    Configs, provenance, metrics and results stay. Runs that have tags, are running or in use are never touched.

    Parameters
    ----------
    keep_best
        Keep the N best runs of each environment.
    keep_recent
        Keep runs that trained within this many days.
    metric
        What is best: a column, a metric or a setting. Default: the best evaluation.
    filters
        Look only at runs that meet this, as in `etude runs list`. May be repeated.
    whole
        Remove whole runs, results included.
    yes
        Do it.
    """
    from etude.comparison.spelling import our_spelling, our_words
    from etude.errors import UserError
    from etude.runs.cleanup import plan_cleanup
    from etude.runs.index import RunIndex
    from etude.runs.run_query import Query

    if keep_best is None and keep_recent is None:
        raise UserError("say what to keep: --keep-best N, --keep-recent DAYS or both (0 keeps none)")
    if metric is not None and not keep_best:
        raise UserError(f"--metric {metric} says what is best: add --keep-best N")
    root = existing_runs_root(runs)
    looked_at = Query(our_words(filters or ())).apply(RunIndex(root).read().runs)
    plan = plan_cleanup(
        looked_at,
        keep_best=keep_best or 0,
        keep_recent_days=keep_recent or 0,
        metric=our_spelling(metric or "best"),
        whole=whole,
    )
    doomed = [verdict for verdict in plan if verdict.kept_because is None]
    failures = _carry_out(doomed, root, whole) if yes else {}
    if as_json:
        emit_json(_report(plan, failures, done=yes))
        return 1 if failures else 0
    _print_plan(plan, doomed, failures, done=yes)
    for message in failures.values():
        note(f"etude: {message}")
    if doomed and not yes:
        note("nothing was removed; add --yes to do it")
    return 1 if failures else 0


def _carry_out(doomed: list[Verdict], root: Path, whole: bool) -> dict[str, str]:
    from etude.errors import EtudeError
    from etude.runs.cleanup import clean_up, remove_leftovers
    from etude.runs.index import RunIndex

    failures = {}
    remove_leftovers(root)
    for verdict in doomed:
        try:
            clean_up(verdict.run.id, root, whole=whole)
        except EtudeError as error:
            failures[verdict.run.id] = str(error)
    RunIndex(root).read()
    return failures


def _print_plan(plan: list[Verdict], doomed: list[Verdict], failures: dict[str, str], *, done: bool) -> None:
    from etude.runs.run_keys import age_seconds

    gone = [verdict for verdict in doomed if verdict.run.id not in failures]
    width = max((len(verdict.run.id) for verdict in gone), default=0)
    for verdict in gone:
        run = verdict.run
        facts = f"{run.status:<11} {number(run.best):>8}  {age(age_seconds(run)):>4}"
        say(f"{run.id:<{width}}  {facts}  {size(verdict.size):>9}")
    removed = f"{size(sum(verdict.size for verdict in gone))} in {len(gone)} {'run' if len(gone) == 1 else 'runs'}"
    kept = Counter(verdict.kept_because for verdict in plan if verdict.kept_because)
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(kept.items())) or "none"
    say(f"{'removed' if done else 'would remove'} {removed}; kept {reasons}")


def _report(plan: list[Verdict], failures: dict[str, str], *, done: bool) -> dict[str, Any]:
    gone = [verdict for verdict in plan if verdict.kept_because is None and verdict.run.id not in failures]
    return {
        "done": done,
        "bytes": sum(verdict.size for verdict in gone),
        "removed": [{"id": verdict.run.id, "bytes": verdict.size} for verdict in gone],
        "kept": {verdict.run.id: verdict.kept_because for verdict in plan if verdict.kept_because},
        "failed": failures,
    }
