"""What Dreamer learns in its imagination: an actor and a critic, from the states that the world model dreams.

    state      s0 ──a0──→ s1 ──a1──→ s2 … ──→ sH          s0: a posterior of the replay, never a terminal one
    action     a0         a1                              drawn in s[k], BEFORE the step, and scored there
    reward                r1         r2       rH          what arriving in s[k+1] pays
    continue              c1         c2       cH          how likely it goes on from there
    return     R0         R1                  v(sH)       R[k] = r[k+1] + γ c[k+1] ((1-λ) v(s[k+1]) + λ R[k+1])
    baseline   v(s0)      v(s1)                           advantage = (R[k] - v(s[k])) / scale
    weight     1          γ c1       γ² c1 c2             of step k: how likely it is reached; its own outcome is not in it

States carry no gradients here: the actor climbs by the log-probability of its actions (REINFORCE), whatever their kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from etude.acting.policy import ActResult, Mode, PartsPolicy, State
from etude.components.networks.world_decoder import DETER, STOCH
from etude.components.return_scale import ReturnScale
from etude.components.returns import discounted_lambda_returns
from etude.components.rssm import RSSM, ModelState
from etude.components.world_actions import WorldActions
from etude.components.world_model import PREVIOUS_ACTION, Seen, WorldModel, sensed
from etude.compute.frozen import frozen
from etude.compute.noise import Noise
from etude.compute.regions import region
from etude.environments.vector import Observation


class BehaviourSettings(NamedTuple):
    """How behaviour is learnt."""

    horizon: int
    gamma: float
    td_lambda: float
    entropy_weight: float
    slow_critic_weight: float


class Dream(NamedTuple):
    """Imagined steps: H of N dreams."""

    states: ModelState
    """(H + 1, N, ...)"""
    actions: Tensor
    """(H, N, A)"""


class Judged(NamedTuple):
    """What the heads make of a dream."""

    rewards: Tensor
    """(H, N), of arriving in states 1 to H"""
    discounts: Tensor
    """(H, N), likewise: γ times how likely it goes on"""
    returns: Tensor
    """(H, N), from states 0 to H - 1"""
    weights: Tensor
    """(H, N)"""


class Chooser(nn.Module):
    """An actor with its head: what acts in dreams."""

    def __init__(self, actor: nn.Module, head: WorldActions) -> None:
        super().__init__()
        self.actor, self.head = actor, head

    def choose(self, features: Tensor, noise: Tensor) -> Tensor:
        """Draw an action in each state: (N, F), (N, ...) → (N, A)"""
        return self._choose(features, noise)[0]

    @region
    def _choose(self, features: Tensor, noise: Tensor) -> tuple[Tensor]:
        return (self.head(self.actor(features)).draw(noise),)


class Behaviour(nn.Module):
    """The actor and the critic."""

    def __init__(
        self,
        world: WorldModel,
        actor: nn.Module,
        critic: nn.Module,
        slow_critic: nn.Module,
        scale: ReturnScale,
        settings: BehaviourSettings,
    ) -> None:
        super().__init__()
        self.world, self.actor, self.critic, self.slow_critic = world, actor, critic, slow_critic
        self.scale, self.settings = scale, settings
        self.actions, self.numbers = world.actions, world.numbers
        self.chooser = Chooser(actor, world.actions)

    # ---- imagination --------------------------------------------------------------------------------------------------

    def imagine(self, start: ModelState, noise: Noise, horizon: int | None = None) -> Dream:
        """Dream from states (N, ...), without gradients."""
        count, horizon, head = len(start.deter), horizon or self.settings.horizon, self.actions
        for_actions = getattr(noise, head.noise)("imagined_actions", (horizon, count, head.noise_size))
        for_states = self.world.noise(noise, "imagined_states", (horizon, count))
        with torch.no_grad():
            rssm, chooser = frozen(self.world.rssm), frozen(self.chooser)
            return Dream(*rssm.imagine(chooser.choose, start.detach(), for_actions, for_states))

    @torch.no_grad()
    def judge(self, features: Tensor, values: Tensor) -> Judged:
        """Look at dreamt states (H + 1, N, F) that have these values (H + 1, N)."""
        rewards = self.world.rewards(features[1:])
        discounts = self.settings.gamma * self.world.continuation(features[1:])
        returns = discounted_lambda_returns(rewards, discounts, values[1:], self.settings.td_lambda)
        weights = torch.cat([torch.ones_like(discounts[:1]), discounts[:-1]]).cumprod(0)
        return Judged(rewards, discounts, returns, weights)

    # ---- learning -----------------------------------------------------------------------------------------------------

    def losses(
        self, dream: Dream, state: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor], Tensor]:
        """Return losses by name, metrics, the scale of returns as it becomes, and the first states' returns (N,)."""
        features = dream.states.features
        logits = self.critic(features)
        values = self.numbers.mean(logits.detach())
        seen = self.judge(features, values)
        scale = self.scale.updated(state, seen.returns)
        advantages = (seen.returns - values[:-1]) / self.scale.divisor(scale)
        policy = self.actions(self.actor(features[:-1]))
        entropy = policy.entropy()
        gain = policy.log_prob(dream.actions) * advantages + self.settings.entropy_weight * entropy
        losses = {
            "actor": -(seen.weights * gain).mean(),
            "critic": (seen.weights * self._critic_loss(logits[:-1], features[:-1], seen.returns)).mean(),
        }
        metrics = {
            "train/entropy": entropy.detach().mean(),
            "train/value_mean": values.mean(),
            "train/imagined_reward": seen.rewards.mean(),
            "train/imagined_return": seen.returns.mean(),
            "train/return_range": self.scale.divisor(scale),
        }
        return losses, metrics, scale, seen.returns[0]

    def _critic_loss(self, logits: Tensor, features: Tensor, returns: Tensor) -> Tensor:
        """Towards returns, and towards what the slow critic says: (...)"""
        with torch.no_grad():
            slow = self.numbers.encode(self.numbers.mean(self.slow_critic(features)))
            target = self.numbers.encode(returns) + self.settings.slow_critic_weight * slow
        return self.numbers.cross_entropy(logits, target)

    def replay_value_loss(self, seen: Seen, batch: Mapping[str, Tensor], starts: Tensor, imagined: Tensor) -> Tensor:
        """The critic on real rewards: λ-returns along the windows that lean on imagined ones, with gradients into the states.

        `imagined` are the returns (N,) of the dreams that began in rows `starts` (N,); elsewhere it leans on the critic.
        """
        features = seen.states.features
        logits = self.critic(features)  # (L, B, bins)
        with torch.no_grad():
            worth = self.numbers.mean(logits).flatten().index_copy(0, starts, imagined).view_as(batch["reward"])
            next_values = seen.at_arrivals(worth, self.numbers.mean(self.critic(seen.extra.features)))
            discounts = self.settings.gamma * (1 - batch["terminated"].float())
            traces = self.settings.td_lambda * (~seen.breaks).float()
            returns = discounted_lambda_returns(batch["reward"], discounts, next_values, traces)
        return (self._critic_loss(logits, features.detach(), returns) * seen.known).mean()


