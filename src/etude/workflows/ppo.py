"""Proximal policy optimisation (Schulman et al. 2017), for every action space and on any device.

One cycle is `collect` (rollout_steps vector steps) and `update` (epochs × minibatches gradient steps):

    rollout ─→ normalisers ─→ values, advantages ─→ for each minibatch: ratio, clip, loss, clipped gradient step

Nothing in an update asks the host for a number: metrics stay on the device, a stop on KL skips the remaining steps there,
and the learning rate is a tensor. Networks with memory learn from whole rollouts (ppo_memory).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import gymnasium
import torch
from torch import Tensor, nn

from etude.acting.policy import ActorPolicy
from etude.buffers.rollout import RolloutBuffer, flatten, length_problems, minibatches
from etude.components.distributions import GaussianHead, check_mask, make_head
from etude.components.networks.encoder import ACTION_MASK
from etude.components.networks.head import Head, outputs_of_both
from etude.components.networks.memory import has_memory
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.spec import POLICY_GAIN, NetworkSpec
from etude.components.rollout_preparation import Normalizers, actor_critic_rows, standardize, values_of
from etude.components.symmetry import find_mirror, mirror_error, with_images
from etude.compute.weak_methods import weakly
from etude.config.algorithm import AlgorithmSettings
from etude.config.constraints import (
    Bounds,
    Component,
    NonNegativeFloat,
    NonNegativeSchedule,
    PositiveFloat,
    PositiveInt,
    PositiveSchedule,
    UnitInterval,
)
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import Part
from etude.environments.vector import Observation
from etude.learning.execute import Table
from etude.learning.optimizers import build_optimizer
from etude.learning.sources import Minibatches
from etude.learning.update import Batch, Stage, Update, WrittenLoss
from etude.workflows.base import Context, HookResult, Phase, PolicyWorkflow
from etude.workflows.metrics import Metrics
from etude.workflows.ppo_memory import (
    RolloutMemory,
    as_sequences,
    batch_problems,
    first_outputs,
    outputs_of_sequences,
    remembers,
)
from etude.workflows.written_losses import WrittenActorCritic, WrittenPPO, settings_are_plain, spaces_are_plain

ADAPTIVE_RATE_RANGE = (1e-5, 1e-2)
ADAPTED_FROM = "adapted_from"
STOPS_AT = 1.5
"""How many times target_kl the policy may move before a rollout's remaining steps are skipped."""


