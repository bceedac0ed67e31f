"""Running statistics that put observations and rewards on a common scale."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from etude.components.recipes import Recipe, remember
from etude.compute.world import ALONE, Moments, World
from etude.environments.spaces import finite_range, leaf_spaces
from etude.environments.vector import ACTION_MASK, Observation

CLIP = 10.0


class RunningMoments(nn.Module):
    """Mean and variance of everything seen, merged a batch at a time (Chan et al. 1979)."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, batch: Tensor, world: World = ALONE) -> None:
        """Take in a batch (B, *shape), and those of the other ranks."""
        count, mean, var = world.merged(Moments.of(batch.to(self.mean.dtype)))
        total = self.count + count
        delta = mean - self.mean
        self.var.copy_((self.var * self.count + var * count + delta.square() * self.count * count / total) / total)
        self.mean.add_(delta * count / total)
        self.count.copy_(total)

    @torch.no_grad()
    def merge(self, world: World) -> None:
        """Become the moments of what all ranks have taken in, each by itself until now."""
        if world.size > 1:
            count, mean, var = world.merged(Moments(self.count, self.mean, self.var))
            self.mean.copy_(mean)
            self.var.copy_(var)
            self.count.copy_(torch.as_tensor(count))


class ObservationNormalizer(nn.Module):
    """Normalises the float parts of an observation; discrete parts, images of bytes and action masks pass through.

    rolling: by running mean and variance, clipped at ±10. static: finite bounds to [0, 1], infinite dimensions as they are.
    """

    def __init__(self, space: gymnasium.Space[Any], mode: Literal["off", "rolling", "static"]) -> None:
        super().__init__()
        self.mode = mode
        self._index: dict[str, int] = {}
        parts: list[nn.Module] = []
        for name, part in leaf_spaces(space).items():
            is_float = isinstance(part, spaces.Box) and np.issubdtype(np.dtype(part.dtype), np.floating)
            if mode != "off" and is_float and name != ACTION_MASK:
                assert isinstance(part, spaces.Box)
                self._index[name] = len(parts)
                parts.append(RunningMoments(tuple(part.shape)) if mode == "rolling" else _StaticBounds(part))
        self.parts = nn.ModuleList(parts)
        remember(self, Recipe("observation_normalizer", spaces={"space": space}, values={"mode": mode}))

    def forward(self, observation: Observation) -> Observation:
        """Return the observation on its common scale."""
        if not self._index:
            return observation
        if isinstance(observation, dict):
            return {name: self._normalize(name, value) for name, value in observation.items()}
        return self._normalize("", observation)

    def update(self, observation: Observation, world: World = ALONE) -> None:
        """Take in raw observations (B, ...); nothing happens unless the mode is rolling."""
        for name, index in self._index.items():
            part = self.parts[index]
            if isinstance(part, RunningMoments):
                part.update(observation[name] if isinstance(observation, dict) else observation, world)

    def _normalize(self, name: str, value: Tensor) -> Tensor:
        if name not in self._index:
            return value
        part = self.parts[self._index[name]]
        if isinstance(part, RunningMoments):
            scaled = (value - part.mean.float()) * (part.var.float() + 1e-8).rsqrt()
            return scaled.clamp(-CLIP, CLIP)
        return part(value)


class _StaticBounds(nn.Module):
    low: Tensor
    scale: Tensor

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        finite = finite_range(space) & (space.high > space.low)
        low, high = np.where(finite, space.low, 0.0), np.where(finite, space.high, 1.0)
        scale = 1.0 / (high - low)
        self.register_buffer("low", torch.as_tensor(low, dtype=torch.float32), persistent=False)
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float32), persistent=False)

    def forward(self, value: Tensor) -> Tensor:
        return (value - self.low) * self.scale


class RewardNormalizer(nn.Module):
    """Divides rewards by the running standard deviation of the discounted return, so that returns have variance near 1."""

    running_return: Tensor

    def __init__(self, num_envs: int, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma
        self.moments = RunningMoments()
        self.register_buffer("running_return", torch.zeros(num_envs, dtype=torch.float64))
        remember(self, Recipe("reward_normalizer", values={"num_envs": num_envs, "gamma": gamma}))

    @torch.no_grad()
    def update(self, rewards: Tensor, ended: Tensor, world: World = ALONE) -> None:
        """Take in a rollout's raw rewards (T, N), in order."""
        returns = torch.empty_like(rewards, dtype=self.running_return.dtype)
        for t in range(len(rewards)):
            self.running_return.mul_(self.gamma).add_(rewards[t])
            returns[t] = self.running_return
            self.running_return.mul_(~ended[t])
        self.moments.update(returns.flatten(), world)

    def forward(self, rewards: Tensor) -> Tensor:
        """Return the rewards on their common scale."""
        return (rewards * (self.moments.var.float() + 1e-8).rsqrt()).clamp(-CLIP, CLIP)
