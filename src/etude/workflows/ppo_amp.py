"""PPO with an adversarial motion prior (Peng et al. 2021; Escontrela et al. 2022 for robots).

    discriminator   D(s, s′), of the observation's group `amp`
                    loss = E_motion (D − 1)² + E_policy (D + 1)² + w/2 · E_motion |∇D|²
    style           r = max(0, 1 − (D(s, s′) − 1)² / 4)
    reward          task_coef · r_task + style_coef · r

The motion is that of the environment (`environment.robot.motion`): `s` is what the group shows of each of its frames.
A cycle is PPO's; the discriminator learns from each rollout after the policy has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from etude.buffers.rollout import RolloutBuffer, flatten, minibatches
from etude.components.networks.spec import NetworkSpec
from etude.config.constraints import NonNegativeFloat, PositiveInt, PositiveSchedule
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.errors import UserError
from etude.learning.optimizers import build_optimizer
from etude.learning.sources import Minibatches
from etude.learning.update import Batch, Stage, Update
from etude.workflows.base import Context, HookResult, Phase
from etude.workflows.ppo import PPO, PPOConfig
from etude.workflows.ppo_memory import remembers

GROUP = "amp"


@dataclass(frozen=True)
class AMPConfig(PPOConfig):
    """PPO with an adversarial motion prior."""

    name: str = "ppo_amp"
    """The registered name of the algorithm."""
    style_coef: NonNegativeFloat = 0.02
    """Weight of the style, which is at most 1 a step. Higher keeps nearer to the motion."""
    task_coef: NonNegativeFloat = 1.0
    """Weight of the task's own reward."""
    discriminator_learning_rate: PositiveSchedule = Schedule.constant(3e-4)
    """Step size of the discriminator. Higher tells motions apart before the policy can follow."""
    discriminator_epochs: PositiveInt = 2
    """Its passes over each rollout."""
    gradient_penalty: NonNegativeFloat = 5.0
    """How much it may not change near the motion. Higher learns slower and is steadier."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from super().problems(config)
        if remembers(config):
            yield "algorithm.name=ppo_amp: learns without networks that remember"
        robot = config.environment.robot
        if robot is None or not robot.motion.file:
            yield "algorithm.name=ppo_amp: needs a robot's task with a motion (environment.robot.motion.file)"
        elif GROUP not in robot.observations:
            yield f"algorithm.name=ppo_amp: needs what is to be like the motion, as environment.robot.observations.{GROUP}"


class PPOAMP(PPO):
    """A policy that is rewarded for moving so that a discriminator takes its motion for the reference."""

    Config = AMPConfig
    settings: AMPConfig  # type: ignore[assignment] # which has all that PPO's has
    discriminator: nn.Module
    supports_samplers: ClassVar[bool] = False

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """As PPO's, and a discriminator."""
        network = {"type": "mlp", "hidden_dims": [256, 128], "activation": "relu"}
        return {**super().default_networks(), "discriminator": network}

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """As PPO's, and a discriminator of two moments, side by side."""
        known = isinstance(observation_space, spaces.Dict) and GROUP in observation_space.spaces
        size = observation_space[GROUP].shape[0] if known else 1  # type: ignore[index] # it is a Dict where known
        return {
            **super().roles(config, observation_space, action_space),
            "discriminator": NetworkSpec(1, inputs=2 * size),
        }

    def initialize(self, context: Context) -> None:
        """Bind the discriminator, and ask the environment for the motion."""
        super().initialize(context)
        self._motion = None
        if context.collector is not None:
            self._motion = _pairs(context.collector.environment.base, context.device)
            whole = self._motion.unflatten(1, (2, -1)).flatten(0, 1)
            self._middle, self._spread = whole.mean(0).repeat(2), whole.std(0).clamp(min=0.05).repeat(2)
        rate = self.scheduled("discriminator_learning_rate")
        self.discriminator_optimizer = build_optimizer(
            self.settings.optimizer, {"discriminator": (self.discriminator.parameters(), rate)}
        )
        stage = Stage("discriminator", self.discriminator_loss, self.discriminator_optimizer, self.settings.max_grad_norm)
        # A gradient of a gradient: nothing that is compiled or captured.
        self._telling = self.executor(Update([stage], is_eager=True, is_compilable=False))

    def discriminator_loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """How well it tells the motion from the policy's, with the price of its slope at the motion."""
        real = batch["motion"].detach().requires_grad_()
        of_motion, of_policy = self.discriminator(real), self.discriminator(batch["moved"])
        (slope,) = torch.autograd.grad(of_motion.sum(), real, create_graph=True)
        steep = slope.square().sum(-1).mean()
        told = (of_motion - 1).square().mean() + (of_policy + 1).square().mean()
        loss = told + self.settings.gradient_penalty / 2 * steep
        return loss, {
            "train/discriminator_of_motion": of_motion.detach().mean(),
            "train/discriminator_of_policy": of_policy.detach().mean(),
        }

    @torch.no_grad()
    def style(self, moved: Tensor) -> Tensor:
        """Return the style of pairs of moments on the discriminator's scale, (..., 2 · size) → (...), from 0 to 1."""
        return (1 - (self.discriminator(moved).squeeze(-1) - 1).square() / 4).clamp(min=0)

    def _moved(self, columns: Mapping[str, Any]) -> Tensor:
        """Each step of a rollout as the discriminator sees it, (T, N, 2 · size)."""
        moved = torch.cat([columns["observation"][GROUP], columns["next_observation"][GROUP]], -1)
        return (moved - self._middle) / self._spread

    def _prepare(self, columns: Mapping[str, Any]) -> Batch:
        """As PPO, with the style added to the rewards."""
        style = self.style(self._moved(columns))
        self.metrics.add({"train/style": style.mean()}, group="style")
        settings = self.settings
        return super()._prepare({**columns, "reward": settings.task_coef * columns["reward"] + settings.style_coef * style})

    def update(self, phase: Phase, count: int) -> HookResult:
        """Learn as PPO does, and then tell what was done from the motion."""
        buffer = self.buffer(phase)
        assert isinstance(buffer, RolloutBuffer)
        if not buffer.ready:
            return HookResult()
        moved = flatten({"moved": self._moved(buffer.columns)})["moved"]
        learnt = super().update(phase, count)
        return HookResult(updates=learnt.updates + self._tell_apart(moved, phase))

    def _tell_apart(self, moved: Tensor, phase: Phase) -> int:
        settings, copies, stream = self.settings, self.context.num_envs, self.context.streams["motion"]
        assert self._motion is not None
        batches = minibatches(len(moved), settings.minibatch_size(copies), settings.discriminator_epochs, stream)
        order = torch.stack([*batches])
        chosen = torch.randint(len(self._motion), (len(moved),), generator=stream, device=stream.device).to(moved.device)
        motion = ((self._motion - self._middle) / self._spread)[chosen]
        tables = self._telling.run(
            Minibatches({"moved": moved, "motion": motion}, order), len(order), self.scheduled_before(phase)
        )
        self.note(tables)
        return len(order)


def _pairs(environment: Any, device: torch.device) -> Tensor:
    """Return each frame of the environment's motion beside the next one, (T, 2 · size)."""
    reference = getattr(environment, "reference", None)
    frames = None if reference is None else reference(GROUP)
    if frames is None:
        raise UserError("algorithm.name=ppo_amp: this environment has no motion to be like (environment.robot.motion.file)")
    frames = frames.to(device)
    return torch.cat([frames, frames.roll(-1, 0)], 1) if environment.motion.repeats else torch.cat([frames[:-1], frames[1:]], 1)