@dataclass(frozen=True)
class PPOConfig(AlgorithmSettings):
    """Proximal policy optimisation."""

    name: str = "ppo"
    """The registered name of the algorithm."""
    learning_rate: PositiveSchedule = Schedule.constant(3e-4)
    """Step size. Higher learns faster and breaks sooner; lin_3e-4 lowers it to 0 over the run."""
    critic_learning_rate: PositiveSchedule | None = None
    """Step size of the critic, if it should differ."""
    rollout_steps: PositiveInt = 2048
    """Vector steps per rollout. Longer sees further into an episode and updates less often."""
    batch_size: Annotated[float, Bounds(low=0, high=1, low_open=True)] | PositiveInt = 64
    """Transitions per gradient step; up to 1 it is a fraction of the rollout (1 is all of it). Must divide the rollout. With
    memory: whole rollouts of some of the environments, so a multiple of rollout_steps."""
    epochs: PositiveInt = 10
    """Passes over each rollout. More squeezes more out of it and drifts further from the data."""
    gamma: UnitInterval = 0.99
    """Discount: how much the next step counts. Closer to 1 looks further ahead and is noisier."""
    gae_lambda: UnitInterval = 0.95
    """Advantage horizon: 1 is unbiased and noisy, 0 leans on the critic alone."""
    clip_range: PositiveSchedule = Schedule.constant(0.2)
    """How far the policy's ratio may move from 1 before its gradient stops. Smaller is more cautious."""
    clip_value_loss: PositiveFloat | None = None
    """Keep the new value within this distance of the old one. Off by default; depends on the rewards' scale."""
    value_coef: NonNegativeSchedule = Schedule.constant(0.5)
    """Weight of the value loss."""
    entropy_coef: NonNegativeSchedule = Schedule.constant(0.0)
    """Weight of the entropy bonus. Higher explores longer."""
    normalize_advantages: Literal["rollout", "batch", "off"] = "batch"
    """Scale advantages to mean 0 and deviation 1, over each minibatch or the whole rollout."""
    max_grad_norm: PositiveFloat | None = 0.5
    """Clip the gradient to this norm; null leaves it alone."""
    target_kl: PositiveFloat | None = None
    """Skip the rest of a rollout's steps once the policy has moved 1.5 times this far from it."""
    adaptive_kl: PositiveFloat | None = None
    """Move the learning rate so that each step changes the policy by about this much (replaces its schedule)."""
    accumulate: PositiveInt = 1
    """Pieces in which each gradient is computed before its step, for batches too large for memory; the step is the same."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("adamw", {"eps": 1e-5, "weight_decay": 0.0})
    """adam, adamw, sgd or an import path, with its options."""
    init_noise_std: PositiveFloat = 1.0
    """Continuous actions: the standard deviation to begin with, on a scale where the bounds are ±1."""
    fixed_std: bool = False
    """Continuous actions: keep that standard deviation instead of learning it."""
    symmetry: Literal["off", "augment", "loss"] = "off"
    """Use the mirror image that an environment has (robots): augment learns from every step and its mirror image, loss asks the
    actor to do in the mirror what is the mirror image of what it does."""
    symmetry_coef: NonNegativeFloat = 1.0
    """Weight of that loss."""

    def rollout_size(self, num_envs: int) -> int:
        """Return the transitions of one rollout."""
        return self.rollout_steps * num_envs

    def minibatch_size(self, num_envs: int) -> int:
        """Return the transitions per gradient step, a fraction resolved."""
        if self.batch_size > 1:
            return int(self.batch_size)
        return max(1, int(self.rollout_size(num_envs) * self.batch_size))

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from length_problems(config)
        rollout = self.rollout_size(config.environment.num_envs)
        batch = self.minibatch_size(config.environment.num_envs)
        if batch == 1 and self.normalize_advantages == "batch":
            yield f"algorithm.batch_size={self.batch_size}: advantages can't be normalised over one transition"
        if remembers(config):
            yield from batch_problems(config, batch)
            if self.symmetry != "off":
                yield f"algorithm.symmetry={self.symmetry}: nobody knows how what a network remembers looks in a mirror"
        elif rollout % batch:
            near = max(size for size in range(1, min(batch, rollout) + 1) if rollout % size == 0)
            parts = f"{config.environment.num_envs} environments × {self.rollout_steps} steps = {rollout}"
            yield f"algorithm.batch_size={self.batch_size}: {batch} does not divide the rollout ({parts}); {near} does"


class PPO(PolicyWorkflow):
    """Clipped policy gradient with a learned value function."""

    learns_from = RolloutBuffer
    Config = PPOConfig
    settings: PPOConfig
    actor: nn.Module
    critic: nn.Module
    supports_ranks: ClassVar[bool] = True
    supports_samplers: ClassVar[bool] = True
    of_rank: ClassVar[tuple[str, ...]] = ("reward_normalizer", "_memory")

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Two separate networks, so that the value loss can't disturb the policy."""
        network = {"type": "mlp", "hidden_dims": [64, 64], "activation": "tanh"}
        return {"actor": network, "critic": dict(network)}

    @classmethod
    def gradient_steps(cls, config: Config) -> int:
        """Return rollouts × epochs × minibatches; 0 with memory, which is not compiled."""
        if remembers(config):
            return 0
        settings, num_envs = config.algorithm, config.environment.num_envs
        rollout = settings.rollout_size(num_envs)
        per_rollout = settings.epochs * max(1, rollout // settings.minibatch_size(num_envs))
        return config.training.total_steps // rollout * per_rollout

    @classmethod
    def is_written(cls, config: Config) -> bool:
        """Where networks are plain; a loss of one's own is torch's."""
        own = cls.loss is not PPO.loss or cls._outputs is not PPO._outputs or cls._evaluate is not PPO._evaluate
        return not own and config.algorithm.symmetry == "off" and settings_are_plain(config)

    @classmethod
    def remarks(cls, config: Config) -> list[str]:
        """Say that networks with memory are not compiled, where that was asked for."""
        names = dict.fromkeys(config.network[role].type for role in remembers(config))
        if not names or config.experiment.compile != "on":
            return []
        instead = "captured" if config.experiment.device.startswith("cuda") else "eager"
        why = f"memory ({', '.join(names)}) would be compiled unrolled, {config.algorithm.rollout_steps} steps deep"
        return [f"experiment.compile=on is ignored: {why}; updates are {instead}"]

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """The actor describes a distribution; the critic is one number."""
        actor = NetworkSpec(make_head(action_space), output_gain=POLICY_GAIN, may_remember=True, may_be_head=True)
        return {"actor": actor, "critic": NetworkSpec(1, may_remember=True, may_be_head=True)}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Any action space that has a distribution will do."""
        check_mask(observation_space, make_head(action_space))

    def initialize(self, context: Context) -> None:
        """Bind actor and critic, and build what surrounds them."""
        super().initialize(context)
        settings = self.settings
        head = make_head(context.action_space, init_noise_std=settings.init_noise_std, fixed_std=settings.fixed_std)
        self.head = head.to(context.device)
        environment, device = context.config.environment, context.device
        normalizers = Normalizers.build(environment, context.observation_space, context.num_envs, settings.gamma, device)
        self.normalizer, self.reward_normalizer = self._normalizers = normalizers
        trained_in = None if context.collector is None else context.collector.environment
        self._mirror = find_mirror(trained_in, settings.symmetry, environment.id, device)
        self._policy = ActorPolicy(self.normalizer, self.actor, self.head, context.observation_space)
        rate = self.scheduled("learning_rate")
        critic_rate = self.scheduled("critic_learning_rate") if settings.critic_learning_rate is not None else rate
        actor_parameters = [*self.actor.parameters(), *self.head.parameters()]
        groups = {"actor": (actor_parameters, rate), "critic": (self.critic.parameters(), critic_rate)}
        self.optimizer = build_optimizer(settings.optimizer, groups)
        self._stopped = torch.zeros((), device=context.device)
        roles = {"actor": self.actor, "critic": self.critic}
        self._memory = None
        if any(map(has_memory, roles.values())):
            self._memory = RolloutMemory(roles, context.num_envs, self.accelerated)
        self._preparing: dict[str, Callable[[], Batch]] = {}
        self._executor = self.executor(self.losses())

    def losses(self) -> Update:
        """One loss of actor and critic together."""
        settings = self.settings
        for name in ("clip_range", "value_coef", "entropy_coef"):
            self.scheduled(name)
        plain = self.is_written(self.context.config) and spaces_are_plain(self.head, self.context.observation_space)
        roles = {"actor": self.actor, "critic": self.critic}
        stage = Stage(
            "",
            self.loss,
            self.optimizer,
            settings.max_grad_norm,
            accumulate=settings.accumulate,
            prepare=self._scale_advantages if settings.normalize_advantages == "batch" else None,
            decide=self._note_divergence if settings.target_kl or settings.adaptive_kl else None,
            written=WrittenLoss(roles, self._written_loss, tuple(self.head.parameters())) if plain else None,
        )
        stops, memory = self._stopped if settings.target_kl is not None else None, self._memory
        # A whole rollout unrolled, step by step, takes a compiler minutes; and torch's does not take its GRU at all.
        is_eager, is_compilable = memory is not None and not memory.is_capturable, memory is None
        return Update([stage], skip=stops, skip_lasts=True, is_eager=is_eager, is_compilable=is_compilable)

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a minibatch: clipped surrogate, value error and entropy bonus."""
        settings, clip, mirror = self.settings, self.scheduled("clip_range"), self._mirror
        count = len(batch["log_prob"])
        if mirror is not None and settings.symmetry == "augment":
            batch = with_images(batch, mirror)
        mask = batch["observation"].get(ACTION_MASK) if isinstance(batch["observation"], dict) else None
        outputs, values = self._outputs(batch)
        distribution = self.head(outputs, mask)
        advantages = batch["advantages"]

        log_ratio = distribution.log_prob(batch["sample"]) - batch["log_prob"]
        ratio = log_ratio.exp()
        policy_loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()

        errors = (values - batch["returns"]).square()
        if settings.clip_value_loss is not None:
            near = batch["values"] + (values - batch["values"]).clamp(-settings.clip_value_loss, settings.clip_value_loss)
            errors = torch.maximum(errors, (near - batch["returns"]).square())
        value_loss = errors.mean()
        entropy = distribution.entropy().mean()
        loss = policy_loss + self.scheduled("value_coef") * value_loss - self.scheduled("entropy_coef") * entropy
        # KL(old‖new) ≈ E[(r-1) - log r]: unbiased and never negative (Schulman, "Approximating KL divergence"). Mirror images
        # were not drawn from the old policy and say nothing about it.
        ratio, log_ratio = ratio[:count], log_ratio[:count]
        kl = ((ratio - 1) - log_ratio).detach().mean()
        clipped = ((ratio - 1).detach().abs() > clip).float().mean()
        more = {}
        if mirror is not None and settings.symmetry == "loss":
            image = {"observation": mirror.observe(batch["observation"])}
            in_mirror = self.head(self._evaluate(self.actor, image, "actor")).mode()
            error = more["train/symmetry_loss"] = mirror_error(distribution.mode(), in_mirror, mirror)
            loss = loss + settings.symmetry_coef * error
        return loss, {
            **more,
            "train/policy_loss": policy_loss,
            "train/value_loss": value_loss,
            "train/entropy": entropy,
            "train/approx_kl": kl,
            "train/clip_fraction": clipped,
        }

    def _written_loss(self, networks: Mapping[str, Any], gradients: Mapping[Tensor, Any]) -> WrittenPPO:
        both = WrittenActorCritic(networks, self.head, gradients)
        return WrittenPPO(both, self._hyper, self.settings.clip_value_loss)

    def _outputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return what actor and critic say; where the critic is a head on the actor, what they share is computed once."""
        if isinstance(self.critic, Head):
            outputs, values = outputs_of_both(self.actor, self.critic, batch["observation"])
        else:
            outputs, values = self._evaluate(self.actor, batch, "actor"), self._evaluate(self.critic, batch, "critic")
        return outputs, values.squeeze(-1)

    def _evaluate(self, network: nn.Module, batch: Batch, role: str) -> Tensor:
        return network(batch["observation"]) if self._memory is None else outputs_of_sequences(network, batch, role)

    def _scale_advantages(self, batch: Batch) -> Batch:
        return {**batch, "advantages": standardize(batch["advantages"], self.context.world)}

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """Return the critic's value of raw observations (N, ...); one that remembers sees them as the first of an episode."""
        seen = self.normalizer(observation)
        with evaluating(mode_dependent(self.critic)):
            return (first_outputs(self.critic, seen) if has_memory(self.critic) else self.critic(seen)).squeeze(-1)

    def collect(self, phase: Phase, count: int) -> HookResult:
        """Take `count` vector steps into the phase's buffer, noting what the actor remembers when a rollout begins."""
        collector = self.context.collector
        if self._memory is not None and collector is not None and self.buffer(phase).size == 0:
            self._memory.begin(collector.actor_state)
        return super().collect(phase, count)

    def update(self, phase: Phase, count: int) -> HookResult:
        """Learn from the rollout, once it is complete, and empty it."""
        buffer = self.buffer(phase)
        assert isinstance(buffer, RolloutBuffer)
        if not buffer.ready:
            return HookResult()
        size, batch_size = buffer.size, self.settings.minibatch_size(self.context.num_envs)
        batch = self._prepared(buffer)
        if self._memory is not None:  # a row is an environment's whole rollout
            size, batch_size = size // buffer.steps, batch_size // buffer.steps
        self._stopped.zero_()
        order = torch.stack([*minibatches(size, batch_size, self.settings.epochs, self.context.streams["minibatch"])])
        tables = self._executor.run(Minibatches(batch, order), len(order), self.scheduled_before(phase))
        self.note(tables)
        self.metrics.add(self._rollout_metrics(batch, tables[""]), group="rollout")
        if self._memory is not None:
            self._memory.go_on()
        buffer.clear()
        return HookResult(updates=len(order))

    def _prepared(self, buffer: RolloutBuffer) -> Batch:
        """Return the rows of a rollout, made by a function of a buffer's memory, which stays where it is."""
        if self._memory is not None:
            return self._prepare(buffer.columns)
        if buffer.name not in self._preparing:
            self._preparing[buffer.name] = self.accelerated(partial(weakly(self, self._prepare), buffer.columns))
        return {**self._preparing[buffer.name]()}  # another batch to whoever keeps the last one

    def _prepare(self, columns: Mapping[str, Any]) -> Batch:
        """From a raw rollout (T, N, ...) to rows with values and advantages: flat (N·T, ...), or with memory (N, T, ...)."""
        settings, value, world = self.settings, values_of(self.critic), self.context.world
        if self._memory is not None and has_memory(self.critic):
            value = self._memory.values
        rows = actor_critic_rows(columns, value, self._normalizers, settings.gamma, settings.gae_lambda, self._mirror, world)
        if settings.normalize_advantages == "rollout":
            rows["advantages"] = standardize(rows["advantages"], world)
        if self._memory is None:
            return rows
        rows |= flatten({"is_first": columns["is_first"]})
        return {**as_sequences(rows, self.context.num_envs), **self._memory.rows()}

    def learn(self, batch: Batch) -> Metrics:
        """Take one gradient step on a minibatch."""
        return self._executor.learn(batch)

    def _note_divergence(self, metrics: Mapping[str, Tensor]) -> None:
        """Stop, or change the learning rate, by how far the policy has moved; both on the device."""
        kl = metrics["train/approx_kl"]
        if self.settings.target_kl is not None:
            self._stopped.copy_(torch.maximum(self._stopped, (kl > STOPS_AT * self.settings.target_kl).float()))
        if self.settings.adaptive_kl is not None:
            rate, desired = self.scheduled("learning_rate"), self.settings.adaptive_kl
            factor = torch.where(kl > 2 * desired, 1 / 1.5, torch.where(kl < desired / 2, 1.5, 1.0))
            rate.copy_((rate * factor).clamp(*ADAPTIVE_RATE_RANGE))

    def set_schedules(self, phase: Phase) -> None:
        """As every workflow, but a learning rate that adapts keeps what it adapted to."""
        adapted = self.scheduled("learning_rate").clone()
        super().set_schedules(phase)
        if self.settings.adaptive_kl is not None:
            self.scheduled("learning_rate").copy_(adapted)

    def state_dict(self) -> dict[str, Any]:
        """As every workflow's, and the setting that a rate which adapts began from."""
        return {**super().state_dict(), ADAPTED_FROM: self._schedule("learning_rate").to_plain()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore everything; a rate that adapts goes on as it was, or begins anew where its setting has changed since.

        Kept in the state and not told by whoever resumes: a resume that is killed before it saves is as if it had never been.
        """
        super().load_state_dict(state)
        began = self._schedule("learning_rate")
        if self.settings.adaptive_kl is not None and state.get(ADAPTED_FROM, began.to_plain()) != began.to_plain():
            self.scheduled("learning_rate").fill_(began.start)

    def change_settings(self, config: Config) -> None:
        """As every workflow, but a rate that adapts begins anew where its setting has changed."""
        before = self._schedule("learning_rate")
        super().change_settings(config)
        if self.settings.adaptive_kl is not None and self._schedule("learning_rate") != before:
            self.scheduled("learning_rate").fill_(self._schedule("learning_rate").start)

    def _taken(self, steps: Table) -> Tensor:
        """Return how many of a rollout's steps changed the networks: none from the one on that was too far."""
        kl, *rest = (
            steps.values[:, steps.keys.index(key)] for key in ("train/approx_kl", "train/skipped") if key in steps.keys
        )
        assert self.settings.target_kl is not None
        taken = (kl > STOPS_AT * self.settings.target_kl).cumsum(0) == 0
        for skipped in rest:
            taken = taken & (skipped == 0)
        return taken.sum().float()

    @torch.no_grad()
    def _rollout_metrics(self, batch: Batch, steps: Table) -> Metrics:
        unexplained = (batch["returns"] - batch["values"]).var()
        metrics: dict[str, Tensor] = {
            "train/explained_variance": 1 - unexplained / (batch["returns"].var() + 1e-8),
            "train/value_mean": batch["values"].mean(),
        }
        if self.settings.target_kl is not None:
            metrics["train/kl_stop_triggered"] = self._stopped
            metrics["train/steps_taken"] = self._taken(steps)
        if isinstance(self.head, GaussianHead):
            metrics["train/action_std"] = self.head.log_std.exp().mean()
        return metrics
