"""What there is to know about an inspected run: its environment, its networks, and the checkpoint at hand."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from torch import nn

from etude.config.schedules import Schedule
from etude.config.validate import Part
from etude.files.printable import one_line
from etude.inspecting.inspector import Inspector
from etude.inspecting.table import action_labels, observation_labels
from etude.using.stored_policy import StoredPolicy

LONGEST = 400
"""Characters of one fact."""

Facts = list[tuple[str, str]]


def environment_facts(inspector: Inspector) -> Facts:
    """Return what the task is, and how it can be looked at."""
    environment, stored = inspector.environment, inspector.performer.stored
    config = stored.config.environment
    facts = [
        ("environment", config.id),
        ("description", config.spec.description),
        ("observations", str(environment.single_observation_space)),
        ("observation labels", ", ".join(observation_labels(inspector))),
        ("actions", str(environment.single_action_space)),
        ("action labels", ", ".join(action_labels(inspector))),
        ("steps per decision", str(environment.action_repeat)),
        ("time limit", str(environment.base.max_episode_steps or config.max_episode_steps or "")),
        ("solved at", "" if environment.return_threshold is None else f"{environment.return_threshold:g}"),
        ("wrappers", ", ".join(_name(wrapper) for wrapper in config.wrappers)),
        ("observations normalised", config.normalize_observations),
        ("state", f"{environment.snapshot}: " + _SNAPSHOTS[environment.snapshot]),
    ]
    return _said(facts)


_SNAPSHOTS = {
    "exact": "other futures can begin at any step",
    "rewind": "other futures can begin at any step, which is reached by its actions",
    "restart": "can't be saved, so there are no other futures",
}


def model_facts(inspector: Inspector) -> Facts:
    """Return the algorithm, its settings and the sizes of its networks."""
    stored, reader = inspector.performer.stored, inspector.performer.reader
    facts = [("algorithm", stored.config.algorithm.name)]
    parts = {} if reader.workflow is None else reader.workflow.stateful_parts()
    for name, part in parts.items():
        if isinstance(part, nn.Module):
            count = sum(parameter.numel() for parameter in part.parameters())
            layers = [str(module) for module in part.modules() if not list(module.children())]
            facts.append((name, f"{count:,} parameters: {'; '.join(layers)}" if count else type(part).__name__))
    settings: Any = stored.config.algorithm
    options = {option.name: getattr(settings, option.name) for option in fields(settings) if option.name != "name"}
    facts += [(f"algorithm.{name}", _setting(value)) for name, value in options.items()]
    return _said(facts)


def _setting(value: Any) -> str:
    """Return a setting as people say it: a schedule by its ends, a part by its name and options."""
    if isinstance(value, Schedule):
        warm = f", warmed up over {value.warmup:g}" if value.warmup else ""
        if value.start == value.end:
            return f"{value.start:g}{warm}"
        where = "" if (value.start_at, value.end_at) == (0, 1) else f" from {value.start_at:g} to {value.end_at:g}"
        return f"{value.start:g} → {value.end:g}{where}{warm}"
    if isinstance(value, Part):
        return " ".join([str(value.type), *(f"{name}={option}" for name, option in value.options.items())])
    return str(value)


def checkpoint_facts(inspector: Inspector) -> Facts:
    """Return where the policy comes from."""
    stored = inspector.performer.stored
    facts = [("policy", stored.name), ("device", stored.config.experiment.device)]
    if isinstance(stored, StoredPolicy):
        saved = stored.checkpoint
        kind = {"full": "the whole run", "policy": "the policy alone"}.get(saved.kind, saved.kind)
        facts += [
            ("run", stored.run.id),
            ("checkpoint", saved.name + (" (best)" if saved.is_best else "")),
            ("holds", kind),
            ("saved", saved.created),
            *((name.replace("_", " "), f"{count:,}") for name, count in saved.counters.items()),
        ]
        metrics = saved.metadata.get("metrics")
        if isinstance(metrics, dict):
            facts += [(str(name), f"{value:g}") for name, value in metrics.items() if isinstance(value, float | int)]
    return _said(facts)


def _name(wrapper: Any) -> str:
    return str(getattr(wrapper, "id", None) or (wrapper.get("id") if isinstance(wrapper, dict) else None) or wrapper)


def _said(facts: Facts) -> Facts:
    return [(one_line(name, LONGEST), one_line(value, LONGEST)) for name, value in facts if value]
