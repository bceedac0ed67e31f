"""Other spellings of our settings, from the systems Etude unifies. They are read, shown as a diff, and never written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Dotted path as others write it → ours. Paths without a dot are keys of flat, single-level files.
ALIASES: dict[str, str] = {
    # a modular mono-repo's master schema
    "training.total_timesteps": "training.total_steps",
    "training.max_timesteps": "training.total_steps",
    "training.eval_frequency": "evaluation.every_steps",
    "training.num_eval_episodes": "evaluation.episodes",
    "training.checkpoint_frequency": "checkpoint.every_steps",
    "algorithm.lr": "algorithm.learning_rate",
    "algorithm.clip_ratio": "algorithm.clip_range",
    "environment.name": "environment.id",
    "environment.normalize_obs": "environment.normalize_observations",
    "environment.normalize_reward": "environment.normalize_rewards",
    # flat files of environment variants
    "env_id": "environment.id",
    "algo_id": "algorithm.name",
    "n_envs": "environment.num_envs",
    "num_envs": "environment.num_envs",
    "env_kwargs": "environment.kwargs",
    "max_episode_steps": "environment.max_episode_steps",
    "normalize_obs": "environment.normalize_observations",
    "normalize_reward": "environment.normalize_rewards",
    "spec": "environment.spec",
    "project_id": "experiment.project",
    "seed": "experiment.seed",
    "max_timesteps": "training.total_steps",
    "max_env_steps": "training.total_steps",
    "reward_threshold": "training.return_threshold",
    "eval_episodes": "evaluation.episodes",
    "n_steps": "algorithm.rollout_steps",
    "batch_size": "algorithm.batch_size",
    "n_epochs": "algorithm.epochs",
    "policy_lr": "algorithm.learning_rate",
    "gamma": "algorithm.gamma",
    "gae_lambda": "algorithm.gae_lambda",
    "ent_coef": "algorithm.entropy_coef",
    "vf_coef": "algorithm.value_coef",
    "clip_range": "algorithm.clip_range",
    "target_kl": "algorithm.target_kl",
    "max_grad_norm": "algorithm.max_grad_norm",
    "normalize_advantages": "algorithm.normalize_advantages",
    "optimizer": "algorithm.optimizer",
    "algorithm.n_steps": "algorithm.rollout_steps",
    "algorithm.n_epochs": "algorithm.epochs",
    "algorithm.num_learning_epochs": "algorithm.epochs",
    "algorithm.policy_lr": "algorithm.learning_rate",
    "algorithm.ent_coef": "algorithm.entropy_coef",
    "algorithm.vf_coef": "algorithm.value_coef",
    "algorithm.clip_param": "algorithm.clip_range",
    "algorithm.lam": "algorithm.gae_lambda",
    "algorithm.desired_kl": "algorithm.adaptive_kl",
    "environment.n_envs": "environment.num_envs",
    "environment.env_kwargs": "environment.kwargs",
}

_SCHEDULE_PARTS = {
    "_schedule_start_value": "start",
    "_schedule_end_value": "end",
    "_schedule_start": "start_at",
    "_schedule_end": "end_at",
}


def normalize(layer: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return `layer` in our own spelling, and one line `theirs → ours` for each key that was renamed."""
    notes: list[str] = []
    data = _class_dictionaries(layer, "", notes)
    data = _flat_schedules(data, notes)
    _universe_domain_task(data, notes)
    for old, new in ALIASES.items():
        if _has(data, old):
            value = _take(data, old)
            _put(data, new, value)
            notes.append(f"{old} → {new}")
    for path, words in _SWITCHES.items():
        if _has(data, path) and isinstance(value := _take(data, path), bool | str):
            _put(data, path, words.get(value, value) if isinstance(value, bool) else value)
    _single_buffer(data, notes)
    _shared_network(data, notes)
    _adapter_name(data, notes)
    return data, notes


