"""PPO that teaches a student: who sees more learns to act, and who has to act in the end learns to do the same.

Lee et al. 2020 and Miki et al. 2022, for robots; the student goes where its own actions lead (Ross et al. 2011).

    teach     collect ─→ update               the teacher's rollout: PPO, and the student does what the teacher did there
    distil    collect_as_student ─→ imitate   the student's rollout: what would the teacher have done?

    loss of the student = |mode of π_student(s) − mode of π_teacher(s)|²

The teacher is the network `actor`, which reads the observation's group of that name (with a height scan, say), and `student`
reads the group `student` (what the robot senses, and its history). What is evaluated, played and exported is the student.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import gymnasium
import torch
from torch import Tensor, nn

from etude.acting.actor import Actor
from etude.acting.policy import ActorPolicy, Policy
from etude.buffers.rollout import RolloutBuffer, flatten, minibatches
from etude.components.distributions import GaussianHead, make_head
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.spec import POLICY_GAIN, NetworkSpec
from etude.config.constraints import Bounds, PositiveInt, PositiveSchedule
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.environments.vector import Observation
from etude.learning.optimizers import build_optimizer
from etude.learning.sources import Minibatches
from etude.learning.update import Batch, Stage, Update
from etude.workflows.base import Context, HookResult, Phase, hook
from etude.workflows.ppo import PPO, PPOConfig
from etude.workflows.ppo_memory import remembers


@dataclass(frozen=True)
class StudentConfig(PPOConfig):
    """PPO with a teacher and a student."""

    name: str = "ppo_student"
    """The registered name of the algorithm."""
    distil_from: Annotated[float, Bounds(low=0, high=1, low_open=True)] = 0.7
    """From which share of the budget on the student acts, and learns from its own steps; until then from the teacher's."""
    student_learning_rate: PositiveSchedule = Schedule.constant(1e-3)
    """Step size of the student."""
    imitation_epochs: PositiveInt = 2
    """Passes of the student over each rollout."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from super().problems(config)
        if remembers(config):
            yield "algorithm.name=ppo_student: learns without networks that remember; show the student a history instead"


class PPOStudent(PPO):
    """A teacher by PPO, and a student that does what the teacher does without seeing what it sees."""

    Config = StudentConfig
    settings: StudentConfig  # type: ignore[assignment] # which has all that PPO's has
    student: nn.Module
    supports_samplers: ClassVar[bool] = False

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """As PPO's, and a student like the actor."""
        networks = super().default_networks()
        return {**networks, "student": dict(networks["actor"])}

    @classmethod
    def default_phases(cls, config: Config) -> Sequence[Mapping[str, Any]]:
        """Teach, then distil."""
        settings = config.algorithm
        count = {"count": settings.rollout_steps}
        rollout = settings.rollout_size(config.environment.num_envs)
        taught = max(1, int(config.training.total_steps * settings.distil_from) // rollout) * rollout
        return [
            {"name": "teach", "hooks": [{"collect": count}, "update"], "duration_steps": taught},
            {"name": "distil", "hooks": [{"collect_as_student": count}, "imitate"]},
        ]

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """As PPO's, and a student that describes what the actor does."""
        student = NetworkSpec(make_head(action_space), output_gain=POLICY_GAIN)
        return {**super().roles(config, observation_space, action_space), "student": student}

    def initialize(self, context: Context) -> None:
        """Bind the student beside PPO's parts."""
        super().initialize(context)
        self._student_policy = ActorPolicy(self.normalizer, self.student, self.head, context.observation_space)
        rate = self.scheduled("student_learning_rate")
        self.student_optimizer = build_optimizer(self.settings.optimizer, {"student": (self.student.parameters(), rate)})
        stage = Stage("student", self.imitation_loss, self.student_optimizer, self.settings.max_grad_norm)
        self._imitation = self.executor(Update([stage]))
        self._student_actor = Actor(self._student_policy, "sample", context.streams["student"])

    def policy(self) -> Policy:
        """Return the student: the teacher stays in the lab."""
        return self._student_policy

    def imitation_loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """How far the student's most likely actions are from the teacher's."""
        with torch.no_grad(), evaluating(mode_dependent(self.actor)):
            wanted = self.head(self.actor(batch["observation"]))
        done = self.head(self.student(batch["observation"]))
        if not isinstance(self.head, GaussianHead):  # choices: the same, by how unlikely what the teacher takes is
            loss = -done.log_prob(wanted.mode()).mean()
            return loss, {}
        away = (done.mode() - wanted.mode()).square().sum(-1).mean()
        return away, {"train/student_error": away.detach().sqrt()}

    def update(self, phase: Phase, count: int) -> HookResult:
        """Learn as PPO does, and let the student learn from the same steps."""
        buffer = self.buffer(phase)
        assert isinstance(buffer, RolloutBuffer)
        if not buffer.ready:
            return HookResult()
        raw = _raw(buffer)
        taught = super().update(phase, count)
        return HookResult(updates=taught.updates + self._imitate(self.normalizer(raw), phase))

    @hook(collects=True, counts_steps=True)
    def collect_as_student(self, phase: Phase, count: int) -> HookResult:
        """Take `count` vector steps as the student acts."""
        collector = self.context.collector
        assert collector is not None, "collecting needs an environment"
        self.set_schedules(phase)
        decisions = collector.collect(self._student_actor, self.buffer(phase), count)
        return HookResult(decisions=decisions, env_steps=decisions * collector.environment.action_repeat)

    @hook
    def imitate(self, phase: Phase, count: int) -> HookResult:
        """Let the student learn from the rollout, once it is complete, and empty it."""
        buffer = self.buffer(phase)
        assert isinstance(buffer, RolloutBuffer)
        if not buffer.ready:
            return HookResult()
        steps = self._imitate(self.normalizer(_raw(buffer)), phase)
        buffer.clear()
        return HookResult(updates=steps)

    def _imitate(self, observation: Observation, phase: Phase) -> int:
        """Pass over observations (B, ...) in minibatches; returns how many steps were taken."""
        settings, num_envs = self.settings, self.context.num_envs
        size = settings.rollout_size(num_envs)
        batches = minibatches(
            size, settings.minibatch_size(num_envs), settings.imitation_epochs, self.context.streams["imitate"]
        )
        order = torch.stack([*batches])
        tables = self._imitation.run(Minibatches({"observation": observation}, order), len(order), self.scheduled_before(phase))
        self.note(tables)
        return len(order)


def _raw(buffer: RolloutBuffer) -> Observation:
    """Return what was seen in a rollout, in rows of their own: the buffer is written over."""
    rows: Observation = flatten({"observation": buffer.columns["observation"]})["observation"]
    return rows
