"""A curriculum as data: phases, the hooks each runs, and for how long."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

from etude.config.hooks import Hook, hooks_of
from etude.config.schedules import as_float
from etude.errors import ConfigError, did_you_mean

PhaseType = Literal["online", "offline", "eval_only"]
PHASE_TYPES: tuple[PhaseType, ...] = ("online", "offline", "eval_only")
MOST_PHASES = 100_000
COUNTERS = ("decisions", "env_steps", "updates", "episodes", "cycles")
EVALUATION_METRICS = (
    "return_mean",
    "return_std",
    "return_min",
    "return_max",
    "return_best",
    "raw_return_mean",
    "raw_return_std",
    "length_mean",
    "episodes",
)
EPISODE_METRICS = ("return_mean", "return_best", "length_mean")
LIKELY_METRICS = (*(f"eval/{name}" for name in EVALUATION_METRICS), *(f"collect/{name}" for name in EPISODE_METRICS))
_PHASE_KEYS = (
    "name",
    "type",
    "hooks",
    "buffer",
    "duration_steps",
    "duration_updates",
    "duration_cycles",
    "until",
    "share",
    "extra",
)
_HOOK_KEYS = ("count", "every", "ratio", "per")
# Of a length that is soon an exact fraction: 1e-999999999 is one of a billion digits.
_RATIO = re.compile(r"[+-]?\d{1,18}(\.\d{0,18})?(e[+-]?\d{1,2})?|\d{1,18}/\d{1,18}", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class HookSpec:
    """One hook of a phase and how often it runs."""

    name: str
    count: int = 1
    """How much to ask of it in a cycle: vector steps for collect, gradient steps for update."""
    every: int = 1
    """Run in every n-th cycle only."""
    ratio: Fraction | None = None
    """Its count per decision (or per environment step) of this phase, exact over the whole phase."""
    per: Literal["decisions", "env_steps"] = "decisions"
    collects: bool = False
    """Whether it steps the environment, as its mark says."""
    counts_steps: bool = False
    """Whether its count is one of vector steps."""
    takes_long: bool = False
    """Whether it is asked for one at a time."""


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
    share: float | None = None
    """What it makes of the whole run, by the clock. Default: by its length (`etude.orchestration.clock`)."""

    @property
    def collects(self) -> bool:
        """Whether one of its hooks steps the environment."""
        return any(hook.collects for hook in self.hooks)

    @property
    def is_bounded(self) -> bool:
        """Whether the phase ends by itself."""
        return any((self.duration_steps, self.duration_updates, self.duration_cycles, self.until))


def parse_phases(
    entries: Sequence[Mapping[str, Any]],
    where: str = "training.phases",
    *,
    hooks: Sequence[Any],
    marks: Mapping[str, Hook],
) -> tuple[PhaseSpec, ...]:
    """Read a curriculum; `{repeat: 5, phases: [...]}` stands for its phases five times over.

    `hooks` are the algorithm's own: those of a phase that names none. `marks` say which of its methods are hooks, and of what
    kind.
    """
    problems: list[str] = []
    phases = _Reader(hooks, marks, problems).read(entries, where)
    problems += [
        f"{where}: phase '{phase.name}' never ends, so the phases after it can't start; give it a duration"
        for phase in phases[:-1]
        if not phase.is_bounded
    ]
    if phases and phases[-1].type == "offline" and not phases[-1].is_bounded:
        problems.append(f"{where}: phase '{phases[-1].name}' is offline and never ends; give it duration_updates")
    if (declared := sum(phase.share or 0.0 for phase in phases)) > 1 + 1e-9:
        problems.append(f"{where}: the shares of its phases add up to {declared:g}; 1 is the whole run")
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return phases


def default_hooks(workflow: Any, config: Any) -> Sequence[Any]:
    """Return the hooks of an algorithm's own last phase, with its pace: those of a user's phase that names none."""
    own = workflow.default_phases(config) if hasattr(workflow, "default_phases") else ()
    return next((phase["hooks"] for phase in reversed(own) if "hooks" in phase), ("collect", "update"))


def phase_problems(phases: Sequence[PhaseSpec], workflow: Any, buffers: Collection[str]) -> Iterator[str]:
    """Yield what a workflow can't do of a curriculum: every hook must be one of its own, every buffer must exist."""
    hooks = [*hooks_of(workflow), "evaluate"]
    for phase in phases:
        for hook in phase.hooks:
            if hook.name not in hooks:
                near = did_you_mean(hook.name, hooks) or f" (known: {', '.join(hooks)})"
                if callable(getattr(workflow, hook.name, None)):
                    near = f"; if phases may call {hook.name}(phase, count), put @hook above it{near}"
                yield f"training.phases: phase '{phase.name}': {workflow.__name__} has no hook '{hook.name}'{near}"
        if phase.buffer is not None and phase.buffer not in buffers:
            near = did_you_mean(phase.buffer, buffers) or f" (known: {', '.join(buffers) or 'none'})"
            yield f"training.phases: phase '{phase.name}': there is no buffer '{phase.buffer}'{near}"
        if phase.buffer is None and len(buffers) > 1 and phase.type != "eval_only":
            yield f"training.phases: phase '{phase.name}': which buffer? there are {', '.join(buffers)}"


def unfed_problems(phases: Sequence[PhaseSpec], brought: Collection[str] = ()) -> Iterator[str]:
    """Yield which phase of a new run learns before anything has been collected; a hook of an algorithm's own may do that.

    Buffers that are `brought` along hold something from the beginning.
    """
    for phase in phases:
        if phase.buffer in brought or (phase.buffer is None and brought):
            return
        hooks = {hook.name for hook in phase.hooks}
        if phase.collects or hooks - {"update", "evaluate"}:
            return
        if "update" in hooks:
            yield f"training.phases: phase '{phase.name}' learns, and nothing has been collected; collect in a phase before it"
            return


