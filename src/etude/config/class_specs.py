"""Parts as `{class_name: ..., config: {...}}`, as softlearning writes them: read, got one by one, and written back.

A class of theirs may stand for more than one setting of ours (two Q-functions are `algorithm.critics: 2`), so each is read as a
layer of a config. Options that they have no name for keep ours, in both directions: what is written reads back the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from etude.config.layers import has, overlay, put, take
from etude.config.registry import algorithms, buffers, networks
from etude.config.schema import Config, EnvironmentConfig
from etude.config.validate import Validator, options_schema, to_plain
from etude.errors import ConfigError, UserError, did_you_mean

POLICY_ROLES = {"sac": "actor", "sql": "sampler"}
"""What the network that acts is called, by algorithm."""


@dataclass(frozen=True)
class Class:
    """A class of theirs."""

    kind: str
    part: str
    """Where its settings lie in our config."""
    implied: Mapping[str, Any] = field(default_factory=dict)
    """What the class itself says, at our dotted paths."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Its options by our names: of its part, or with dots of the whole config."""
    only: Mapping[str, Any] = field(default_factory=dict)
    """Options that Etude knows one value of."""


_ALGORITHM = {
    "policy_lr": "learning_rate",
    "Q_lr": "critic_learning_rate",
    "alpha_lr": "temperature_learning_rate",
    "discount": "gamma",
    "train_every_n_steps": "train_every",
    "n_train_repeat": "gradient_steps",
    "num_warmup_samples": "learning_starts",
    "eval_n_episodes": "evaluation.episodes",
    "min_pool_size": "buffers.replay.min_size",
    "value_n_particles": "value_particles",
    "kernel_n_particles": "kernel_particles",
}
_SAMPLER = {
    "max_path_length": "max_episode_steps",
    "min_pool_size": "buffers.replay.min_size",
    "batch_size": "algorithm.batch_size",
    "store_last_n_paths": "training.keep_paths",
}
_NOT_HERE = {"eval_render_kwargs": {}, "video_save_frequency": 0, "save_full_state": False}
_LAYERS = {"hidden_layer_sizes": "hidden_dims"}
_NETWORK_ONLY = {"observation_keys": None, "preprocessors": None, "output_activation": "linear"}
_POLICY, _CRITIC, _POOL = "network.actor", "network.critic", "buffers.replay"
CLASSES = {
    "SAC": Class("algorithm", "algorithm", {"algorithm.name": "sac"}, _ALGORITHM, {**_NOT_HERE, "target_update_interval": 1}),
    "SQL": Class(
        "algorithm",
        "algorithm",
        {"algorithm.name": "sql"},
        {**_ALGORITHM, "target_update_interval": "target_every"},
        _NOT_HERE,
    ),
    "FeedforwardGaussianPolicy": Class(
        "policy", _POLICY, {f"{_POLICY}.type": "mlp"}, _LAYERS, {**_NETWORK_ONLY, "squash": True}
    ),
    "ContinuousUniformPolicy": Class("exploration", "algorithm", only=_NETWORK_ONLY),
    "feedforward_V_function": Class("value_function", _CRITIC, {f"{_CRITIC}.type": "mlp"}, _LAYERS, _NETWORK_ONLY),
    "feedforward_Q_function": Class(
        "value_function", _CRITIC, {f"{_CRITIC}.type": "mlp", "algorithm.critics": 1}, _LAYERS, _NETWORK_ONLY
    ),
    "double_feedforward_Q_function": Class(
        "value_function", _CRITIC, {f"{_CRITIC}.type": "mlp", "algorithm.critics": 2}, _LAYERS, _NETWORK_ONLY
    ),
    "ensemble_feedforward_Q_function": Class(
        "value_function", _CRITIC, {f"{_CRITIC}.type": "mlp"}, {**_LAYERS, "N": "algorithm.critics"}, _NETWORK_ONLY
    ),
    "SimpleReplayPool": Class("pool", _POOL, {f"{_POOL}.type": "replay"}, {"max_size": "capacity"}),
    "FlexibleReplayPool": Class("pool", _POOL, {f"{_POOL}.type": "replay"}, {"max_size": "capacity"}),
    "HindsightExperienceReplayPool": Class("pool", _POOL, {f"{_POOL}.type": "hindsight"}, {"max_size": "capacity"}),
    "SimpleSampler": Class("sampler", "environment", {}, _SAMPLER),
}
SECTIONS = {
    "algorithm_params": "algorithm",
    "policy_params": "policy",
    "exploration_policy_params": "exploration",
    "Q_params": "value_function",
    "replay_pool_params": "pool",
    "sampler_params": "sampler",
}
"""What stands at the top of a file of theirs, by kind; `environment_params` and `run_params` come with it."""
OTHER_SECTIONS = ("environment_params", "run_params")
_OURS = {"network.actor": "policy", "network.sampler": "policy", "network.critic": "value_function", "buffers.replay": "pool"}


