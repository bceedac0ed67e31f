"""REINFORCE (Williams 1992), with a policy and nothing else, for every action space.

One cycle is `collect` (rollout_steps vector steps) and `update` (one gradient step on the episodes that are whole now):

    rollout ─→ episodes that waited + this rollout ─→ whole ones: returns ─→ weights ─→ one gradient step
                                                   └─→ unfinished ones wait for the next rollout

There is no critic, so nothing can be bootstrapped: an episode that a time limit cuts counts with the rewards it had, as in an
evaluation. Tasks without an end need environment.max_episode_steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import gymnasium
import torch
from torch import Tensor, nn

from etude.acting.policy import ActorPolicy
from etude.buffers.base import Batch
from etude.buffers.rollout import RolloutBuffer, length_problems
from etude.components.distributions import check_mask, make_head
from etude.components.networks.spec import POLICY_GAIN, NetworkSpec
from etude.components.returns import episode_returns, in_whole_episodes, reward_to_go
from etude.components.rollout_preparation import Normalizers, episode_ends
from etude.components.whole_episodes import WaitingSteps
from etude.compute.trees import map_tree
from etude.config.algorithm import AlgorithmSettings
from etude.config.constraints import Component, NonNegativeSchedule, PositiveFloat, PositiveInt, PositiveSchedule, UnitInterval
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import Part
from etude.environments.vector import ACTION_MASK
from etude.learning.optimizers import build_optimizer
from etude.learning.update import Stage, Update
from etude.workflows.base import Context, HookResult, Phase, PolicyWorkflow
from etude.workflows.metrics import Metrics


@dataclass(frozen=True)
class ReinforceConfig(AlgorithmSettings):
    """REINFORCE."""

    name: str = "reinforce"
    """The registered name of the algorithm."""
    learning_rate: PositiveSchedule = Schedule.constant(1e-3)
    """Step size. Higher learns faster and breaks sooner; lin_1e-3 lowers it to 0 over the run."""
    rollout_steps: PositiveInt = 256
    """Vector steps between two gradient steps. More episodes in each make steadier gradients and fewer of them."""
    gamma: UnitInterval = 0.99
    """Discount: how much the next step counts. Closer to 1 looks further ahead and is noisier."""
    returns: Literal["mc:rtg", "mc:episode"] = "mc:rtg"
    """What a step is credited with. mc:rtg: the rewards from it on; mc:episode: those of its whole episode, noisier."""
    policy_targets: Literal["returns", "advantages"] = "advantages"
    """What an action's log-probability is weighted by. returns: as they are; advantages: less their running mean."""
    baseline_decay: UnitInterval = 0.9
    """How much of the running mean each rollout keeps. Closer to 1 is steadier and lags behind."""
    entropy_coef: NonNegativeSchedule = Schedule.constant(0.0)
    """Weight of the entropy bonus. Higher explores longer."""
    max_grad_norm: PositiveFloat | None = None
    """Clip the gradient to this norm; null leaves it alone. Depends on the rewards' scale."""
    accumulate: PositiveInt = 1
    """Pieces in which each gradient is computed before its step, for batches too large for memory; the step is the same."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("adamw", {"eps": 1e-5, "weight_decay": 0.0})
    """adam, adamw, rmsprop, sgd or an import path, with its options."""
    init_noise_std: PositiveFloat = 1.0
    """Continuous actions: the standard deviation to begin with, on a scale where the bounds are ±1."""
    fixed_std: bool = False
    """Continuous actions: keep that standard deviation instead of learning it."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from length_problems(config)


