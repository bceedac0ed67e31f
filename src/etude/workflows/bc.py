"""Behaviour cloning: do what was done (Pomerleau 1991; Mandlekar et al. 2021 for mixtures and memory).

    gaussian, mixture   loss = − log π(a | s)                       discrete actions: the same, of a categorical
    deterministic       loss = |π(s) − a|²                          on a scale where the bounds are ±1

A network with memory reads windows of `sequence` steps, from nothing in mind at their beginnings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
from gymnasium import spaces
from torch import Tensor, nn

from etude.acting.policy import ActorPolicy
from etude.components.distributions import ActionHead, BoundedHead, DeterministicHead, check_mask, make_head
from etude.components.mixture_head import MixtureHead
from etude.components.networks.memory import has_memory
from etude.components.networks.spec import POLICY_GAIN, NetworkSpec
from etude.compute.trees import map_tree
from etude.config.constraints import PositiveInt
from etude.config.schema import Config
from etude.datasets.buffer import DatasetBuffer
from etude.environments.vector import ACTION_MASK
from etude.errors import UserError
from etude.learning.optimizers import build_optimizer
from etude.learning.sources import Source
from etude.learning.update import Batch, Out, Stage, Update
from etude.workflows.base import Context, PolicyWorkflow
from etude.workflows.metrics import Metrics
from etude.workflows.offline import LearnsFromData, OfflineConfig, scale_of_data
from etude.workflows.ppo_memory import remembers


@dataclass(frozen=True)
class BCConfig(OfflineConfig):
    """Behaviour cloning."""

    name: str = "bc"
    """The registered name of the algorithm."""
    head: Literal["gaussian", "mixture", "deterministic"] = "gaussian"
    """What continuous actions are taken for. A mixture keeps several ways of doing a thing apart; deterministic learns their
    mean, by squared errors. Discrete actions are always a choice by probabilities."""
    mixtures: PositiveInt = 5
    """Gaussians of a mixture."""
    sequence: PositiveInt = 16
    """Steps in a row that a network with memory learns from."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from super().problems(config)
        if remembers(config) and self.sequence < 2:
            yield f"algorithm.sequence={self.sequence}: a network with memory learns from at least 2 steps in a row"


class BC(PolicyWorkflow, LearnsFromData):
    """Behaviour cloning."""

    Config = BCConfig
    learns_from = DatasetBuffer
    settings: BCConfig
    actor: nn.Module

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Two layers."""
        return {"actor": {"type": "mlp", "hidden_dims": [256, 256], "activation": "relu"}}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes and discrete choices."""
        check_mask(observation_space, _head(action_space, BCConfig()))

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """What is done, given what is seen."""
        head = _head(action_space, config.algorithm)
        return {"actor": NetworkSpec(head, output_gain=POLICY_GAIN, may_remember=True)}

    def initialize(self, context: Context) -> None:
        """Bind the actor, and measure the data."""
        super().initialize(context)
        self.head = _head(context.action_space, self.settings).to(context.device)
        self.normalizer = scale_of_data(context, self.settings.normalize)
        self._policy = ActorPolicy(self.normalizer, self.actor, self.head, context.observation_space, with_log_prob=False)
        self._policy.stochastic = not isinstance(self.head, DeterministicHead)
        rate = self.scheduled("learning_rate")
        self.optimizer = build_optimizer(self.settings.optimizer, {"actor": (self.actor.parameters(), rate)})
        stage = Stage("actor", self.loss, self.optimizer, self.settings.max_grad_norm)
        self._executor = self.executor(Update([stage], is_compilable=not has_memory(self.actor)))

    def loss(self, batch: Batch) -> Out:
        """How unlikely, or how far away, what was done is."""
        action = batch["action"].flatten(0, 1) if has_memory(self.actor) else batch["action"]
        mask = _mask(batch["observation"])
        if mask is not None and has_memory(self.actor):
            mask = mask.flatten(0, 1)
        policy = self.head(self._outputs(batch), mask)
        wanted = self.head.from_environment(action) if isinstance(self.head, BoundedHead) else action
        done = policy.mode()
        if isinstance(self.head, BoundedHead):
            away = (done - wanted).square().sum(-1)
            metrics = {"train/action_error": away.detach().mean().sqrt()}
            loss = away if isinstance(self.head, DeterministicHead) else -policy.log_prob(wanted)
            return Out(loss.mean(), metrics)
        right = (done == wanted).reshape(len(wanted), -1).all(-1).float().mean()
        return Out(-policy.log_prob(wanted.reshape(done.shape)).mean(), {"train/accuracy": right})

    def _outputs(self, batch: Batch) -> Tensor:
        """(B, outputs), or of windows (B · L, outputs)."""
        seen = self.normalizer(batch["observation"])
        if not has_memory(self.actor):
            return self.actor(seen)
        by_time = map_tree(lambda part: part.transpose(0, 1), seen)
        nothing = self.actor.initial_state(len(batch["action"]))  # type: ignore[operator] # has_memory says that it can be called
        outputs, _ = self.actor.unroll(by_time, nothing, batch["is_first"].T)  # type: ignore[operator] # as above
        return outputs.transpose(0, 1).flatten(0, 1)

    def recorded(self, buffer: DatasetBuffer, room: int = 0) -> Source:
        """Return where batches come from: steps, or windows of them."""
        if not has_memory(self.actor):
            return super().recorded(buffer)
        if buffer.size < self.settings.sequence:
            raise UserError(f"algorithm.sequence={self.settings.sequence}: is longer than the dataset's {buffer.size} steps")
        return super().recorded(buffer, self.settings.sequence - 1)

    def gathered(self, buffer: DatasetBuffer, columns: Mapping[str, Any], index: Tensor) -> Batch:
        """Return a batch of steps, or of windows."""
        if has_memory(self.actor):
            return buffer.windows(columns, index, self.settings.sequence)
        return {name: part for name, part in buffer.steps(columns, index).items() if name in ("observation", "action")}

    def learn(self, batch: Batch) -> Metrics:
        """Take one gradient step on a batch."""
        return self._executor.learn(batch)


def _head(space: gymnasium.Space[Any], settings: BCConfig) -> ActionHead:
    if not isinstance(space, spaces.Box):
        return make_head(space)
    if settings.head == "deterministic":
        return DeterministicHead(space)
    return MixtureHead(space, settings.mixtures if settings.head == "mixture" else 1)


def _mask(observation: Any) -> Tensor | None:
    return observation.get(ACTION_MASK) if isinstance(observation, dict) else None
