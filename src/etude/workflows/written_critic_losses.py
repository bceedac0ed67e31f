"""Losses of algorithms with critics of actions in NumPy, with their gradients written out: see `etude.learning.written`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.components.distributions import LOG_STD_RANGE
from etude.components.networks.written_mlp import Array, WrittenMLP
from etude.components.written_critics import WrittenCritics
from etude.compute.noise import Noise
from etude.config.schema import Config
from etude.environments.vector import Observation
from etude.learning.update import Batch, Said
from etude.workflows.written_losses import Normalizer, settings_are_plain

_HALF_LOG_2PI = np.float32(0.5 * math.log(2 * math.pi))
_LOG_2 = np.float32(math.log(2))


def critics_are_plain(config: Config) -> bool:
    """Whether a config's networks and optimiser are plain, and its critics several: these are one batched product a layer."""
    return settings_are_plain(config) and config.algorithm.critics > 1


class WrittenGaussian:
    """The squashed Gaussians of outputs (B, 2 D): actions for given noise, and back."""

    def __init__(self, outputs: Array, noise: Array) -> None:
        mean, unbounded = np.split(outputs, 2, axis=1)
        log_std = np.clip(unbounded, *LOG_STD_RANGE)
        self._free = (unbounded >= LOG_STD_RANGE[0]) & (unbounded <= LOG_STD_RANGE[1])
        self._spread = np.exp(log_std) * noise
        before = mean + self._spread
        self.action = np.tanh(before)
        # log(1 - tanh²x) = 2 (log 2 - x - softplus(-2x))
        slope = 2 * (_LOG_2 - before - np.logaddexp(np.float32(0), -2 * before))
        self.log_prob: Array = (-0.5 * noise * noise - log_std - slope).sum(1) - _HALF_LOG_2PI * noise.shape[1]

    def pull(self, of_action: Array, of_log_prob: Array) -> Array:
        """Return the gradient of the outputs, from those of actions (B, D) and log-probabilities (B,)."""
        of_log_prob = of_log_prob[:, None]
        of_before = of_action * (1 - self.action * self.action) + of_log_prob * (2 * self.action)
        of_log_std = (of_before * self._spread - of_log_prob) * self._free
        return np.concatenate([of_before, of_log_std], 1)


class _Judging:
    """What the losses of critics have in common: squared errors to targets, the mean over rows and the sum over critics."""

    def __init__(self, networks: Mapping[str, Any], normalizer: Normalizer, reward_scale: float, scale: float) -> None:
        self._critics: WrittenCritics = networks["critic"]
        self._target: WrittenCritics = networks["target"]
        self._normalizer, self._reward_scale, self._scale = normalizer, np.float32(reward_scale), scale

    def judge(self, batch: Batch, next_value: Array, *, of_each: bool = False) -> Said:
        """Return what the loss says, its gradient written; `of_each` are critics that value each of a few actions."""
        targets = self._reward_scale * batch["reward"].numpy() + batch["discount"].numpy() * next_value
        seen, sample = self._normalizer(batch["observation"]), batch["sample"]
        outputs = self._critics.forward(self._critics.features(seen, None if of_each else sample))
        place = (slice(None), np.arange(len(targets)), sample.numpy() if of_each else 0)
        values = outputs[place]
        distance = values - targets
        errors, of_values = distance * distance, distance * np.float32(2 * self._scale / len(targets))
        per_row = {}
        if "weight" in batch:
            weight = batch["weight"].numpy()
            errors, of_values, per_row = errors * weight, of_values * weight, {"priority": np.abs(distance).mean(0)}
        gradient = np.zeros_like(outputs)
        gradient[place] = of_values
        self._critics.backward(gradient)
        metrics = {"train/q_mean": float(values.mean()), "train/q_target_mean": float(targets.mean())}
        return Said(self._scale * float(errors.mean(1).sum()), metrics, per_row)

    def next_value(self, observation: Observation, action: Array) -> Array:
        """Return the lowest target's value of actions at the next observations, (B,)."""
        return self._target.forward(self._target.features(observation, torch.from_numpy(action)))[..., 0].min(0)


