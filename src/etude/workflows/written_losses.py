"""Losses of actors, critics and action values in NumPy, with their gradients written out: see `etude.learning.written`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium
import numpy as np
from torch import Tensor

from etude.components.distributions import ActionHead
from etude.components.networks.encoder import ACTION_MASK
from etude.components.networks.mlp import MLPConfig
from etude.components.networks.written_mlp import SLOPES, Array, WrittenMLP
from etude.components.written_heads import WrittenDistribution, written_head
from etude.config.schema import Config
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import Observation
from etude.learning.update import Batch, Said

OPTIMIZERS = ("adam", "adamw", "rmsprop")


def settings_are_plain(config: Config) -> bool:
    """Whether a config asks for nothing that only torch does: other networks, other optimisers, gradients in pieces."""
    networks = config.network.values()
    plain = all(isinstance(each, MLPConfig) and each.activation in SLOPES and not each.encoders for each in networks)
    settings = config.algorithm
    return plain and settings.optimizer.type in OPTIMIZERS and getattr(settings, "accumulate", 1) == 1


def spaces_are_plain(head: ActionHead, observation_space: gymnasium.Space[Any]) -> bool:
    """Whether actions are choices or numbers, and none of them is masked."""
    return written_head(head, {}) is not None and ACTION_MASK not in leaf_spaces(observation_space)


class WrittenActorCritic:
    """One pass of actor and critic over a batch, and back."""

    def __init__(self, networks: Mapping[str, WrittenMLP], head: ActionHead, gradients: Mapping[Tensor, Array]) -> None:
        self._actor, self._critic = networks["actor"], networks["critic"]
        made = written_head(head, gradients)
        assert made is not None
        self._head = made

    def forward(self, batch: Batch) -> tuple[WrittenDistribution, Array]:
        """Return the distributions of the actions taken, and the values (B,)."""
        features = self._actor.features(batch["observation"])
        return self._head(self._actor.forward(features), batch["sample"].numpy()), self._critic.forward(features)[:, 0]

    def backward(self, distribution: WrittenDistribution, of_log_prob: Array, of_entropy: float, of_values: Array) -> None:
        """Write all gradients, from those of each row's log-probability, entropy and value."""
        self._actor.backward(distribution.pull(of_log_prob, of_entropy))
        self._critic.backward(of_values[:, None])


class WrittenPPO:
    """The loss of proximal policy optimisation: clipped surrogate, value error and entropy bonus."""

    def __init__(self, both: WrittenActorCritic, scheduled: Mapping[str, Tensor], clip_value_loss: float | None) -> None:
        self._both, self._scheduled, self._clip_values = both, scheduled, clip_value_loss

    def __call__(self, batch: Batch) -> Said:
        """Return what the loss of a minibatch says, its gradient written."""
        clip, value_coef, entropy_coef = (float(self._scheduled[name]) for name in ("clip_range", "value_coef", "entropy_coef"))
        distribution, values = self._both.forward(batch)
        advantages, returns = batch["advantages"].numpy(), batch["returns"].numpy()
        count = len(values)

        log_ratio = distribution.log_prob - batch["log_prob"].numpy()
        ratio = np.exp(log_ratio)
        free = ratio * advantages
        bound = np.clip(ratio, 1 - clip, 1 + clip) * advantages
        policy_loss = -_mean(np.minimum(free, bound))
        # Where the bound is the smaller one, it is flat. Within the clip range both are the same.
        of_log_prob = np.where(free <= bound, free, np.float32(0)) * np.float32(-1 / count)

        distance = values - returns
        errors, of_values = distance * distance, distance
        if self._clip_values is not None:
            before = batch["values"].numpy()
            moved = values - before
            near = before + np.clip(moved, -self._clip_values, self._clip_values) - returns
            of_values = np.where((np.abs(moved) <= self._clip_values) | (errors >= near * near), distance, np.float32(0))
            errors = np.maximum(errors, near * near)
        value_loss, entropy = _mean(errors), _mean(distribution.entropy)
        self._both.backward(distribution, of_log_prob, -entropy_coef / count, of_values * np.float32(2 * value_coef / count))

        drift = ratio - 1
        return Said(
            policy_loss + value_coef * value_loss - entropy_coef * entropy,
            {
                "train/policy_loss": policy_loss,
                "train/value_loss": value_loss,
                "train/entropy": entropy,
                "train/approx_kl": _mean(drift - log_ratio),
                "train/clip_fraction": np.count_nonzero(np.abs(drift) > clip) / count,
            },
        )


