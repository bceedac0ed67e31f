"""Other spellings of our settings, from the systems Etude unifies. They are read, shown as a diff, and never written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from etude.config import class_specs
from etude.config.layers import has, overlay, put, take
from etude.config.registry import REGISTRIES, buffers
from etude.config.universe import environment_id
from etude.errors import ConfigError
from etude.files.documents import parse_yaml

ALIASES: dict[str, str] = parse_yaml(Path(__file__).with_suffix(".yaml").read_bytes())
"""Dotted path as others write it → ours."""

# Short words of theirs that our own presets are written with.
_OURS_TOO = ("description",)

# Whole sections of others that are sections of ours.
_SECTIONS = {"workflow": "algorithm", "components": "network", "controllers": "network"}

# Words that mean something else here, by the key they are written at.
_VALUES: dict[str, dict[Any, Any]] = {
    "eval_deterministic": {True: "greedy", False: "sample"},
    "accelerator": {"gpu": "cuda"},
}
# Words of our own that were others before.
_FORMER: dict[str, dict[str, str]] = {"evaluation.mode": {"mode": "greedy"}}
# Settings with more than two positions that others know as a switch.
_SWITCHES: dict[str, dict[bool, str]] = {
    "environment.normalize_observations": {True: "rolling", False: "off"},
    "algorithm.normalize_advantages": {True: "batch", False: "off"},
}
# Hyper-parameters that others schedule by sibling keys.
_SCHEDULED = ("policy_lr", "lr", "learning_rate", "ent_coef", "entropy_coef", "vf_coef", "value_coef", "clip_range")
_SCHEDULE_PARTS = {
    "_schedule_start_value": "start",
    "_schedule_end_value": "end",
    "_schedule_start": "start_at",
    "_schedule_end": "end_at",
}
_PHASE_KEYS = {
    "workflow_hooks": "hooks",
    "steps": "duration_steps",
    "updates": "duration_updates",
    "cycles": "duration_cycles",
}
# What lies below these keys belongs to the environment or to the workflow, whatever its words.
_FOREIGN = ("kwargs", "env_kwargs", "extra")


def normalize(layer: Mapping[str, Any], own: Collection[str] = (), family: str = "") -> tuple[dict[str, Any], list[str]]:
    """Return `layer` in our own spelling, and one line `theirs → ours` for each key that was renamed.

    `own` names the settings that the chosen algorithm declares itself: those words keep their meaning. `family` is that of the
    chosen environment, which some words depend on.
    """
    notes: list[str] = []
    data = _class_dictionaries(class_specs.translate(layer, notes), "", notes)
    _sections(data, notes)
    _flat_schedules(data, "", notes)
    if isinstance(data.get("algorithm"), dict):
        _flat_schedules(data["algorithm"], "algorithm.", notes)
    _early_stop(data, notes)
    _universe_domain_task(data, notes)
    for old, new in ALIASES.items():
        section, _, word = old.rpartition(".")
        if word in own and new.startswith("algorithm."):
            if section:
                continue
            new = f"algorithm.{word}"
        if has(data, old):
            _rename(data, old, new, notes)
    for path, words in _SWITCHES.items():
        if has(data, path):
            value = take(data, path)
            put(data, path, words[value] if isinstance(value, bool) else value)
    for path, words in _FORMER.items():
        if has(data, path):
            value = take(data, path)
            is_former = isinstance(value, str) and value in words
            put(data, path, words[value] if is_former else value)
            notes += [f"{path}={value} → {words[value]}"] if is_former else []
    _picture_switches(data, notes, family)
    _single_buffer(data, notes)
    _shared_network(data, notes)
    _adapter_name(data, notes)
    _phases(data, notes)
    return data, notes


def _rename(data: dict[str, Any], old: str, new: str, notes: list[str]) -> None:
    value = take(data, old)
    value = _VALUES.get(old, {}).get(value, value) if isinstance(value, bool | str) else value
    if has(data, new):
        raise ConfigError(f"{old}: is another word for {new}, which is set too; keep one")
    _put(data, new, value)
    if old not in _OURS_TOO:
        notes.append(f"{old} → {new}")


def _put(data: dict[str, Any], path: str, value: Any) -> None:
    try:
        put(data, path, value)
    except TypeError:
        section = path.partition(".")[0]
        raise ConfigError(f"{section}={data[section]}: must be a mapping with keys such as {path.split('.')[1]}") from None


def _sections(data: dict[str, Any], notes: list[str]) -> None:
    for section, key in (("environment", "id"), ("algorithm", "name"), ("workflow", "name")):
        if isinstance(data.get(section), str):
            data[section] = {key: data[section]}
    for old, new in _SECTIONS.items():
        if isinstance(data.get(old), Mapping):
            section = data.pop(old)
            if new == "algorithm" and "type" in section:
                section["name"] = section.pop("type")
            below = data.get(new)
            data[new] = overlay(section, below) if isinstance(below, Mapping) else section
            notes.append(f"{old} → {new}")


def _class_dictionaries(value: Any, path: str, notes: list[str]) -> Any:
    """Rewrite `{class_name: X, config: {...}}` and `{_target_: X, _partial_: true, ...}` as `{type: X, ...}`."""
    if isinstance(value, list | tuple):
        return [_class_dictionaries(item, path, notes) for item in value]
    if not isinstance(value, Mapping):
        return value
    data: dict[str, Any] = {}
    for name, item in value.items():
        inside = f"{path}.{name}".lstrip(".")
        data[name] = item if name in _FOREIGN else _class_dictionaries(item, inside, notes)
    key = {"algorithm": "name", "environment.wrappers": "id"}.get(path, "type")
    if isinstance(data.get("class_name"), str):
        options = data.pop("config", None) or {}
        if not isinstance(options, Mapping):
            raise ConfigError(f"{path}.config={options}: must be a mapping")
        data = {key: _registered(data.pop("class_name")), **options, **data}
        notes.append(f"{path}.{{class_name, config}} → {path}.{key}")
    if isinstance(data.get("_target_"), str):
        data = {key: data.pop("_target_"), **{k: v for k, v in data.items() if k != "_partial_"}}
        notes.append(f"{path}._target_ → {path}.{key}")
    return data


def _registered(class_name: str) -> str:
    """`PPO` is the class behind `ppo`; a name we don't know stays as it is."""
    known = {name for registry in REGISTRIES.values() for name in registry.names()}
    return class_name.lower() if class_name.lower() in known else class_name