class WrittenSACCritics(_Judging):
    """The loss of soft actor-critic's critics."""

    def __init__(
        self,
        networks: Mapping[str, Any],
        normalizer: Normalizer,
        reward_scale: float,
        temperature: WrittenTemperature,
    ) -> None:
        super().__init__(networks, normalizer, reward_scale, 0.5)
        self._actor: WrittenMLP = networks["actor"]
        self._temperature = temperature

    def __call__(self, batch: Batch, noise: Noise) -> Said:
        """Return what the loss of a batch says, its gradient written."""
        led_to = self._normalizer(batch["next_observation"])
        outputs = self._actor.forward(self._actor.features(led_to))
        policy = WrittenGaussian(outputs, _noise_of_both(outputs, noise)[1])
        alpha = np.float32(self._temperature())
        return self.judge(batch, self.next_value(led_to, policy.action) - alpha * policy.log_prob)


class WrittenTemperature:
    """The weight of the entropy, and the gradient of its logarithm where it is learnt."""

    def __init__(self, log_alpha: Tensor, gradient: Array | None, target: float) -> None:
        self._log_alpha, self._gradient, self._target = log_alpha, gradient, target

    def __call__(self) -> float:
        """Return α."""
        return math.exp(float(self._log_alpha))

    def learn(self, loss: float, entropy: float) -> Said:
        """Return what the actor's loss says together with its own, its gradient written."""
        metrics = {"train/entropy": entropy, "train/alpha": self()}
        if self._gradient is None:
            return Said(loss, metrics)
        self._gradient[...] = entropy - self._target
        own = float(self._log_alpha) * (entropy - self._target)
        return Said(loss + own, {**metrics, "train/temperature_loss": own})


class WrittenSACActor:
    """The loss of soft actor-critic's actor, and of its temperature where that is learnt."""

    def __init__(
        self,
        networks: Mapping[str, Any],
        normalizer: Normalizer,
        temperature: WrittenTemperature,
        reduction: str,
    ) -> None:
        self._actor: WrittenMLP = networks["actor"]
        self._critics: WrittenCritics = networks["critic"]
        self._normalizer, self._temperature, self._takes_lowest = normalizer, temperature, reduction == "min"

    def __call__(self, batch: Batch, noise: Noise) -> Said:
        """Return what the loss of a batch says, its gradient written."""
        seen = self._normalizer(batch["observation"])
        outputs = self._actor.forward(self._actor.features(seen))
        policy = WrittenGaussian(outputs, _noise_of_both(outputs, noise)[0])
        values = self._critics.forward(self._critics.features(seen, torch.from_numpy(policy.action)))
        count, alpha = len(outputs), self._temperature()
        if self._takes_lowest:
            lowest = values.min(0)
            of_values = (values == lowest).astype(np.float32)
            of_values *= np.float32(-1 / count) / of_values.sum(0)
        else:
            lowest, of_values = values.mean(0), np.full_like(values, -1 / (count * len(values)))
        of_action = self._critics.of_inputs(of_values)[:, self._critics.of_action]
        self._actor.backward(policy.pull(of_action, np.full(count, alpha / count, np.float32)))
        entropy = -float(policy.log_prob.mean())
        return self._temperature.learn(-alpha * entropy - float(lowest.mean()), entropy)


class _Choices:
    """The distributions over a few actions of logits (B, A)."""

    def __init__(self, logits: Array) -> None:
        shifted = logits - logits.max(1, keepdims=True)
        self.probs = np.exp(shifted)
        total = self.probs.sum(1, keepdims=True)
        self.probs /= total
        self.log_probs = shifted - np.log(total)
        self.entropy = -(self.probs * self.log_probs).sum(1)

    def mean(self, values: Array) -> Array:
        """(B, A) → (B,)"""
        return (self.probs * values).sum(1)


