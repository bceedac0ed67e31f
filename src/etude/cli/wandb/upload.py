"""`etude wandb upload`: keep a run's report, policy and checkpoint in a W&B project, long after it has ended."""

from __future__ import annotations

from typing import Literal

from etude.cli.output import say
from etude.cli.parameters import RunName, RunsFolder
from etude.cli.places import find_run


def upload(
    run: RunName,
    /,
    *,
    project: str | None = None,
    entity: str | None = None,
    artifacts: Literal["policy", "checkpoint"] = "policy",
    offline: bool = False,
    runs: RunsFolder = None,
) -> int:
    """Keep a run's report and best policy there, as artifacts of the run of the same id.

    Parameters
    ----------
    project
        The project there. Default: the run's own.
    entity
        The user or team that owns it.
    artifacts
        checkpoint keeps the last full checkpoint besides, which training can go on from.
    offline
        Write to the run directory, for `wandb sync` later.
    """
    from etude.telemetry.wandb import WandbSink
    from etude.training.run_results import run_results
    from etude.training.stored_config import load_config

    found = find_run(run, runs).run
    # No code of the run is needed here, and none is imported.
    settings = load_config(found, trusted=False)
    options, experiment = settings.logging.wandb, settings.experiment
    sink = WandbSink(
        project=project or options.project or experiment.project or "etude",
        entity=entity or options.entity,
        tags=[*experiment.tags, *options.tags],
        name=found.id,
        config={},
        run_dir=found.path,
        mode="offline" if offline else "online",
        group=experiment.group,
        artifacts=artifacts,
    )
    results = run_results(found)
    sink.write_results(results)
    sink.close()
    wanted = ("report", "policy") if artifacts == "policy" else ("report", "policy", "checkpoint")
    say(f"{found.id}: kept {', '.join(result.kind for result in results if result.kind in wanted) or 'nothing'}")
    return 0
