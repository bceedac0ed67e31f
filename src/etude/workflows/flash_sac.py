"""FlashSAC (2026): soft actor-critic with networks that can't blow up, and critics that say whole distributions.

    rewards      r / max(std of returns, largest |return| / 5), so that returns lie between the ends of the distribution
    actor        every second update; one batch [s ; s'], critics by their running statistics
    temperature  α (H − H*): its gradient falls with α, and so α does not rush past where it belongs
    critic       one batch [s,a ; s',a'], a' ~ π(s'), through critic and target: batch norms see what they are compared with
                 cross-entropy to r + γ (z' − α log π), z' the distribution of the target whose mean is lower
    after a step weights back to length 1 (`etude.components.networks.residual_mlp`)
    exploring    the noise of a decision is held for n steps, P(n) ∝ 1/n²

Targets are SAC's. Without a target network (`target_network: false`) and with means for distributions
(`atoms: 1`) it is CrossQ (Bhatt et al. 2024), which the networks `batch_normed_mlp` are for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor

from etude.buffers.base import Buffer
from etude.buffers.replay import ReplayBuffer
from etude.components.critics import Follow, with_action
from etude.components.distributions import Distribution, SmoothGaussianHead, SquashedGaussianHead
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.residual_mlp import projection
from etude.components.networks.spec import NetworkSpec
from etude.components.return_bound import ReturnBound
from etude.components.value_distributions import CategoricalValue, MeanValue
from etude.compute.noise import Noise
from etude.compute.trees import joined
from etude.config.constraints import Bounds, PositiveFloat, PositiveInt, PositiveSchedule
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.learning.update import Batch, Metrics, Out, Stage, Update
from etude.workflows.base import ActResult, Context, HookResult, Mode, Phase, State
from etude.workflows.sac import SAC, SACConfig, Temperature

FALLING = Schedule(3e-4, 1.5e-4, shape="cosine")


@dataclass(frozen=True)
class FlashSACConfig(SACConfig):
    """FlashSAC."""

    name: str = "flash_sac"
    """The registered name of the algorithm."""
    learning_rate: PositiveSchedule = FALLING
    """Step size. Higher learns faster and breaks sooner; falls to its half along a cosine by default."""
    batch_size: PositiveInt = 512
    """Transitions per gradient step. Batch norms need them not too few."""
    tau: Annotated[float, Bounds(low=0, high=1, low_open=True)] = 0.01
    """How far target networks move towards the trained ones at each update; 1 copies them."""
    initial_temperature: PositiveFloat = 0.01
    """Where a learnt temperature begins."""
    action_std: PositiveFloat = 0.15
    """The entropy to keep, as that of a normal of this deviation for each action, unless target_entropy says it."""
    actor_every: PositiveInt = 2
    """The actor and the temperature learn in every n-th update."""
    atoms: PositiveInt = 101
    """How many returns have a probability each; 1: critics say the mean alone, learnt by its squared error."""
    reach: PositiveFloat = 5.0
    """The distribution goes from minus this to this, in scaled returns."""
    scale_rewards: bool = True
    """Divide rewards by the size of the returns so far."""
    target_network: bool = True
    """Compare critics with slower copies of theirs; without, with themselves."""
    hold_noise: PositiveInt = 16
    """The most steps for which the noise of a decision is held while exploring; 1 draws anew each time."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from super().problems(config)
        if self.batch_size < 2:
            yield f"algorithm.batch_size={self.batch_size}: batches are normalised over their rows, so they need 2 or more"