class WrittenA2C:
    """The loss of an advantage actor-critic: policy gradient, value error and entropy bonus."""

    def __init__(self, both: WrittenActorCritic, scheduled: Mapping[str, Tensor]) -> None:
        self._both, self._scheduled = both, scheduled

    def __call__(self, batch: Batch) -> Said:
        """Return what the loss of a rollout says, its gradient written."""
        value_coef, entropy_coef = (float(self._scheduled[name]) for name in ("value_coef", "entropy_coef"))
        distribution, values = self._both.forward(batch)
        advantages, distance = batch["advantages"].numpy(), values - batch["returns"].numpy()
        count = len(values)
        policy_loss = -_mean(distribution.log_prob * advantages)
        value_loss, entropy = _mean(distance * distance), _mean(distribution.entropy)
        of_values = distance * np.float32(2 * value_coef / count)
        self._both.backward(distribution, advantages * np.float32(-1 / count), -entropy_coef / count, of_values)
        return Said(
            policy_loss + value_coef * value_loss - entropy_coef * entropy,
            {
                "train/policy_loss": policy_loss,
                "train/value_loss": value_loss,
                "train/entropy": entropy,
            },
        )


class Normalizer(Protocol):
    """Puts observations on the scale that networks read."""

    def __call__(self, observation: Observation) -> Observation:
        """Return observations (B, ...) on it."""
        ...


class WrittenDQN:
    """The loss of deep Q-networks whose outputs are means: Huber's, towards what the target network says of the next action."""

    def __init__(
        self, networks: Mapping[str, WrittenMLP], normalizer: Normalizer, reward_scale: float, *, double: bool
    ) -> None:
        self._q, self._target, self._normalizer = networks["q"], networks["target"], normalizer
        self._scale, self._double = np.float32(reward_scale), double

    def __call__(self, batch: Batch) -> Said:
        """Return what the loss of a batch says, its gradient written."""
        reward, discount = self._scale * batch["reward"].numpy(), batch["discount"].numpy()
        action, count = batch["action"].numpy(), len(reward)
        rows = np.arange(count)

        led_to = self._q.features(self._normalizer(batch["next_observation"]))
        valued = self._target.forward(led_to)
        judged = self._q.forward(led_to) if self._double else valued
        next_values = valued[rows, judged.argmax(-1)]
        targets = reward + discount * next_values

        outputs = self._q.forward(self._q.features(self._normalizer(batch["observation"])))  # last: what follows goes back here
        values = outputs[rows, action]
        distance = values - targets
        errors = np.abs(distance)
        losses = np.where(errors < 1, np.float32(0.5) * distance * distance, errors - np.float32(0.5))
        of_values = np.clip(distance, -1, 1) * np.float32(1 / count)
        if "weight" in batch:
            weight = batch["weight"].numpy()
            losses, of_values = losses * weight, of_values * weight
        gradient = np.zeros_like(outputs)
        gradient[rows, action] = of_values
        self._q.backward(gradient)
        return Said(
            _mean(losses),
            {
                "train/q_mean": _mean(values),
                "train/q_target_mean": _mean(targets),
                "train/q_error": _mean(errors),
            },
            {"priority": errors} if "weight" in batch else {},
        )


def _mean(values: Array) -> float:
    """What `mean` says, at a fraction of what it takes for a few rows."""
    return float(np.add.reduce(values)) / len(values)
