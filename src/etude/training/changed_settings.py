"""Settings that change after a run has begun, by a resume or while it trains: composed, compared, and recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etude.config import aliases, overrides
from etude.config.compose import compose
from etude.config.layers import has
from etude.config.schema import Config
from etude.config.validate import to_plain
from etude.orchestration.orchestrator import Orchestrator
from etude.runs import trust
from etude.runs.run import Run
from etude.runs.settings_files import write_changed_settings
from etude.training import assembly, run_facts


def changed_config(before: Config, words: Sequence[str], run: Run, *, trusted: bool = False) -> Config:
    """Return the resolved config that `words` make of a run's."""
    base = _with_budget_in_steps(to_plain(before), words)
    composition = compose(None, words=words, base=base, allow_imports=trusted or trust.is_own(run.path))
    return assembly.resolve(composition.config)


def record_changes(run: Run, config: Config, orchestrator: Orchestrator, changes: Sequence[str]) -> None:
    """Write down that from where the run stands it has these settings; `etude verify` makes the changes again."""
    own = trust.is_own(run.path)
    settings = run_facts.resolved_yaml(config, orchestrator)
    if own:
        trust.sign_ahead(run.path, settings)
    write_changed_settings(run, settings, at=orchestrator.counters.as_dict(), changes=changes)
    run.update_status(**run_facts.facts(config), **run_facts.names(config))
    if own:
        trust.sign(run.path)


def _with_budget_in_steps(base: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """The settings of a run whose budget was given in iterations, where words give it in steps from here on."""
    asked, _ = aliases.normalize(overrides.parse(words).values)
    if has(asked, "training.total_steps") and not has(asked, "training.iterations"):
        base["training"]["iterations"] = None
    return base
