"""A curriculum as data: phases, the hooks each runs, and for how long."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from etude.errors import ConfigError, did_you_mean

PhaseType = Literal["online", "offline", "eval_only"]
DEFAULT_HOOKS: dict[str, tuple[str, ...]] = {
    "online": ("collect", "update"),
    "offline": ("update",),
    "eval_only": ("evaluate",),
}
_PHASE_KEYS = (
    "name",
    "type",
    "hooks",
    "buffer",
    "duration_steps",
    "duration_updates",
    "duration_cycles",
    "until",
    "extra",
)
_HOOK_KEYS = ("count", "every", "ratio", "per")


@dataclass(frozen=True)
class HookSpec:
    """One hook of a phase and how often it runs."""

    name: str
    count: int = 1
    """Units of work per call: vector steps for collect, gradient steps for update."""
    every: int = 1
    """Run in every so-many-th cycle only."""
    ratio: Fraction | None = None
    """Units per decision (or per environment step) of this phase, exact over the whole phase; replaces count."""
    per: Literal["decisions", "env_steps"] = "decisions"


@dataclass(frozen=True)
class Until:
    """End a phase once a logged metric passes a bound."""

    metric: str
    above: float | None = None
    below: float | None = None

    def met(self, value: float) -> bool:
        """Whether `value` is past the bound."""
        return (self.above is not None and value >= self.above) or (self.below is not None and value <= self.below)


@dataclass(frozen=True)
class PhaseSpec:
    """A stretch of training with the same hooks."""

    name: str
    type: PhaseType = "online"
    hooks: tuple[HookSpec, ...] = ()
    buffer: str | None = None
    """The buffer that collect writes and update reads. Default: the only one there is."""
    duration_steps: int | None = None
    duration_updates: int | None = None
    duration_cycles: int | None = None
    until: Until | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    """The workflow's own settings for this phase."""

    @property
    def is_bounded(self) -> bool:
        """Whether the phase ends by itself."""
        return any((self.duration_steps, self.duration_updates, self.duration_cycles, self.until))


def parse_phases(entries: Sequence[Mapping[str, Any]], where: str = "training.phases") -> tuple[PhaseSpec, ...]:
    """Read a curriculum; `{repeat: 5, phases: [...]}` stands for its phases five times over."""
    problems: list[str] = []
    phases = _parse(entries, where, problems)
    problems += [
        f"{where}: phase '{phase.name}' never ends, so the phases after it can't start; give it a duration"
        for phase in phases[:-1]
        if not phase.is_bounded
    ]
    if phases and phases[-1].type == "offline" and not phases[-1].is_bounded:
        problems.append(f"{where}: phase '{phases[-1].name}' is offline and never ends; give it duration_updates")
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return phases


def phase_problems(phases: Sequence[PhaseSpec], workflow: Any, buffers: Collection[str]) -> Iterator[str]:
    """Yield what a workflow can't do of a curriculum: every hook must be one of its methods, every buffer must exist."""
    hooks = [*hook_names(workflow), "evaluate"]
    for phase in phases:
        for hook in phase.hooks:
            if hook.name not in hooks:
                near = did_you_mean(hook.name, hooks) or f" (known: {', '.join(hooks)})"
                yield f"training.phases: phase '{phase.name}': {workflow.__name__} has no hook '{hook.name}'{near}"
        if phase.buffer is not None and phase.buffer not in buffers:
            near = did_you_mean(phase.buffer, buffers) or f" (known: {', '.join(buffers) or 'none'})"
            yield f"training.phases: phase '{phase.name}': there is no buffer '{phase.buffer}'{near}"
        if phase.buffer is None and len(buffers) > 1 and phase.type != "eval_only":
            yield f"training.phases: phase '{phase.name}': which buffer? there are {', '.join(buffers)}"


def hook_names(workflow: Any) -> list[str]:
    """Return the methods of a workflow that can be hooks: those that can be called with a phase and a count."""
    names = []
    for name in dir(workflow):
        method = inspect.getattr_static(workflow, name)
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        try:
            inspect.signature(method).bind("self", "phase", "count")
        except TypeError:
            continue
        names.append(name)
    return names


def _parse(entries: Any, where: str, problems: list[str]) -> tuple[PhaseSpec, ...]:
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        problems.append(f"{where}={entries}: must be a list of phases")
        return ()
    phases: list[PhaseSpec] = []
    for index, entry in enumerate(entries):
        path = f"{where}[{index}]"
        if not isinstance(entry, Mapping):
            problems.append(f"{path}={entry}: must be a mapping with a name and hooks")
        elif "repeat" in entry:
            if _whole(entry["repeat"]) is None or set(entry) != {"repeat", "phases"}:
                problems.append(f"{path}: a repeat is {{repeat: a whole number, phases: [...]}}")
                continue
            phases += _parse(entry["phases"], f"{path}.phases", problems) * int(entry["repeat"])
        else:
            phases.append(_parse_phase(entry, path, problems))
    return tuple(phases)