def _class_dictionaries(value: Any, path: str, notes: list[str]) -> Any:
    """Rewrite `{class_name: X, config: {...}}` and `{_target_: X, _partial_: true, ...}` as `{type: X, ...}`."""
    if isinstance(value, list | tuple):
        return [_class_dictionaries(item, path, notes) for item in value]
    if not isinstance(value, Mapping):
        return value
    data = {key: _class_dictionaries(item, f"{path}.{key}".lstrip("."), notes) for key, item in value.items()}
    key = "name" if path == "algorithm" else "type"
    if isinstance(data.get("class_name"), str):
        data = {key: data.pop("class_name"), **(data.pop("config", None) or {}), **data}
        notes.append(f"{path}.{{class_name, config}} → {path}.{key}")
    if isinstance(data.get("_target_"), str):
        data = {key: data.pop("_target_"), **{k: v for k, v in data.items() if k != "_partial_"}}
        notes.append(f"{path}._target_ → {path}.{key}")
    if "workflow_hooks" in data:
        data["hooks"] = data.pop("workflow_hooks")
        notes.append(f"{path}.workflow_hooks → {path}.hooks")
    return data


def _flat_schedules(data: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Fold `policy_lr_schedule_end_value: 0` and its siblings into one schedule at `policy_lr`."""
    folded = {key: _flat_schedules(item, notes) if isinstance(item, dict) else item for key, item in data.items()}
    for key in [key for key in folded if key.endswith("_schedule") and folded[key] in ("linear", None)]:
        base = key.removesuffix("_schedule")
        kind = folded.pop(key)
        parts = {ours: folded.pop(base + theirs) for theirs, ours in _SCHEDULE_PARTS.items() if base + theirs in folded}
        if kind == "linear":
            start = parts.get("start", folded.get(base))
            folded[base] = {"start": start, **{k: v for k, v in parts.items() if k != "start"}}
            notes.append(f"{key} → {base}: {{start, end, start_at, end_at}}")
    return folded


def _universe_domain_task(data: dict[str, Any], notes: list[str]) -> None:
    section = data if "domain" in data else data.get("environment", {})
    if isinstance(section, dict) and "domain" in section and "task" in section:
        section.pop("universe", None)
        _put(data, "environment.id", f"{section.pop('domain')}-{section.pop('task')}")
        notes.append("universe, domain, task → environment.id")


def _single_buffer(data: dict[str, Any], notes: list[str]) -> None:
    """A single `buffer` section: its kind and size follow from the algorithm, so only a rollout's length carries over."""
    buffer = data.pop("buffer", None)
    if not isinstance(buffer, Mapping):
        return
    size = buffer.get("size", buffer.get("capacity"))
    if buffer.get("type") in ("trajectory", "rollout") and size is not None:
        num_envs = data.get("environment", {}).get("num_envs", 1) if isinstance(data.get("environment"), dict) else 1
        if not _has(data, "environment.num_envs"):
            _put(data, "environment.num_envs", 1)
        _put(data, "algorithm.rollout_steps", int(size) // int(num_envs))
        notes.append("buffer.{type: trajectory, size} → algorithm.rollout_steps (with environment.num_envs)")
    else:
        data["buffers"] = {"replay": dict(buffer)}
        notes.append("buffer → buffers.replay")


def _shared_network(data: dict[str, Any], notes: list[str]) -> None:
    for key in ("hidden_dims", "activation"):
        if key in data:
            value = data.pop(key)
            for role in ("actor", "critic"):
                _put(data, f"network.{role}.{key}", value)
            notes.append(f"{key} → network.actor.{key}, network.critic.{key}")


def _adapter_name(data: dict[str, Any], notes: list[str]) -> None:
    if _has(data, "environment.wrapper") and data["environment"]["wrapper"] in ("gym", "gymnasium"):
        _take(data, "environment.wrapper")
        notes.append("environment.wrapper: gym → (every Gymnasium id works as it is)")


# Settings with more than two positions that others know as a switch.
_SWITCHES: dict[str, dict[bool, str]] = {
    "environment.normalize_observations": {True: "rolling", False: "off"},
    "algorithm.normalize_advantages": {True: "batch", False: "off"},
}


def _has(data: Mapping[str, Any], path: str) -> bool:
    node: Any = data
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    # A section of ours may carry the same word as a flat key of theirs (`optimizer`, `spec`): a mapping stays.
    return not (isinstance(node, Mapping) and "." not in path and path != "spec" and path != "env_kwargs")


def _take(data: dict[str, Any], path: str) -> Any:
    *parents, last = path.split(".")
    node = data
    for part in parents:
        node = node[part]
    return node.pop(last)


def _put(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    node = data
    for part in parents:
        node = node.setdefault(part, {})
    node[last] = value