def _flat_schedules(data: dict[str, Any], path: str, notes: list[str]) -> None:
    """Fold `policy_lr_schedule_end_value: 0` and its siblings into one schedule at `policy_lr`."""
    for base in _SCHEDULED:
        kind = data.pop(f"{base}_schedule", None)
        parts = {ours: data.pop(base + theirs) for theirs, ours in _SCHEDULE_PARTS.items() if base + theirs in data}
        value = data.get(base)
        short = isinstance(value, str) and value.startswith("lin_")
        if kind not in ("linear", None):
            raise ConfigError(f"{path}{base}_schedule={kind}: must be linear")
        if parts and kind is None and not short:
            raise ConfigError(f"{path}{base}_schedule: is missing; set it to linear, or leave out the keys that start with it")
        if kind == "linear" or parts:
            start = value.removeprefix("lin_") if short and isinstance(value, str) else value
            data[base] = {**({} if start is None else {"start": start}), **parts}
            notes.append(f"{path}{base}_schedule → {path}{base}: {{start, end, start_at, end_at}}")


def _early_stop(data: dict[str, Any], notes: list[str]) -> None:
    switches = {mode: data.pop(key) for mode in ("train", "eval") if (key := f"early_stop_on_{mode}_threshold") in data}
    if switches:
        chosen = next((mode for mode in ("eval", "train") if switches.get(mode) is True), "off")
        _put(data, "training.early_stop", chosen)
        notes.append(f"early_stop_on_..._threshold → training.early_stop: {chosen}")


def _universe_domain_task(data: dict[str, Any], notes: list[str]) -> None:
    section = data if "domain" in data or "universe" in data else data.get("environment", {})
    if isinstance(section, dict) and ("domain" in section or "universe" in section):
        parts = [section.pop(key, None) for key in ("universe", "domain", "task")]
        universe, domain, task = (None if part is None else str(part) for part in parts)
        _put(data, "environment.id", environment_id(universe, domain, task, mark=""))
        notes.append("universe, domain, task → environment.id")