def until_problems(phases: Sequence[PhaseSpec], *, is_evaluated: bool) -> Iterator[str]:
    """Yield which metrics that phases wait for can never be logged; `is_evaluated`: evaluations come by themselves.

    What an algorithm or an environment logs is known only once it does; the scheduler looks for that in the first rows.
    """
    for phase in phases:
        if phase.until is None:
            continue
        metric = phase.until.metric
        where = f"training.phases: phase '{phase.name}': until.metric={metric}"
        namespace, slash, name = metric.partition("/")
        if not slash and metric not in COUNTERS:
            near = did_you_mean(metric, [*COUNTERS, *LIKELY_METRICS]) or " (such as eval/return_mean)"
            yield f"{where}: no metric is called so{near}"
        if namespace != "eval":
            continue
        if name.removeprefix("sample_").removeprefix("greedy_") not in EVALUATION_METRICS:
            near = did_you_mean(metric, LIKELY_METRICS) or f" (there are: {', '.join(EVALUATION_METRICS)})"
            yield f"{where}: no evaluation says so{near}"
        elif not is_evaluated and not any(hook.name == "evaluate" for hook in phase.hooks):
            yield f"{where}: evaluations are off (evaluation.every_steps=0), and the phase has no hook evaluate"


@dataclass
class _Reader:
    hooks: Sequence[Any]
    marks: Mapping[str, Hook]
    problems: list[str]

    def read(self, entries: Any, where: str) -> tuple[PhaseSpec, ...]:
        if isinstance(entries, str) or not isinstance(entries, Sequence):
            self.problems.append(f"{where}={entries}: must be a list of phases")
            return ()
        phases: list[PhaseSpec] = []
        for index, entry in enumerate(entries):
            path = f"{where}[{index}]"
            if not isinstance(entry, Mapping):
                self.problems.append(f"{path}={entry}: must be a mapping with a name and hooks")
            elif "repeat" in entry:
                times = _whole(entry["repeat"])
                if times is None or set(entry) != {"repeat", "phases"}:
                    self.problems.append(f"{path}: a repeat is {{repeat: a whole number, phases: [...]}}")
                    continue
                once = self.read(entry["phases"], f"{path}.phases")
                if len(phases) + len(once) * times > MOST_PHASES:
                    self.problems.append(f"{path}.repeat={times}: makes more than {MOST_PHASES:,} phases")
                    continue
                phases += once * times
            else:
                phases.append(self._phase(entry, path))
        return tuple(phases)

    def _phase(self, entry: Mapping[str, Any], path: str) -> PhaseSpec:
        problems = self.problems
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
        if not isinstance(kind, str) or kind not in PHASE_TYPES:
            near = did_you_mean(str(kind), PHASE_TYPES)
            problems.append(f"{path}.type={kind}: must be one of {', '.join(PHASE_TYPES)}{near}")
            return PhaseSpec(name="?", duration_cycles=1)
        for key in ("duration_steps", "duration_updates", "duration_cycles"):
            if key in known:
                value = known.pop(key)
                if _whole(value) is None:
                    problems.append(f"{path}.{key}={value}: must be a whole number, at least 1")
                known[key] = _whole(value) or 1
        if "share" in known and not (_is_number(known["share"]) and 0 < known["share"] <= 1):
            problems.append(f"{path}.share={known.pop('share')}: must be a number above 0 and at most 1, the whole run")
        known["hooks"] = self._hooks(known, kind, f"{path}.hooks")
        if kind == "offline" and any(hook.collects for hook in known["hooks"]):
            problems.append(f"{path}: an offline phase doesn't collect; make it online or drop the hook")
        if kind == "offline" and "duration_steps" in known:
            problems.append(f"{path}.duration_steps: an offline phase takes no environment steps; give it duration_updates")
        if kind == "eval_only" and not any(key in known for key in ("duration_cycles", "until")):
            known["duration_cycles"] = 1
        if "until" in known:
            known["until"] = _parse_until(known["until"], f"{path}.until", problems)
        return PhaseSpec(**{"name": "?", **known})

    def _hooks(self, known: Mapping[str, Any], kind: PhaseType, path: str) -> tuple[HookSpec, ...]:
        if "hooks" in known:
            return self._marked(_parse_hooks(known["hooks"], path, self.problems))
        if kind == "eval_only":
            return (HookSpec("evaluate"),)
        own = self._marked(_parse_hooks(self.hooks, path, self.problems))
        return own if kind == "online" else tuple(hook for hook in own if not hook.collects)

    def _marked(self, hooks: tuple[HookSpec, ...]) -> tuple[HookSpec, ...]:
        marks = [self.marks.get(hook.name, Hook()) for hook in hooks]
        return tuple(replace(hook, **mark._asdict()) for hook, mark in zip(hooks, marks, strict=True))


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
            options["ratio"] = Fraction(_RATIO.fullmatch(str(ratio))[0])  # type: ignore[index] # None is the TypeError below
        except (TypeError, ValueError, ZeroDivisionError):
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
    if not _is_number(bound):
        problems.append(f"{path}.{bounds[0]}={bound}: must be a number")
        return None
    return Until(metric, **{bounds[0]: float(bound)})


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(as_float(value))


def _whole(value: Any) -> int | None:
    """Return a whole number from 1 to 64 bits (1e4 is one), or None if it isn't."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < 2**63:
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else None