class Reinforce(PolicyWorkflow):
    """Makes the actions of good episodes likelier."""

    learns_from = RolloutBuffer
    Config = ReinforceConfig
    settings: ReinforceConfig
    actor: nn.Module
    supports_ranks: ClassVar[bool] = True
    supports_samplers: ClassVar[bool] = True
    of_rank: ClassVar[tuple[str, ...]] = ("reward_normalizer", "waiting")

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """A policy."""
        return {"actor": {"type": "mlp", "hidden_dims": [64, 64], "activation": "tanh"}}

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """The actor describes a distribution."""
        return {"actor": NetworkSpec(make_head(action_space), output_gain=POLICY_GAIN)}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Any action space that has a distribution will do."""
        check_mask(observation_space, make_head(action_space))

    def initialize(self, context: Context) -> None:
        """Bind the actor, and build what surrounds it."""
        super().initialize(context)
        settings = self.settings
        self.head = make_head(context.action_space, init_noise_std=settings.init_noise_std, fixed_std=settings.fixed_std).to(
            context.device
        )
        self.normalizer, self.reward_normalizer = self._normalizers = Normalizers.build(
            context.config.environment, context.observation_space, context.num_envs, settings.gamma, context.device
        )
        self._policy = ActorPolicy(self.normalizer, self.actor, self.head, context.observation_space)
        parameters = [*self.actor.parameters(), *self.head.parameters()]
        self.optimizer = build_optimizer(settings.optimizer, {"actor": (parameters, self.scheduled("learning_rate"))})
        self.waiting = WaitingSteps(context.device)
        self.baseline = torch.zeros((), device=context.device)
        self.batches = torch.zeros((), dtype=torch.int64, device=context.device)
        self._executor = self.executor(self.losses())

    def losses(self) -> Update:
        """One loss. How many steps are in whole episodes differs from one rollout to the next."""
        settings = self.settings
        self.scheduled("entropy_coef")
        stage = Stage("", self.loss, self.optimizer, settings.max_grad_norm, accumulate=settings.accumulate)
        return Update([stage], is_eager=True)

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch: weighted log-probabilities and entropy bonus."""
        mask = batch["observation"].get(ACTION_MASK) if isinstance(batch["observation"], dict) else None
        distribution = self.head(self.actor(batch["observation"]), mask)
        gain, entropy = distribution.log_prob(batch["sample"]) * batch["weights"], distribution.entropy()
        if "share" in batch:
            gain, entropy = gain * batch["share"], entropy * batch["share"]
        policy_loss, entropy = -gain.mean(), entropy.mean()
        loss = policy_loss - self.scheduled("entropy_coef") * entropy
        return loss, {"train/policy_loss": policy_loss, "train/entropy": entropy}

    def update(self, phase: Phase, count: int) -> HookResult:
        """Learn from the episodes that the rollout, once complete, makes whole; no step where it makes none."""
        buffer = self.buffer(phase)
        assert isinstance(buffer, RolloutBuffer)
        if not buffer.ready:
            return HookResult()
        self.set_schedules(phase)
        batch = self._prepare(buffer.columns)
        buffer.clear()
        world, rows = self.context.world, len(batch["returns"])
        everybodys = rows if world.size == 1 else int(world.sum(torch.tensor(rows)))
        if not everybodys:
            return HookResult()
        mean = batch["returns"].mean() if world.size == 1 else world.sum(batch["returns"].sum()) / everybodys
        batch["weights"] = self._weights(batch["returns"], mean)
        self.metrics.add(self.learn(batch if world.size == 1 else _with_share(batch, rows * world.size / everybodys)))
        self.metrics.add({"train/return_mean": mean, "train/baseline": self.baseline}, group="rollout")
        return HookResult(updates=1)

    @torch.no_grad()
    def _prepare(self, columns: Batch) -> Batch:
        """From a raw rollout (T, N, ...) to the rows (B, ...) of the episodes that ended in it."""
        ended, cut = episode_ends(columns)
        observation, rewards = self._normalizers.take_in(columns, ended | cut, world=self.context.world)
        kept = {"observation": observation, "sample": columns["sample"], "reward": rewards, "is_first": columns["is_first"]}
        stretch = self.waiting.before({**kept, "ended": ended})
        joined, held = stretch
        ended = joined["ended"] & held
        cut = torch.zeros_like(ended)
        cut[:-1] = joined["is_first"][1:] & ~joined["ended"][:-1]
        # Nothing flows across an end, a cut, or the rows that only fill up; whoever is left behind by a cut is dropped.
        between = ended | cut | ~held
        compute = reward_to_go if self.settings.returns == "mc:rtg" else episode_returns
        returns = compute(joined["reward"], between, self.settings.gamma)
        whole = in_whole_episodes(ended, cut) & held
        self.waiting.keep(stretch, ended | cut)
        rows = map_tree(lambda part: part[whole], joined["observation"])
        return {"observation": rows, "sample": joined["sample"][whole], "returns": returns[whole]}

    def _weights(self, returns: Tensor, mean: Tensor | None = None) -> Tensor:
        """Return what each action's log-probability is weighted by; the baseline takes a batch's mean in after its use."""
        mean, decay = returns.mean() if mean is None else mean, self.settings.baseline_decay
        self.baseline.copy_(torch.where(self.batches == 0, mean, self.baseline))
        weights = returns - self.baseline if self.settings.policy_targets == "advantages" else returns
        self.baseline.mul_(decay).add_((1 - decay) * mean)
        self.batches += 1
        return weights

    def learn(self, batch: Batch) -> Metrics:
        """Take one gradient step on rows with their weights."""
        return self._executor.learn(batch)


def _with_share(batch: Batch, share: float) -> Batch:
    """Return rows that count by how many of all ranks' rows these are: ranks find episodes of other lengths, or none at all.

    Then there is one row that counts for nothing, so that every rank takes the step.
    """
    if share:
        return {**batch, "share": torch.full_like(batch["returns"], share)}
    return map_tree(lambda part: part.new_zeros(1, *part.shape[1:]), {**batch, "share": batch["returns"]})
