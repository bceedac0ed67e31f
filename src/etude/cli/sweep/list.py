"""`etude sweep list`: which sweeps there are."""

from __future__ import annotations

from collections import Counter

from etude.cli.output import emit_json, say
from etude.cli.parameters import AsJson, RunsFolder
from etude.cli.places import existing_runs_root


def list_sweeps(*, runs: RunsFolder = None, as_json: AsJson = False) -> int:
    """List sweeps: how many trials each has, and the best so far."""
    from etude.telemetry.readable import number
    from etude.tuning.places import SweepFolder, names_of_sweeps

    root, shown = existing_runs_root(runs), []
    for name in names_of_sweeps(root):
        plan, study = SweepFolder(root, name).looked_at()
        best = study.best(1)
        counts = Counter(trial.state for trial in study.trials)
        objective = None if not best else best[0].result
        shown.append({"name": name, "method": plan.sweep.method, "trials": len(study.trials), **counts, "best": objective})
        if not as_json:
            states = ", ".join(f"{count} {state}" for state, count in counts.items())
            first = "" if objective is None else f" · best {plan.sweep.objective[0].metric} {number(objective[0])}"
            say(f"{name}  {plan.sweep.method} · {len(study.trials)} trials{f' ({states})' if states else ''}{first}")
    if as_json:
        emit_json(shown)
    elif not shown:
        say("no sweeps")
    return 0
