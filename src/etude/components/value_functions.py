"""Value functions by name, for algorithms of one's own and for notebooks: one critic, two or many, of states or of actions.

    critics = get({"class_name": "double_feedforward_Q_function", "config": {"hidden_dims": [256, 256]}}, observations, actions)
    critics(observation, action)         # (E, B): what each says
    critics.lowest(observation, action)  # (B,): the one that is believed

In a training's config the same dictionary may stand at `network.critic`; it is read as an mlp, and as algorithm.critics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
from gymnasium import spaces
from torch import Tensor, nn

from etude.components.critics import Ensemble, space_with_action, with_action
from etude.components.networks.build import build_network
from etude.components.networks.layers import Activation
from etude.components.networks.mlp import MLPConfig
from etude.components.recipes import Recipe, remember
from etude.compute.random_streams import derive_seed
from etude.config.constraints import PositiveInt
from etude.config.registry import value_functions
from etude.config.validate import Validator
from etude.environments.vector import Observation
from etude.errors import UserError

SPELLINGS = {"hidden_layer_sizes": "hidden_dims", "N": "critics"}
"""Other systems' words for the settings below."""


@dataclass(frozen=True)
class FeedforwardConfig:
    """Fully connected layers."""

    class_name: str = ""
    """The registered name of the value function."""
    hidden_dims: tuple[PositiveInt, ...] = (256, 256)
    """Units per hidden layer."""
    activation: Activation = "relu"
    """What follows each hidden layer."""


@dataclass(frozen=True)
class EnsembleConfig(FeedforwardConfig):
    """As many of them as wanted."""

    critics: PositiveInt = 5
    """How many. The lowest of more is more cautious."""


class ValueFunction(nn.Module):
    """Several networks that value the same thing, each with first weights of its own."""

    Config: ClassVar[type] = FeedforwardConfig
    critics: ClassVar[int] = 1
    reads_action: ClassVar[bool] = False

    def __init__(
        self, config: Any, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any] | None, *, seed: int = 0
    ) -> None:
        super().__init__()
        space = observation_space
        if self.reads_action:
            if not isinstance(action_space, spaces.Box):
                raise UserError(
                    f"{config.class_name} reads a continuous action, so it needs a Box of actions, not {action_space}"
                )
            space = space_with_action(observation_space, spaces.Box(-math.inf, math.inf, (math.prod(action_space.shape),)))
        options = MLPConfig(hidden_dims=config.hidden_dims, activation=config.activation)
        seeds = [derive_seed(seed, "init", config.class_name, i) for i in range(self.count(config))]
        self.members = Ensemble.of([build_network(options, space, 1, seed=each, where=config.class_name) for each in seeds])

    @classmethod
    def count(cls, config: Any) -> int:
        """Return how many there are."""
        return cls.critics

    def forward(self, observation: Observation, action: Tensor | None = None) -> Tensor:
        """(B, ...), and (B, D) where it reads actions → (E, B): what each of them says."""
        if self.reads_action:
            assert action is not None, "a Q-function values an action"
            return self.members(with_action(observation, action)).squeeze(-1)
        return self.members(observation).squeeze(-1)

    def lowest(self, observation: Observation, action: Tensor | None = None) -> Tensor:
        """(B,): the lowest of them, which overestimates least (Fujimoto et al. 2018)."""
        return self(observation, action).amin(0)


class VFunction(ValueFunction):
    """What an observation is worth."""


class QFunction(ValueFunction):
    """What an action is worth in an observation."""

    reads_action = True


class DoubleQFunction(QFunction):
    """Two of them, as in SAC and TD3."""

    critics = 2


class EnsembleQFunction(QFunction):
    """As many as `critics` says."""

    Config = EnsembleConfig

    @classmethod
    def count(cls, config: EnsembleConfig) -> int:
        """Return how many the config asks for."""
        return config.critics


def get(
    description: str | Mapping[str, Any],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any] | None = None,
    *,
    seed: int = 0,
) -> ValueFunction:
    """Return the value function that a name or `{class_name, config}` describes, with first weights that depend on the seed."""
    given = {"class_name": description} if isinstance(description, str) else dict(description)
    name, options = given.pop("class_name", None), given.pop("config", None) or {}
    if given or not isinstance(name, str) or not isinstance(options, Mapping):
        raise UserError(
            f"a value function is {{class_name: NAME, config: {{...}}}} (known: {', '.join(value_functions.names())})"
        )
    settings: dict[str, Any] = {SPELLINGS.get(str(key), str(key)): value for key, value in options.items()}
    return build_value_function(read_settings({"class_name": name, **settings}), observation_space, action_space, seed=seed)


def read_settings(data: Mapping[str, Any], *, allow_imports: bool = True) -> Any:
    """Return the settings of the value function that `class_name` means; an import path is followed only if allowed."""
    cls = value_functions.resolve(data["class_name"], allow_imports=allow_imports)
    return Validator(allow_imports=allow_imports).build(cls.Config, data)


def build_value_function(
    settings: Any, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any] | None = None, *, seed: int = 0
) -> ValueFunction:
    """Build a value function of its settings, with first weights that depend on the seed."""
    made = value_functions.resolve(settings.class_name)(settings, observation_space, action_space, seed=seed)
    given = {"observation_space": observation_space, "action_space": action_space}
    seen = {name: space for name, space in given.items() if space is not None}
    return remember(made, Recipe("value_function", settings, seen, values={"seed": seed}))
