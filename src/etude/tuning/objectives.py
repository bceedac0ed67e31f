"""Whether the runs of a sweep will have what it wants of them, as far as that is known before one has run."""

from __future__ import annotations

from collections.abc import Iterator

from etude.config.phases import LIKELY_METRICS
from etude.config.schema import Config
from etude.errors import did_you_mean
from etude.runs.run_keys import ALSO, FACTS
from etude.telemetry.names import COUNTERS
from etude.training.assembly import phases_of
from etude.training.evaluation import evaluation_metrics
from etude.tuning.spec import SweepConfig

NUMBERS = ("best", "best_step", "last", "env_steps", "updates", "episodes", "total_steps", "elapsed_s", "seed", "age")
"""The facts of a run that are numbers, and so can be an objective."""


def objective_problems(sweep: SweepConfig, config: Config) -> Iterator[str]:
    """Yield what can't be an objective of trials such as this one.

    What an algorithm, an environment or a callback logs is known once it does: of such names nothing is said here.
    """
    by_rows = "the pruner" if sweep.pruner.type != "off" else "etude tune" if sweep.tune is not None else None
    by_rows = "method pbt" if sweep.method == "pbt" else by_rows
    for position, objective in enumerate(sweep.objective):
        where = f"objective[{position}]" if len(sweep.objective) > 1 else "objective"
        for problem in _metric_problems(objective.metric, config, by_rows):
            yield f"{where}.metric={objective.metric}: {problem}"


def _metric_problems(metric: str, config: Config, by_rows: str | None) -> Iterator[str]:
    namespace, slash, _ = metric.partition("/")
    measured = evaluation_metrics(config)
    if slash and namespace != "eval":
        return
    if slash and metric not in measured:
        yield f"evaluations measure {', '.join(measured)}{did_you_mean(metric, measured)}"
    elif slash or metric in ("best", "last"):
        if not _is_evaluated(config):
            yield "evaluations are off (evaluation.every_steps=0)"
        elif by_rows is not None and not slash:
            yield f"{by_rows} compares trials while they run, by a metric of their rows, such as eval/return_mean"
    elif metric in FACTS and metric not in NUMBERS:
        yield f"is a fact of a run and no number (numbers are: {', '.join(NUMBERS)})"
    elif metric in FACTS and metric not in COUNTERS and by_rows is not None:
        yield f"{by_rows} compares trials while they run, by a metric of their rows, such as eval/return_mean"
    elif metric not in (*FACTS, *COUNTERS):
        known = [*LIKELY_METRICS, *NUMBERS, *COUNTERS]
        meant = ALSO.get(metric.lower())
        near = f"; did you mean '{meant}'?" if meant in NUMBERS else did_you_mean(metric, known)
        yield f"no metric is called so{near or ' (such as eval/return_mean)'}"


def _is_evaluated(config: Config) -> bool:
    """Whether runs are ever evaluated: by themselves, or in a phase that does."""
    if config.evaluation.every_steps != 0 or config.evaluation.every_updates:
        return True
    return any(hook.name == "evaluate" for phase in phases_of(config) for hook in phase.hooks)
