"""What Dreamer learns in its imagination: an actor and a critic, from the states that the world model dreams.

    state      s0 ──a0──→ s1 ──a1──→ s2 … ──→ sH          s0: a posterior of the replay, never a terminal one
    action     a0         a1                              drawn in s[k], BEFORE the step, and scored there
    reward                r1         r2       rH          what arriving in s[k+1] pays
    continue              c1         c2       cH          how likely it goes on from there
    return     R0         R1                  v(sH)       R[k] = r[k+1] + γ c[k+1] ((1-λ) v(s[k+1]) + λ R[k+1])
    baseline   v(s0)      v(s1)                           advantage = (R[k] - v(s[k])) / scale
    weight     1          γ c1       γ² c1 c2             of step k: how likely it is reached; its own outcome is not in it

By `reinforce` states carry no gradients, and the actor climbs by the log-probability of its actions, whatever their kind. By
`dynamics` it climbs the returns themselves, through the model that dreams them; what dreams and judges stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from etude.acting.policy import Mode
from etude.components.return_scale import ReturnScale
from etude.components.returns import discounted_lambda_returns
from etude.components.rssm import ModelState
from etude.components.world_actions import ChosenActions, WorldActions
from etude.components.world_model import Seen, WorldModel
from etude.compute.frozen import frozen, held
from etude.compute.noise import Noise
from etude.compute.regions import region
from etude.workflows.dreamer.config import DreamerConfig
from etude.workflows.recurrent_model import ModelPolicy, drawn


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
        self, world: WorldModel, actor: nn.Module, critic: nn.Module, slow_critic: nn.Module, settings: DreamerConfig
    ) -> None:
        super().__init__()
        self.world, self.actor, self.critic, self.slow_critic = world, actor, critic, slow_critic
        self.scale, self.settings = ReturnScale(), settings
        self.actions, self.numbers = world.actions, world.numbers
        self.chooser = Chooser(actor, world.actions)
        by_kind = "reinforce" if isinstance(world.actions, ChosenActions) else "dynamics"
        self.through_model = (by_kind if settings.actor_gradient == "auto" else settings.actor_gradient) == "dynamics"

    # ---- imagination --------------------------------------------------------------------------------------------------

    def imagine(self, start: ModelState, noise: Noise, horizon: int | None = None) -> Dream:
        """Dream from states (N, ...); with gradients of what comes from what is done, if the actor learns by these."""
        count, horizon, head = len(start.deter), horizon or self.settings.horizon, self.actions
        for_actions = getattr(noise, head.noise)("imagined_actions", (horizon, count, head.noise_size))
        for_states = self.world.noise(noise, "imagined_states", (horizon, count))
        rssm, chooser = frozen(self.world.rssm), self.chooser
        with torch.set_grad_enabled(self.through_model and torch.is_grad_enabled()):
            if not torch.is_grad_enabled():
                chooser = frozen(chooser)
            # Gradients reach the actor by what its actions lead to, and not by what it looks at.
            policy = lambda features, noise: chooser.choose(features.detach(), noise)  # noqa: E731 # one line beside its reason
            return Dream(*rssm.imagine(policy, start.detach(), for_actions, for_states))

    def judge(self, features: Tensor, values: Tensor) -> Judged:
        """Look at dreamt states (H + 1, N, F) that have these values (H + 1, N); what judges learns nothing of it."""
        rewards = self.world.rewards(features[1:])
        discounts = self.settings.gamma * self.world.continuation(features[1:])
        returns = discounted_lambda_returns(rewards, discounts, values[1:], self.settings.td_lambda)
        weights = torch.cat([torch.ones_like(discounts[:1]), discounts[:-1]]).detach().cumprod(0)
        return Judged(rewards, discounts, returns, weights)

    # ---- learning -----------------------------------------------------------------------------------------------------

    def losses(
        self, dream: Dream, state: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor], Tensor]:
        """Return losses by name, metrics, the scale of returns as it becomes, and the first states' returns (N,)."""
        features = dream.states.features if self.through_model else dream.states.features.detach()
        still, settings = features.detach(), self.settings
        logits = self.critic(still)
        if self.through_model or settings.bootstrap == "slow_critic":
            judges = self.critic if settings.bootstrap == "critic" else self.slow_critic
            values = self.numbers.mean(held(judges, features))
        else:
            values = self.numbers.mean(logits.detach())
        seen = self.judge(features, values)
        returns, values = seen.returns.detach(), values.detach()
        scale = self.scale.updated(state, self.world.ranks.gather(returns)) if settings.scale_returns else dict(state)
        divisor = self.scale.divisor(scale)  # 1 for ever where nothing moves it
        policy = self.actions(self.actor(still[:-1]))
        entropy = policy.entropy()
        if self.through_model:
            gain = seen.returns / divisor
        else:
            gain = policy.log_prob(dream.actions) * ((returns - values[:-1]) / divisor)
        losses = {
            "actor": -(seen.weights * (gain + settings.entropy_weight * entropy)).mean(),
            "critic": (seen.weights * self._critic_loss(logits[:-1], still[:-1], returns)).mean(),
        }
        metrics = {
            "train/entropy": entropy.detach().mean(),
            "train/value_mean": values.mean(),
            "train/imagined_reward": seen.rewards.detach().mean(),
            "train/imagined_return": returns.mean(),
            "train/return_range": divisor,
        }
        return losses, metrics, scale, returns[0]

    def _critic_loss(self, logits: Tensor, features: Tensor, returns: Tensor) -> Tensor:
        """Towards returns, and towards what the slow critic says: (...)"""
        if not self.settings.slow_critic_weight:
            return self.numbers.loss(logits, returns)
        with torch.no_grad():
            slow = self.numbers.mean(self.slow_critic(features))
        return self.numbers.loss(logits, returns, slow, weights=[self.settings.slow_critic_weight])

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


class DreamerPolicy(ModelPolicy):
    """Acts on a model's state by an actor; greedy takes its likeliest action, so that nothing in it is left to chance."""

    def __init__(self, world: WorldModel, actor: nn.Module, settings: DreamerConfig, dtype: torch.dtype) -> None:
        super().__init__(world, settings, dtype, actor=actor)
        self._actor = actor

    def choose(self, state: ModelState, mode: Mode, generator: Generator) -> Tensor:
        """Return an action for each state (N, ...): (N, A)"""
        policy: Any = self._head(self._actor(state.features))
        return policy.mode() if mode == "greedy" else policy.draw(drawn(self._head, len(state.deter), generator))
