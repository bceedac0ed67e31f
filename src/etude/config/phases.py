"""A curriculum as data: phases, the hooks each runs, and for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    for phase in phases[:-1]:
        if not phase.is_bounded:
            problems.append(
                f"{where}: phase '{phase.name}' never ends, so the phases after it can't start; give it a duration"
            )
    if phases and phases[-1].type == "offline" and not phases[-1].is_bounded:
        problems.append(f"{where}: phase '{phases[-1].name}' is offline and never ends; give it duration_updates")
    if problems:
        raise ConfigError(*problems)
    return phases


def _parse(entries: Sequence[Mapping[str, Any]], where: str, problems: list[str]) -> tuple[PhaseSpec, ...]:
    phases: list[PhaseSpec] = []
    for index, entry in enumerate(entries):
        path = f"{where}[{index}]"
        if not isinstance(entry, Mapping):
            problems.append(f"{path}={entry}: must be a mapping with a name and hooks")
        elif "repeat" in entry:
            repeat, inner = entry.get("repeat"), entry.get("phases", ())
            if not isinstance(repeat, int) or repeat < 1 or set(entry) != {"repeat", "phases"}:
                problems.append(f"{path}: a repeat is {{repeat: a whole number, phases: [...]}}")
                continue
            phases += _parse(inner, f"{path}.phases", problems) * repeat
        else:
            phases.append(_parse_phase(entry, path, problems))
    return tuple(phases)


def _parse_phase(entry: Mapping[str, Any], path: str, problems: list[str]) -> PhaseSpec:
    known = {key: value for key, value in entry.items() if key in _PHASE_KEYS}
    for key in set(entry) - set(known):
        problems.append(
            f"{path}.{key}: unknown key{did_you_mean(key, _PHASE_KEYS) or ' (settings of your own go under extra)'}"
        )
    if not isinstance(known.get("name"), str):
        problems.append(f"{path}.name: is required")
    kind = known.setdefault("type", "online")
    if kind not in DEFAULT_HOOKS:
        problems.append(f"{path}.type={kind}: must be one of {', '.join(DEFAULT_HOOKS)}")
        return PhaseSpec(name="?")
    for key in ("duration_steps", "duration_updates", "duration_cycles"):
        value = known.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 1 or int(value) != value:
            problems.append(f"{path}.{key}={value}: must be a whole number, at least 1")
            known[key] = None
        else:
            known[key] = int(value)
    hooks = [
        _parse_hook(hook, f"{path}.hooks[{i}]", problems)
        for i, hook in enumerate(known.get("hooks") or DEFAULT_HOOKS[kind])
    ]
    known["hooks"] = tuple(hook for hook in hooks if hook is not None)
    if kind == "offline" and any(hook.name == "collect" for hook in known["hooks"]):
        problems.append(f"{path}: an offline phase doesn't collect; make it online or drop the hook")
    if kind == "eval_only" and not any(known.get(key) for key in ("duration_cycles", "until")):
        known["duration_cycles"] = 1
    until = known.get("until")
    if until is not None:
        known["until"] = _parse_until(until, f"{path}.until", problems)
    return PhaseSpec(**{"name": "?", **known})


def _parse_hook(entry: Any, path: str, problems: list[str]) -> HookSpec | None:
    if isinstance(entry, str):
        return HookSpec(entry)
    if not isinstance(entry, Mapping) or len(entry) != 1:
        problems.append(f"{path}={entry}: must be a hook's name, or {{name: {{{', '.join(_HOOK_KEYS)}}}}}")
        return None
    ((name, options),) = entry.items()
    options = dict(options or {})
    if "updates" in options:
        options["count"] = options.pop("updates")
    for key in set(options) - set(_HOOK_KEYS):
        problems.append(f"{path}.{name}.{key}: unknown key{did_you_mean(key, _HOOK_KEYS) or f' (known: {_HOOK_KEYS})'}")
        del options[key]
    for key in ("count", "every"):
        value = options.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            problems.append(f"{path}.{name}.{key}={value}: must be a whole number, at least 1")
            options[key] = 1
    if "ratio" in options:
        try:
            options["ratio"] = Fraction(str(options["ratio"]))
        except (ValueError, ZeroDivisionError):
            problems.append(f"{path}.{name}.ratio={options['ratio']}: must be a number such as 0.5 or 1/3")
            return None
        if options["ratio"] <= 0 or {"count", "every"} & set(options):
            problems.append(f"{path}.{name}.ratio: must be above 0 and stands alone, without count and every")
    if options.get("per", "decisions") not in ("decisions", "env_steps"):
        problems.append(f"{path}.{name}.per={options['per']}: must be decisions or env_steps")
    return HookSpec(str(name), **options)


def _parse_until(entry: Any, path: str, problems: list[str]) -> Until | None:
    if (
        not isinstance(entry, Mapping)
        or "metric" not in entry
        or set(entry) - {"metric", "above", "below"}
        or len(entry) != 2
    ):
        problems.append(f"{path}: must be {{metric: NAME, above: NUMBER}} or {{metric: NAME, below: NUMBER}}")
        return None
    return Until(**entry)