def get(kind: str, spec: Any) -> Any:
    """Return the settings that a spec of this kind means: `get("pool", {"class_name": "SimpleReplayPool", "config": {}})`.

    A name alone is a class without options; None and what was got before come back as they are.
    """
    if not isinstance(spec, str | Mapping):
        return spec
    layer = read(kind, {"class_name": spec} if isinstance(spec, str) else spec)
    if kind == "sampler":
        return Validator().build(EnvironmentConfig, layer.get("environment", {}), "environment")
    if kind == "algorithm":
        return Validator().build(_schema(algorithms, layer["algorithm"]["name"]), layer["algorithm"], "algorithm")
    where, registry = {"policy": (_POLICY, networks), "value_function": (_CRITIC, networks), "pool": (_POOL, buffers)}[kind]
    part = _at(layer, where)
    return Validator().build(_schema(registry, part["type"]), part, where)


def read(kind: str, spec: Mapping[str, Any], role: str = "actor") -> dict[str, Any]:
    """Return what a spec of theirs says, as a layer of our config; `role` is that of the network that acts."""
    name, options = spec.get("class_name"), spec.get("config") or {}
    known = [each for each, one in CLASSES.items() if one.kind == kind]
    if name not in known:
        near, what = did_you_mean(str(name), known), kind.replace("_", " ")
        raise UserError(f"class_name={name}: no {what} of this name can be read{near} (known: {', '.join(known)})")
    if not isinstance(options, Mapping):
        raise ConfigError(f"{name}.config={options}: must be a mapping")
    theirs, layer = CLASSES[name], {}
    part = theirs.part.replace("network.actor", f"network.{role}")
    for path, value in theirs.implied.items():
        put(layer, path.replace(theirs.part, part, 1), value)
    for option, value in _plain_options(name, {str(option): value for option, value in options.items()}).items():
        if option in theirs.only:
            if value not in (theirs.only[option], None, {}):
                raise ConfigError(f"{name}.config.{option}={value}: can't be read; Etude has {theirs.only[option]} only")
            continue
        ours = theirs.options.get(option, option)
        try:
            put(layer, ours if "." in ours else f"{part}.{ours}", value)
        except TypeError:
            raise ConfigError(f"{name}.config.{option}: no such option") from None
    return layer


def write(config: Config) -> dict[str, Any]:
    """Return a run's algorithm, networks, replay buffer and episodes as specs of theirs, by the sections of their files."""
    plain = to_plain(config)
    name = plain["algorithm"].pop("name")
    if name not in POLICY_ROLES:
        raise UserError(f"algorithm.name={name}: softlearning has {' and '.join(POLICY_ROLES)} only")
    role = POLICY_ROLES[name]
    critics = plain["algorithm"].pop("critics")
    networks_, replay = plain["network"], plain["buffers"]["replay"]
    if {part["type"] for part in networks_.values()} != {"mlp"} or replay["type"] not in ("replay", "hindsight"):
        raise UserError(f"{config.environment.id}:{name}: only mlp networks and replay or hindsight buffers have a class there")
    critic = {"N": critics} if critics > 2 else {}
    critic_class = {1: "feedforward_Q_function", 2: "double_feedforward_Q_function"}
    pool_class = "SimpleReplayPool" if replay["type"] == "replay" else "HindsightExperienceReplayPool"
    own = {"evaluation": {"episodes": config.evaluation.episodes}, "buffers": {"replay": {"min_size": replay.pop("min_size")}}}
    kept = {"training": {"keep_paths": config.training.keep_paths}} if config.training.keep_paths else {}
    return {
        "environment_params": {"training": {"id": config.environment.id, "kwargs": plain["environment"]["kwargs"]}},
        "algorithm_params": _spec(name.upper(), plain["algorithm"], own, total_steps=config.training.total_steps),
        "policy_params": _spec("FeedforwardGaussianPolicy", networks_[role]),
        "Q_params": _spec(critic_class.get(critics, "ensemble_feedforward_Q_function"), {**networks_["critic"], **critic}),
        "replay_pool_params": _spec(pool_class, replay),
        "sampler_params": _spec("SimpleSampler", {"max_episode_steps": config.environment.max_episode_steps}, kept),
        "run_params": {"seed": config.experiment.seed},
    }