class FlashSAC(SAC):
    """Soft actor-critic with joint batches, distributions of returns and weights of length 1."""

    Config = FlashSACConfig
    settings: FlashSACConfig  # type: ignore[reportIncompatibleVariableOverride] # which it is, whenever it is
    supports_ranks = False
    supports_samplers = False
    default_num_envs = 1

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Two residual blocks, the critics' twice as wide as the actor's."""
        return {"actor": {"type": "residual_mlp", "width": 128}, "critic": {"type": "residual_mlp", "width": 256}}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes."""
        if not isinstance(action_space, spaces.Box):
            raise UserError(
                f"flash_sac acts in Box spaces, not {type(action_space).__name__}; ppo and sac take discrete actions"
            )
        super().check_spaces(observation_space, action_space)

    @classmethod
    def head_of(cls, space: gymnasium.Space[Any]) -> SquashedGaussianHead:
        """A deviation that goes smoothly to its bounds."""
        assert isinstance(space, spaces.Box)
        return SmoothGaussianHead(space)

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """A critic says the probabilities of its atoms."""
        roles = super().roles(config, observation_space, action_space)
        return {**roles, "critic": replace(roles["critic"], outputs=config.algorithm.atoms)}

    def initialize(self, context: Context) -> None:
        """As SAC, with what scales rewards and what brings weights back."""
        settings: FlashSACConfig = context.config.algorithm
        reach, device = settings.reach, context.device
        self.distribution = (MeanValue() if settings.atoms == 1 else CategoricalValue(settings.atoms, -reach, reach)).to(device)
        self.bound = ReturnBound(context.num_envs, settings.gamma, reach).to(device)
        self._counting: dict[int, Callable[..., None]] = {}
        shares = torch.arange(1, settings.hold_noise + 1, dtype=torch.float64).reciprocal().square()
        self._fixed = {"held": (shares.cumsum(0) / shares.sum())[:-1].float().to(device)}
        super().initialize(context)
        if settings.target_entropy is None:
            each = 0.5 * math.log(2 * math.pi * math.e * settings.action_std**2)
            self.temperature.keep(each * self.head.size / 2)
        self.target_critic.train()  # its batch norms see batches too
        self._switched_actor, self._switched_critic = mode_dependent(self.actor), mode_dependent(self.critic)

    def make_temperature(self) -> Temperature:
        """One whose loss is weighed by itself."""
        return LinearTemperature(self.settings, self.head)

    def losses(self) -> Update:
        """Every second time actor and temperature first, then critics; weights go back to their length after each."""
        clip = self.settings.max_grad_norm
        follows = Follow([self.critic], [self.target_critic], self.settings.tau) if self.settings.target_network else None
        critic, actor = projection(self.critic), projection(self.actor)
        every = self.settings.actor_every
        return Update(
            [
                Stage("actor", self.actor_loss, self.actor_optimizer, clip, every=every, after_step=[actor]),
                Stage("critic", self.critic_loss, self.critic_optimizer, clip, after_step=[critic]),
            ],
            after=follows,
        )

    def critic_loss(self, batch: Batch, noise: Noise) -> Out:
        """The cross-entropy of every critic to the distribution of the more cautious target, summed over critics."""
        count = len(batch["reward"])
        observation, led_to = (self.normalizer(batch[key]) for key in ("observation", "next_observation"))
        with torch.no_grad(), evaluating(self._switched_actor):
            policy = self.head(self.actor(led_to))
        action, log_prob = policy.draw(self.policy_noise(batch, noise)[1])
        both = joined([with_action(observation, batch["sample"]), with_action(led_to, action)])
        outputs = self.critic(both)  # (E, 2B, atoms)
        with torch.no_grad():
            following = (self.target_critic(both) if self.settings.target_network else outputs.detach())[:, count:]
            following = self.lowest(following)
            discount = batch["discount"]
            reward = self.scaled(batch["reward"]) - discount * self.temperature() * log_prob
        return self.compared(outputs[:, :count], following, reward, discount, batch)

    def compared(self, outputs: Tensor, following: Tensor, reward: Tensor, discount: Tensor, batch: Batch) -> Out:
        """Return the loss of critics (E, B, atoms) against reward + discount · following, (B, atoms)."""
        values, of_next = self.distribution.values(outputs.detach()), self.distribution.values(following)
        targets = reward + discount * of_next
        if isinstance(self.distribution, CategoricalValue):
            shares = self.distribution.project(following.softmax(-1), reward, discount)
            losses = -(shares * outputs.log_softmax(-1)).sum(-1)
        else:
            losses = 0.5 * (self.distribution.values(outputs) - targets).square()
        metrics = {
            "train/q_mean": values.mean() * self.bound.divisor,
            "train/q_target_mean": targets.mean() * self.bound.divisor,
            "train/reward_divisor": self.bound.divisor.clone(),
        }
        if "weight" not in batch:
            return Out(losses.mean(1).sum(), metrics)
        wrong = (values - targets).abs().mean(0)
        return Out((losses * batch["weight"]).mean(1).sum(), metrics, per_row={"priority": wrong})

    def actor_loss(self, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        """Climb the critics, keep the entropy."""
        count = len(batch["reward"])
        observation, led_to = (self.normalizer(batch[key]) for key in ("observation", "next_observation"))
        policy = self.head(self.actor(joined([observation, led_to]))[:count])
        action, log_prob = policy.draw(self.policy_noise(batch, noise)[0])
        with evaluating(self._switched_critic):
            value = self.believed(self.critic(with_action(observation, action)))
        loss = (self.temperature().detach() * log_prob - value).mean()
        return self.with_temperature(loss, -log_prob, policy)

    def lowest(self, outputs: Tensor) -> Tensor:
        """(E, B, atoms) → (B, atoms): what that critic says of each row whose mean is lowest."""
        which = self.distribution.values(outputs).argmin(0)
        return outputs.gather(0, which[None, :, None].expand(1, -1, outputs.shape[-1]))[0]

    def believed(self, outputs: Tensor) -> Tensor:
        """(E, B, atoms) → (B,): the lowest mean, or the mean of all."""
        return self.lowest_or_mean(self.distribution.values(outputs))

    def scaled(self, reward: Tensor) -> Tensor:
        """(B,) → (B,)"""
        return self.settings.reward_scale * reward / self.bound.divisor

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """As with every critic, of the mean of what it says."""
        seen = self.normalizer(observation)
        with evaluating(self._switched_critic):
            outputs = self.critic(with_action(seen, self.likeliest(seen)))
        return self.distribution.values(outputs).amin(0) * self.bound.divisor / self.settings.reward_scale

    # ---- acting and collecting --------------------------------------------------------------------------------------------

    def initial_state(self, n: int) -> State:
        """The noise that is held, and for how many more steps."""
        device = self.context.device
        actions = self.head.size // 2
        return {"noise": torch.zeros(n, actions, device=device), "left": torch.zeros(n, dtype=torch.int64, device=device)}

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """As the policy; while exploring with noise that is held for some steps, and as many numbers drawn in each."""
        if mode != "explore":
            return self._policy.act(observation, None, is_first, mode=mode, generator=generator)._replace(state=state)
        with evaluating(self._switched_actor):
            policy = self.head(self.actor(self.normalizer(observation)))
        fresh = torch.empty_like(state["noise"]).normal_(generator=generator)
        chance = torch.empty(len(is_first), 1, device=generator.device).uniform_(generator=generator)
        ends = (state["left"] == 0) | is_first
        noise = torch.where(ends[:, None], fresh, state["noise"])
        steps = (chance >= self._fixed["held"]).sum(1) + 1
        left = torch.where(ends, steps, state["left"]) - 1
        sample = policy.at(noise)
        return ActResult(self.head.to_environment(sample), {"noise": noise, "left": left}, {"sample": sample})

    def act_randomly(self, observation: Observation, state: State, is_first: Tensor, *, generator: Generator) -> ActResult:
        """As SAC: whoever has an `act` of its own says so again."""
        return super().act_randomly(observation, state, is_first, generator=generator)

    @property
    def capturable(self) -> bool:
        """Where the policy's is."""
        return self._policy.capturable

    def collect(self, phase: Phase, count: int) -> HookResult:
        """As every workflow, and take note of how large returns are."""
        buffer = self.buffer(phase)
        before = _written(buffer)
        result = super().collect(phase, count)
        if self.settings.scale_rewards and isinstance(buffer, ReplayBuffer):
            store = buffer.store
            for rows in store.slices(max(before, store.written - store.rows), store.written):
                ended = store.columns["terminated"][rows] | store.columns["truncated"][rows]
                device = self.context.device
                steps = len(ended)  # some thirty small kernels for each: captured where anything is
                if steps not in self._counting:
                    self._counting[steps] = self.accelerated(self.bound.update)
                self._counting[steps](store.columns["reward"][rows].to(device), ended.to(device))
        return result


class LinearTemperature(Temperature):
    """A temperature whose loss is linear in α and not in its logarithm: α (H − H*).

    For Adam that is not the same: while α falls, it remembers larger gradients, and falls at three quarters of the pace.
    """

    def loss(self, entropy: Tensor, distribution: Distribution) -> Tensor:
        """Return what to minimise, given the policy of each row and its entropy."""
        return (self() * (entropy.detach() - self.target(distribution))).mean()


def _written(buffer: Buffer) -> int:
    return buffer.store.written if isinstance(buffer, ReplayBuffer) else 0
