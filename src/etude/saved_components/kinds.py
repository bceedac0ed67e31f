"""The kinds of components that can be saved: what is written of each, and how it is made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import torch
from torch import nn

from etude.acting.policy import Policy
from etude.components import value_functions
from etude.components.critics import Ensemble
from etude.components.networks.actor_critic import build_actor_critic
from etude.components.networks.build import TRUNK, build_network
from etude.components.networks.encoder import FlatEncoder
from etude.components.networks.groups import reads_group
from etude.components.networks.keyed_encoder import KeyedEncoder, build_encoder
from etude.components.normalizers import ObservationNormalizer, RewardNormalizer
from etude.components.recipes import Recipe
from etude.config.constraints import Component
from etude.config.migrate import migrate
from etude.config.schema import Config
from etude.config.validate import Part, Validator, to_plain
from etude.environments.space_data import from_data, to_data
from etude.errors import UserError
from etude.training.assembly import build_workflow

_FIELDS = ("kind", "settings", "spaces", "parts", "values")
_ACTING = {
    "experiment": ("seed",),
    "environment": ("id", "num_envs", "normalize_observations", "normalize_rewards"),
    "training": ("total_steps", "on_nan"),
}
"""The settings of a run that its policy may depend on, beside those of the algorithm and the networks, which are kept whole."""


@dataclass(frozen=True)
class Kind:
    """A kind of component."""

    word: str
    """What a user calls it: an ensemble of networks is a network too."""
    make: Callable[..., Any]
    """Takes the settings, if it has some, and by name its spaces, values and parts."""
    write_settings: Callable[[Any], Any] = to_plain
    read_settings: Callable[[Any, bool], Any] | None = None
    """From data, and whether import paths in it may be followed, to settings."""


def recipe_data(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as plain data."""
    return {
        "kind": recipe.kind,
        "settings": None if recipe.settings is None else KINDS[recipe.kind].write_settings(recipe.settings),
        "spaces": {name: to_data(space) for name, space in recipe.spaces.items()},
        "parts": {name: recipe_data(part) for name, part in recipe.parts.items()},
        "values": dict(recipe.values),
    }


def read_recipe(data: Any, *, trust: bool) -> Recipe:
    """Return the recipe that data describes, every setting checked; ValueError where it is none."""
    if not isinstance(data, dict) or set(data) != set(_FIELDS) or data["kind"] not in KINDS:
        raise ValueError(f"it says not how it is made: {str(data)[:80]}")
    kind = KINDS[data["kind"]]
    if not all(isinstance(data[name], dict) for name in _FIELDS[2:]):
        raise ValueError("the spaces, parts and values of a component are mappings")
    if (kind.read_settings is None) != (data["settings"] is None):
        raise ValueError(f"the settings of a {data['kind']} are {'missing' if kind.read_settings else 'too many'}")
    return Recipe(
        data["kind"],
        None if kind.read_settings is None else kind.read_settings(data["settings"], trust),
        {name: from_data(space) for name, space in data["spaces"].items()},
        {name: read_recipe(part, trust=trust) for name, part in data["parts"].items()},
        data["values"],
    )


def make(recipe: Recipe, device: torch.device) -> Any:
    """Make a component anew: as it was before it learnt."""
    kind = KINDS[recipe.kind]
    parts = {"parts": {name: make(part, device) for name, part in recipe.parts.items()}} if recipe.parts else {}
    settings = () if recipe.settings is None else (recipe.settings,)
    made = kind.make(*settings, **recipe.spaces, **recipe.values, **parts, **({"device": device} if kind is _POLICY else {}))
    return made.to(device) if isinstance(made, nn.Module) else made


def _chosen(registry: str) -> Callable[[Any, bool], Any]:
    def read(data: Any, trust: bool) -> Any:
        return Validator(allow_imports=trust).choose(Component(registry), data, registry)

    return read


def _as_given(settings: Any) -> Any:
    """Options of a class that declares none are whatever it was given, tuples included."""
    return {settings.key: settings.type, **settings.options} if isinstance(settings, Part) else to_plain(settings)


def _network(
    settings: Any,
    observation_space: gymnasium.Space[Any] | None = None,
    *,
    output_size: int | None = None,
    output_space: gymnasium.Space[Any] | None = None,
    seed: int,
    output_gain: float,
    width: int | None = None,
    parts: Mapping[str, Any] | None = None,
) -> nn.Module:
    seen: Any = observation_space if parts is None else parts[TRUNK]
    outputs: Any = output_size if output_space is None else output_space
    return build_network(settings, seen, outputs, seed=seed, output_gain=output_gain, width=width)


def _group(*, key: str, beside: list[str], parts: Mapping[str, nn.Module]) -> nn.Module:
    return reads_group(parts["network"], key, beside)


def _encoder(settings: Any, space: gymnasium.Space[Any]) -> nn.Module:
    return build_encoder(settings, space, "encoder", torch.Generator().manual_seed(0))


def _acting_settings(config: Config) -> dict[str, Any]:
    plain = to_plain(config)
    kept = {section: {name: plain[section][name] for name in names} for section, names in _ACTING.items()}
    return {"version": plain["version"], **kept, "algorithm": plain["algorithm"], "network": plain["network"]}


def _read_acting_settings(data: Any, trust: bool) -> Config:
    if not isinstance(data, dict):
        raise ValueError("the settings of a policy are a mapping")
    return Validator(allow_imports=trust).build(Config, migrate(data))


def _read_value_function(data: Any, trust: bool) -> Any:
    if not isinstance(data, dict) or not isinstance(data.get("class_name"), str):
        raise ValueError("a value function has a class_name")
    return value_functions.read_settings(data, allow_imports=trust)


def _policy(
    config: Config, *, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any], device: torch.device
) -> Policy:
    config = replace(config, experiment=replace(config.experiment, device=str(device)))
    return build_workflow(config, observation_space, action_space).policy()


_POLICY = Kind("policy", _policy, _acting_settings, _read_acting_settings)
KINDS = {
    "policy": _POLICY,
    "value_function": Kind("value_function", value_functions.build_value_function, to_plain, _read_value_function),
    "network": Kind("network", _network, _as_given, _chosen("network")),
    "ensemble": Kind("network", lambda *, parts: Ensemble.of([*parts.values()])),
    "group": Kind("network", _group),
    "actor_critic": Kind("actor_critic", build_actor_critic, _as_given, _chosen("network")),
    "encoder": Kind("encoder", _encoder, _as_given, _chosen("encoder")),
    "flat_encoder": Kind("encoder", FlatEncoder),
    "keyed_encoder": Kind("encoder", KeyedEncoder),
    "observation_normalizer": Kind("observation_normalizer", ObservationNormalizer),
    "reward_normalizer": Kind("reward_normalizer", RewardNormalizer),
}


def word_of(recipe: Recipe) -> str:
    """Return what a user calls a component of this kind."""
    return KINDS[recipe.kind].word


def check_kind(kind: str | None) -> None:
    """Raise UserError where there is no such kind of component."""
    known = dict.fromkeys(each.word for each in KINDS.values())
    if kind is not None and kind not in known:
        raise UserError(f"kind={kind}: there are the kinds {', '.join(known)}")