def translate(layer: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return a layer with the sections and classes of theirs in our own words, and a line in `notes` for each."""
    data: dict[str, Any] = {**layer, **{key: dict(value) for key, value in layer.items() if isinstance(value, Mapping)}}
    found = {path: kind for path, kind in SECTIONS.items() if isinstance(data.get(path), Mapping)}
    found |= {path: kind for path, kind in _OURS.items() if has(data, path) and _is_theirs(_at(data, path))}
    named = data.get("algorithm_params")
    role = "sampler" if isinstance(named, Mapping) and named.get("class_name") == "SQL" else "actor"
    for path, kind in found.items():
        spec = take(data, path)
        own_role = path.rpartition(".")[2] if path.startswith("network.") else role
        data = overlay(read(kind, spec, own_role), data)
        notes.append(f"{path}.{{class_name, config}} → {CLASSES[spec['class_name']].part}")
    _environment(data, notes)
    _run(data, notes)
    return data


def _environment(data: dict[str, Any], notes: list[str]) -> None:
    params = data.get("environment_params")
    if not isinstance(params, Mapping):
        return
    training, evaluation = params.get("training", {}), params.get("evaluation")
    if not isinstance(training, Mapping):
        raise ConfigError(f"environment_params.training={training}: must be a mapping")
    if evaluation not in (None, {}, training):
        raise ConfigError("environment_params.evaluation: differs from training; Etude evaluates in the task it trains in")
    del data["environment_params"]
    below = data.get("environment")
    data["environment"] = overlay(training, below if isinstance(below, Mapping) else {})
    notes.append("environment_params.training → environment")


def _run(data: dict[str, Any], notes: list[str]) -> None:
    params = data.get("run_params")
    if not isinstance(params, Mapping):
        return
    del data["run_params"]
    if "seed" in params:
        data["experiment"] = overlay({"seed": params["seed"]}, data.get("experiment") or {})
        notes.append("run_params.seed → experiment.seed")
    if others := [key for key in params if key != "seed"]:
        notes.append(f"run_params: {', '.join(others)} → (not read: checkpoint.* says when a run is saved)")


def _plain_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options that are not one for one: epochs, an automatic entropy, how goals are chosen anew."""
    if "epoch_length" in options and "n_epochs" in options:
        length, count = options.pop("epoch_length"), options.pop("n_epochs")
        if not all(isinstance(number, int | float) for number in (length, count)):
            raise ConfigError(f"{name}.config: epoch_length={length} and n_epochs={count}: must be numbers")
        options["training.total_steps"] = int(length * count)
    if options.get("target_entropy") == "auto":
        options["target_entropy"] = None
    if name == "HindsightExperienceReplayPool" and isinstance(strategy := options.pop("her_strategy", None), Mapping):
        share = strategy.get("resampling_probability", 0.8)
        if not isinstance(share, int | float) or not 0 <= share < 1:
            raise ConfigError(f"{name}.config.her_strategy.resampling_probability={share}: must be at least 0 and below 1")
        options |= {"strategy": strategy.get("type", "future"), "ratio": share / (1 - share)}
    return options


def _spec(
    class_name: str, part: Mapping[str, Any], whole: Mapping[str, Any] | None = None, total_steps: int | None = None
) -> dict[str, Any]:
    """A part in their words; options that they don't have keep ours. Some of theirs lie elsewhere in our `whole` config."""
    theirs = {ours: option for option, ours in CLASSES[class_name].options.items()}
    config = {theirs.get(key, key): value for key, value in part.items() if key != "type"}
    for ours, option in theirs.items():
        if "." in ours and whole is not None and has(whole, ours):
            config[option] = _at(whole, ours)
    if total_steps is not None:
        epochs = total_steps // 1000 if total_steps % 1000 == 0 else 1
        config |= {"epoch_length": total_steps // epochs, "n_epochs": epochs}
    return {"class_name": class_name, "config": config}


def _is_theirs(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(name := value.get("class_name"), str) and name in CLASSES


def _at(data: Mapping[str, Any], path: str) -> Any:
    value: Any = data
    for part in path.split("."):
        value = value[part]
    return value


def _schema(registry: Any, name: str) -> Any:
    return options_schema(registry.resolve(name))