def _picture_switches(data: dict[str, Any], notes: list[str], family: str) -> None:
    """`grayscale_obs`, `resize_obs` and `frame_stack`: arguments of Atari's games, wrappers of any other task."""
    if "obs_type" in data:
        _put(data, "environment.kwargs.obs_type", data.pop("obs_type"))
        notes.append("obs_type → environment.kwargs.obs_type")
    values = {key: data.pop(key) for key in ("grayscale_obs", "resize_obs", "frame_stack") if key in data}
    if not values:
        return
    if family == "atari":
        size = values.get("resize_obs")
        arguments = {
            "grayscale": values.get("grayscale_obs"),
            "size": 84 if size is True else size or None,
            "stack": values.get("frame_stack"),
        }
        for key, value in arguments.items():
            if value is not None:
                _put(data, f"environment.kwargs.{key}", value)
        notes.append(f"{', '.join(values)} → environment.kwargs")
        return
    wanted: list[Any] = ["grayscale"] if values.get("grayscale_obs") else []
    if values.get("resize_obs"):
        wanted.append({"id": "resize", "size": values["resize_obs"]})
    if (values.get("frame_stack") or 1) != 1:
        wanted.append({"id": "stack", "count": values["frame_stack"]})
    environment = data.get("environment")
    before = environment.get("wrappers") if isinstance(environment, Mapping) else None
    _put(data, "environment.wrappers", [*(before or []), *wanted])
    notes.append(f"{', '.join(values)} → environment.wrappers")


def _single_buffer(data: dict[str, Any], notes: list[str]) -> None:
    """A single `buffer` section: of a rollout only the length carries over; anything else is the replay buffer."""
    buffer = data.get("buffer")
    if not isinstance(buffer, Mapping):
        return
    rest = dict(data.pop("buffer"))
    name = "replay"
    if rest.get("type") in ("trajectory", "rollout"):
        name, rest["type"] = "rollout", "rollout"
        size = rest.pop("size", rest.pop("capacity", None))
        if size is not None:
            environment = data.get("environment")
            num_envs = environment.get("num_envs", 1) if isinstance(environment, Mapping) else 1
            if not all(isinstance(n, int) and n > 0 for n in (size, num_envs)) or size % num_envs:
                raise ConfigError(f"buffer.size={size}: must be a whole number of steps for each of {num_envs} environments")
            _put(data, "environment.num_envs", num_envs)
            _put(data, "algorithm.rollout_steps", size // num_envs)
            notes.append("buffer.{type: trajectory, size} → algorithm.rollout_steps (with environment.num_envs)")
        if rest == {"type": "rollout"}:
            return
    elif "size" in rest and rest.get("type", "replay") in buffers.builtin_names():
        if "capacity" in rest:
            raise ConfigError("buffer.size: is another word for buffer.capacity, which is set too; keep one")
        rest["capacity"] = rest.pop("size")
    below = data.get("buffers")
    data["buffers"] = overlay({name: rest}, below if isinstance(below, Mapping) else {})
    notes.append(f"buffer → buffers.{name}")


def _shared_network(data: dict[str, Any], notes: list[str]) -> None:
    for key, ours in (("policy", "type"), ("hidden_dims", "hidden_dims"), ("activation", "activation")):
        if key in data:
            value = data.pop(key)
            for role in ("actor", "critic"):
                _put(data, f"network.{role}.{ours}", value)
            notes.append(f"{key} → network.actor.{ours}, network.critic.{ours}")


def _adapter_name(data: dict[str, Any], notes: list[str]) -> None:
    if has(data, "environment.wrapper") and data["environment"]["wrapper"] in ("gym", "gymnasium"):
        take(data, "environment.wrapper")
        notes.append("environment.wrapper: gym → (every Gymnasium id works as it is)")


def _phases(data: dict[str, Any], notes: list[str]) -> None:
    """Durations and hooks of phases under their other names, inside repeats too."""

    def rename(entries: Any) -> Any:
        if not isinstance(entries, list):
            return entries
        return [rename_one(entry) if isinstance(entry, Mapping) else entry for entry in entries]

    def rename_one(entry: Mapping[str, Any]) -> dict[str, Any]:
        renamed = {}
        for key, value in entry.items():
            ours = _PHASE_KEYS.get(key, key)
            if ours != key and (note := f"training.phases: {key} → {ours}") not in notes:
                notes.append(note)
            renamed[ours] = rename(value) if key == "phases" else value
        return renamed

    if has(data, "training.phases"):
        data["training"]["phases"] = rename(data["training"]["phases"])