class WrittenDiscreteSACCritics(_Judging):
    """The loss of critics that value each action: what follows is expected, and nothing sampled."""

    def __init__(
        self, networks: Mapping[str, Any], normalizer: Normalizer, reward_scale: float, temperature: WrittenTemperature
    ) -> None:
        super().__init__(networks, normalizer, reward_scale, 0.5)
        self._actor: WrittenMLP = networks["actor"]
        self._temperature = temperature

    def __call__(self, batch: Batch) -> Said:
        """Return what the loss of a batch says, its gradient written."""
        led_to = self._normalizer(batch["next_observation"])
        policy = _Choices(self._actor.forward(self._actor.features(led_to)))
        lowest = self._target.forward(self._target.features(led_to)).min(0)
        next_value = policy.mean(lowest) + np.float32(self._temperature()) * policy.entropy
        return self.judge(batch, next_value, of_each=True)


class WrittenDiscreteSACActor:
    """The loss of an actor that chooses: what it expects of the critics, and its entropy."""

    def __init__(
        self, networks: Mapping[str, Any], normalizer: Normalizer, temperature: WrittenTemperature, reduction: str
    ) -> None:
        self._actor: WrittenMLP = networks["actor"]
        self._critics: WrittenCritics = networks["critic"]
        self._normalizer, self._temperature, self._takes_lowest = normalizer, temperature, reduction == "min"

    def __call__(self, batch: Batch) -> Said:
        """Return what the loss of a batch says, its gradient written."""
        seen = self._normalizer(batch["observation"])
        policy = _Choices(self._actor.forward(self._actor.features(seen)))
        outputs = self._critics.forward(self._critics.features(seen))
        values, alpha = outputs.min(0) if self._takes_lowest else outputs.mean(0), np.float32(self._temperature())
        expected = policy.mean(values)
        # of p·(q - α log p): p (q - E q) - α p (log p + H)
        gain = policy.probs * (values - expected[:, None] - alpha * (policy.log_probs + policy.entropy[:, None]))
        self._actor.backward(gain * np.float32(-1 / len(gain)))
        entropy = float(policy.entropy.mean())
        return self._temperature.learn(-float(expected.mean()) - float(alpha) * entropy, entropy)


class WrittenTD3Critics(_Judging):
    """The loss of twin delayed critics."""

    def __init__(
        self,
        networks: Mapping[str, Any],
        normalizer: Normalizer,
        reward_scale: float,
        target_noise: float,
        target_noise_clip: float,
    ) -> None:
        super().__init__(networks, normalizer, reward_scale, 1.0)
        self._actor: WrittenMLP = networks["actor"]
        self._noise, self._clip = np.float32(target_noise), np.float32(target_noise_clip)

    def __call__(self, batch: Batch, noise: Noise) -> Said:
        """Return what the loss of a batch says, its gradient written."""
        led_to = self._normalizer(batch["next_observation"])
        outputs = self._actor.forward(self._actor.features(led_to))
        drawn = noise.normal("target", outputs.shape).numpy()
        smoothing = np.clip(self._noise * drawn, -self._clip, self._clip)
        action = np.clip(np.tanh(outputs) + smoothing, np.float32(-1), np.float32(1))
        return self.judge(batch, self.next_value(led_to, action))


class WrittenTD3Actor:
    """The loss of the deterministic actor: it climbs the first critic."""

    def __init__(self, networks: Mapping[str, Any], normalizer: Normalizer) -> None:
        self._actor: WrittenMLP = networks["actor"]
        self._critics: WrittenCritics = networks["critic"]
        self._normalizer = normalizer

    def __call__(self, batch: Batch) -> Said:
        """Return what the loss of a batch says, its gradient written."""
        seen = self._normalizer(batch["observation"])
        action = np.tanh(self._actor.forward(self._actor.features(seen)))
        values = self._critics.forward(self._critics.features(seen, torch.from_numpy(action)))
        of_values = np.zeros_like(values)
        of_values[0] = -1 / len(action)
        of_action = self._critics.of_inputs(of_values)[:, self._critics.of_action]
        self._actor.backward(of_action * (1 - action * action))
        return Said(-float(values[0].mean()), {"train/action_abs_mean": float(np.abs(action).mean())})


def _noise_of_both(outputs: Array, noise: Noise) -> Array:
    """Return the noise of the actions at a batch's observations, and of those at the next ones: (2, B, D)."""
    return noise.normal("policy", (2, len(outputs), outputs.shape[1] // 2)).numpy()