class DreamerPolicy(PartsPolicy):
    """Follows what it sees in a model's state, and acts on that.

    The state is what enters a step: the model's, and the action before. Greedy takes the likeliest latents and action, so that
    nothing in it is left to chance.
    """

    def __init__(
        self, encoder: nn.Module, rssm: RSSM, actor: nn.Module, head: WorldActions, *, stores_latents: bool, dtype: torch.dtype
    ) -> None:
        super().__init__(encoder=encoder, rssm=rssm, actor=actor, head=head)
        self._encoder, self._rssm, self._actor, self._head = encoder, rssm, actor, head
        self._stores_latents, self._dtype = stores_latents, dtype

    def initial_state(self, n: int) -> State:
        """Return the state before n episodes."""
        state = self._rssm.initial(n)
        return {DETER: state.deter, STOCH: state.stoch, PREVIOUS_ACTION: state.deter.new_zeros(n, self._head.actions)}

    @torch.no_grad()
    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Return the environment action; extras hold the state that entered the step, as a replay keeps it."""
        rssm, head, count = self._rssm, self._head, len(is_first)
        before, previous = ModelState(state[DETER], state[STOCH]), state[PREVIOUS_ACTION]
        for_state = for_action = None
        if mode != "greedy":
            for_state = _drawn(rssm.latents.noise, (count, rssm.latents.noise_size), generator)
            for_action = _drawn(head.noise, (count, head.noise_size), generator)
        with computing_in(self._dtype, is_first.device):
            now, _ = rssm.step(before, previous, self._encoder(sensed(observation)), is_first, for_state)
            policy = head(self._actor(now.features))
        action = head.to_environment(policy.mode() if for_action is None else policy.draw(for_action))
        after = {DETER: now.deter, STOCH: now.stoch, PREVIOUS_ACTION: head.from_environment(action)}
        return ActResult(action, after, self._extras(before, previous))

    @property
    def capturable(self) -> bool:
        """Always."""
        return True

    def _extras(self, before: ModelState, previous: Tensor) -> dict[str, Tensor]:
        extras = {PREVIOUS_ACTION: previous}
        if self._stores_latents:
            extras |= {DETER: before.deter.to(self._dtype), STOCH: self._rssm.latents.stored(before.stoch)}
        return extras


def _drawn(kind: str, shape: tuple[int, ...], generator: Generator) -> Tensor:
    empty = torch.empty(shape, device=generator.device)
    return empty.uniform_(generator=generator) if kind == "uniform" else empty.normal_(generator=generator)


def compute_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Return the type of matrix products, and of what a replay keeps of h."""
    halved = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.bfloat16 if halved else torch.float32


def computing_in(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[Any]:
    """Have matrix products within computed in a type; parameters and sums stay as they are."""
    return nullcontext() if dtype is torch.float32 else torch.autocast(device.type, dtype)
