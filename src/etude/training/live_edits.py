"""Settings that change while a run trains: which may, and how they come into force between two cycles.

What may change is what a running loop reads anew: the schedules of the algorithm (learning rates, coefficients, clip ranges,
exploration), the cadences of rows, evaluations and saves, how evaluations are done, and the budget. A change has exactly the
effect that a stop here and a resume with the same words would have, and is recorded in the same place: `etude verify` makes it
again that way. So the run is saved first; killed at any moment, it goes on with the settings that were in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from etude.config.migrate import flat
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import to_plain
from etude.errors import UserError
from etude.orchestration.orchestrator import Orchestrator
from etude.runs.places import command
from etude.runs.run import Run
from etude.training import assembly
from etude.training.changed_settings import changed_config, record_changes
from etude.training.evaluation import build_evaluator
from etude.training.stored_config import as_recorded, config_changes

CADENCES = (
    "logging.every_steps",
    "logging.every_updates",
    "evaluation.every_steps",
    "evaluation.every_updates",
    "checkpoint.every_steps",
    "checkpoint.every_updates",
    "checkpoint.every_minutes",
)
EVALUATIONS = ("evaluation.episodes", "evaluation.num_envs", "evaluation.timeout_s")
BUDGET = ("training.total_steps", "training.iterations")


@dataclass(frozen=True)
class Edit:
    """A change that was checked and may be made."""

    config: Config
    changes: tuple[str, ...]
    """`key: old → new`, a line each, as they are recorded."""
    told: str
    """The same for people, a schedule in one piece."""


def check_edit(words: Sequence[str], config: Config, run: Run, orchestrator: Orchestrator) -> Edit:
    """Return what `words` change in a run that trains; UserError, in a line, where that can't be done on the way."""
    before = as_recorded(config, run)  # tags and groups may have changed since: they are no part of this
    after = changed_config(before, words, run)
    changes = tuple(config_changes(before, after))
    if not changes:
        raise UserError(f"{' '.join(words)}: that is how it is already")
    way_out = f"stop the run, and resume it with that: `{command('resume', run.path, *words)}`"
    if orchestrator.world.size > 1 or config.environment.samplers:
        raise UserError(f"{_keys(changes)}: a run of several processes can't be changed while it trains; {way_out}")
    algorithm = [f"algorithm.{name}" for name in orchestrator.workflow.live_settings()]
    allowed = (*CADENCES, *EVALUATIONS, *BUDGET, *algorithm)
    old, new = flat(to_plain(before)), flat(to_plain(after))
    names: dict[str, None] = {}
    for key in sorted(key for key in {*old, *new} if old.get(key) != new.get(key)):
        # A schedule that becomes a constant, or the other way round, changes the keys below its name.
        name = next((each for each in allowed if key == each or key.startswith(f"{each}.")), None)
        if name is None:
            raise UserError(f"{key}: can't be changed while the run trains; {way_out}")
        if name in algorithm and None in (_setting(before, name), _setting(after, name)):
            raise UserError(f"{key}: is {_setting(before, name)}, which is built into the optimiser; {way_out}")
        names[name] = None
    if after.training.early_stop == "eval" and after.evaluation.every_steps == 0:
        raise UserError("evaluation.every_steps=0: training.early_stop=eval needs evaluations")
    if assembly.phases_of(after) != orchestrator.scheduler.phases:
        raise UserError(f"{_keys(changes)}: the phases of {config.algorithm.name} depend on it; {way_out}")
    told = ", ".join(f"{name} from {_said(_setting(before, name))} to {_said(_setting(after, name))}" for name in names)
    return Edit(after, changes, told)


def apply_edit(edit: Edit, before: Config, run: Run, orchestrator: Orchestrator) -> None:
    """Let a checked change come into force where the run stands, which must be saved: record it, then make it."""
    after = edit.config
    if orchestrator.scheduler.is_finished or orchestrator.is_asked_to_stop:
        raise UserError(f"{_keys(edit.changes)}: the run ends here; resume it with that")
    total = after.training.total_steps
    if total != before.training.total_steps:
        orchestrator.scheduler.check_budget(total)  # before anything is written
    record_changes(run, after, orchestrator, edit.changes)
    if total != before.training.total_steps:
        orchestrator.change_budget(total)
    orchestrator.workflow.change_settings(assembly.of_this_rank(after))
    orchestrator.change_cadences(assembly.cadences(after))
    if after.evaluation != before.evaluation:
        _change_evaluations(after, orchestrator)


def _change_evaluations(config: Config, orchestrator: Orchestrator) -> None:
    if orchestrator.evaluator is not None:
        orchestrator.evaluator.close()
    here = assembly.of_this_rank(config)
    device, phases = orchestrator.workflow.context.device, orchestrator.scheduler.phases
    orchestrator.evaluator = build_evaluator(here, device, phases, captured=assembly.acts_captured(here))


def one_evaluation(config: Config) -> Config:
    """The same settings with evaluations on, where they are off."""
    return replace(config, evaluation=replace(config.evaluation, every_steps=config.evaluation.every_steps or 1))


def _setting(config: Config, key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def _said(value: Any) -> str:
    if not isinstance(value, Schedule):
        return str(value)
    return f"{value.start:g}" if value.start == value.end else f"{value.start:g}…{value.end:g}"


def _keys(changes: Sequence[str]) -> str:
    return ", ".join(change.partition(": ")[0] for change in changes)