def _parse_phase(entry: Mapping[str, Any], path: str, problems: list[str]) -> PhaseSpec:
    known = {key: value for key, value in entry.items() if key in _PHASE_KEYS and value is not None}
    for key in entry:
        if key not in _PHASE_KEYS:
            near = did_you_mean(str(key), _PHASE_KEYS) or " (settings of your own go under extra)"
            problems.append(f"{path}.{key}: unknown key{near}")
    for key, kind, what in (("name", str, "text"), ("buffer", str, "a buffer's name"), ("extra", Mapping, "a mapping")):
        if key in known and not isinstance(known[key], kind):
            problems.append(f"{path}.{key}={known.pop(key)}: must be {what}")
    if "name" not in entry:
        problems.append(f"{path}.name: is required")
    kind = known.setdefault("type", "online")
    if not isinstance(kind, str) or kind not in DEFAULT_HOOKS:
        near = did_you_mean(str(kind), DEFAULT_HOOKS)
        problems.append(f"{path}.type={kind}: must be one of {', '.join(DEFAULT_HOOKS)}{near}")
        return PhaseSpec(name="?", duration_cycles=1)
    for key in ("duration_steps", "duration_updates", "duration_cycles"):
        if key in known:
            value = known.pop(key)
            if _whole(value) is None:
                problems.append(f"{path}.{key}={value}: must be a whole number, at least 1")
            known[key] = _whole(value) or 1
    known["hooks"] = _parse_hooks(known.get("hooks", DEFAULT_HOOKS[kind]), f"{path}.hooks", problems)
    if kind == "offline" and any(hook.name == "collect" for hook in known["hooks"]):
        problems.append(f"{path}: an offline phase doesn't collect; make it online or drop the hook")
    if kind == "offline" and "duration_steps" in known:
        problems.append(f"{path}.duration_steps: an offline phase takes no environment steps; give it duration_updates")
    if kind == "eval_only" and not any(key in known for key in ("duration_cycles", "until")):
        known["duration_cycles"] = 1
    if "until" in known:
        known["until"] = _parse_until(known["until"], f"{path}.until", problems)
    return PhaseSpec(**{"name": "?", **known})


def _parse_hooks(entries: Any, path: str, problems: list[str]) -> tuple[HookSpec, ...]:
    if isinstance(entries, str) or not isinstance(entries, Sequence) or not entries:
        problems.append(f"{path}={entries}: must be a list of hooks, such as [collect, update]")
        return ()
    hooks = [_parse_hook(entry, f"{path}[{index}]", problems) for index, entry in enumerate(entries)]
    return tuple(hook for hook in hooks if hook is not None)


def _parse_hook(entry: Any, path: str, problems: list[str]) -> HookSpec | None:
    if isinstance(entry, str):
        return HookSpec(entry)
    ((name, options),) = entry.items() if isinstance(entry, Mapping) and len(entry) == 1 else ((None, None),)
    if name is None or not isinstance(options, Mapping | None):
        problems.append(f"{path}={entry}: must be a hook's name, or {{name: {{{', '.join(_HOOK_KEYS)}}}}}")
        return None
    path, options = f"{path}.{name}", dict(options or {})
    if "updates" in options and "count" not in options:
        options["count"] = options.pop("updates")
    for key in [key for key in options if key not in _HOOK_KEYS]:
        near = did_you_mean(str(key), _HOOK_KEYS) or f" (known: {', '.join(_HOOK_KEYS)})"
        problems.append(f"{path}.{key}: unknown key{near}")
        del options[key]
    for key in ("count", "every"):
        if key in options:
            value = options[key]
            if _whole(value) is None:
                problems.append(f"{path}.{key}={value}: must be a whole number, at least 1")
            options[key] = _whole(value) or 1
    if "ratio" in options:
        ratio = options["ratio"]
        try:
            options["ratio"] = Fraction(str(ratio))
        except (ValueError, ZeroDivisionError):
            problems.append(f"{path}.ratio={ratio}: must be a number such as 0.5 or 1/3")
            return None
        if options["ratio"] <= 0 or {"count", "every"} & set(options):
            problems.append(f"{path}.ratio={ratio}: must be above 0 and stands alone, without count and every")
    elif "per" in options:
        problems.append(f"{path}.per: says what a ratio is taken of; give a ratio too")
    if options.get("per", "decisions") not in ("decisions", "env_steps"):
        problems.append(f"{path}.per={options['per']}: must be decisions or env_steps")
    return HookSpec(str(name), **options)


def _parse_until(entry: Any, path: str, problems: list[str]) -> Until | None:
    bounds = [key for key in ("above", "below") if isinstance(entry, Mapping) and key in entry]
    if not isinstance(entry, Mapping) or len(bounds) != 1 or set(entry) != {"metric", bounds[0]}:
        problems.append(f"{path}: must be {{metric: NAME, above: NUMBER}} or {{metric: NAME, below: NUMBER}}")
        return None
    metric, bound = entry["metric"], entry[bounds[0]]
    if not isinstance(metric, str):
        problems.append(f"{path}.metric={metric}: must be text")
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
        problems.append(f"{path}.{bounds[0]}={bound}: must be a number")
    return Until(**entry)


def _whole(value: Any) -> int | None:
    """Return a whole number of at least 1 (1e4 is one), or None if it isn't."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else None
