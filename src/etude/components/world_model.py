"""A world model: what it makes of windows of experience, and what it learns from them.

A replay holds transitions, and a window may go on across episodes. The observation in which an episode ends stands nowhere in
the window but as `next_observation` of its last step; the row after begins another episode:

    row t            0          1          2 ■        3          4            ■ the episode ends
    observation      o0         o1         o2         p0         p1
    action           a0         a1         a2         b0         b1
    next_observation o1         o2         o3         p1         p2
    reward           r0         r1         r2         ...
                     │          │          │          │ is_first: h, z and the action before are zeros
    state            s0 ──a0──→ s1 ──a1──→ s2         u0 ──b0──→ u1           posteriors at `observation`: the scan
    arrival          s1         s2         s3         u1         u2           posteriors at `next_observation`
                                           └─ an extra step        └─ and here: beyond the window

Reward and continuation of row t belong to its arrival. That is the next state of the scan, but at breaks: where an episode ends
and at the end of the window. There one more step is taken, for all breaks at once. What is seen there is reconstructed and
predicted like any other observation: nothing else teaches the prior what an end looks like.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from etude.components.latents import balanced_kl
from etude.components.networks.groups import ACTOR
from etude.components.networks.world_decoder import DETER, STOCH, reconstruction_error
from etude.components.networks.world_encoder import is_picture, parts_of
from etude.components.rssm import RSSM, ModelState
from etude.components.two_hot import Squared, TwoHot
from etude.components.world_actions import WorldActions
from etude.compute.frozen import held
from etude.compute.noise import Noise
from etude.compute.regions import region
from etude.compute.trees import map_tree
from etude.compute.world import ALONE, World
from etude.environments.vector import Observation

PREVIOUS_ACTION = "previous_action"
LATENTS = (DETER, STOCH)
"""The columns of a replay that hold the state which enters a step."""
ROWS_PER_BREAK = {"vectors": 2, "pictures": 8}
"""At most one row in so many is looked at as a break: encoding and decoding what every row led to would double the cost."""


class Parts(NamedTuple):
    """The networks of a world model, and what its state, actions and numbers are."""

    encoder: nn.Module
    rssm: RSSM
    decoder: nn.Module
    reward: nn.Module
    continues: nn.Module
    actions: WorldActions
    numbers: TwoHot | Squared
    space: gymnasium.Space[Any]
    """Of the observations that it reads."""


class ModelSettings(NamedTuple):
    """How a world model learns."""

    free_nats: float
    of_batch: bool
    """Whether so much divergence is free of the mean of a batch, as in the first two Dreamers, and not of every step."""
    stores_latents: bool
    ranks: World = ALONE
    """Whose batches count together."""


class Followed(NamedTuple):
    """Windows as the recurrence follows them, L rows of B, and the rows that lead out of it."""

    states: ModelState
    """(L, B, ...)"""
    outputs: Tensor
    """What describes the posteriors. (L, B, outputs)"""
    breaks: Tensor
    """Whether the next state of the scan is not where the row led. (L, B) bool"""
    places: Tensor
    """Rows t · B + b for which an extra step is taken. (K,)"""
    counts: Tensor
    """1 where such a row is a break, 0 where there were fewer than K. (K,)"""
    led_to: Observation
    """What was seen there. (K, ...)"""
    tokens: Tensor
    """(K, hidden)"""
    noise: Tensor
    """(K, ...)"""


class Seen(NamedTuple):
    """The same with where each row led."""

    states: ModelState
    outputs: Tensor
    breaks: Tensor
    places: Tensor
    counts: Tensor
    extra: ModelState
    """(K, ...)"""
    extra_outputs: Tensor
    extra_observation: Observation
    """(K, ...)"""
    known: Tensor
    """1 where the arrival of a row is known; all are unless there were more than K breaks. (L, B)"""

    def at_arrivals(self, of_states: Tensor, of_extra: Tensor) -> Tensor:
        """Join what belongs to states (L, B, ...) and to extra steps (K, ...) into what belongs to arrivals (L, B, ...)."""
        following = torch.cat([of_states[1:], of_states[-1:]]).flatten(0, 1)
        shape = (-1, *[1] * (of_extra.ndim - 1))
        chosen = torch.where(self.counts.view(shape) > 0, of_extra, following.index_select(0, self.places))
        return following.index_copy(0, self.places, chosen).view_as(of_states)


class WorldModel(nn.Module):
    """Learns to predict observations, rewards and ends."""

    def __init__(self, parts: Parts, settings: ModelSettings) -> None:
        super().__init__()
        self.encoder, self.rssm, self.decoder, self.reward, self.continues, self.actions, self.numbers, self.space = parts
        self._free_nats, self._of_batch, self._stores_latents, self.ranks = settings
        sees_pictures = any(is_picture(part) for part in parts_of(parts.space).values())
        self._rows_per_break = ROWS_PER_BREAK["pictures" if sees_pictures else "vectors"]

    # ---- looking at experience ----------------------------------------------------------------------------------------

    def observe(self, batch: Mapping[str, Any], noise: Noise) -> Seen:
        """Follow windows of experience, time-major (L, B, ...), and find where each row led."""
        return self.arrive(self.follow(batch, noise), batch)

    def follow(self, batch: Mapping[str, Any], noise: Noise) -> Followed:
        """Follow windows of experience, time-major (L, B, ...): what needs the recurrence."""
        length, count = batch["reward"].shape
        numbers = self.noise(noise, "posterior", (length + 1, count))
        actions, is_first = self.actions.from_environment(batch["action"]), self._is_first(batch)
        previous = torch.cat([batch[PREVIOUS_ACTION][:1].to(actions.dtype), actions[:-1]])
        breaks = torch.cat([is_first[1:], torch.ones_like(is_first[:1])])
        counts, places = breaks.flatten().float().topk(max(count, length * count // self._rows_per_break))
        led_to = map_tree(lambda part: part.flatten(0, 1).index_select(0, places), batch["next_observation"])
        (tokens,) = self._read(batch["observation"], led_to)
        tokens, extra_tokens = tokens.split([length * count, len(places)])
        states, outputs = self.rssm.observe(
            self.start(batch), previous, tokens.unflatten(0, (length, count)), is_first, numbers[:-1]
        )
        # The noise of the next row: an extra step where there is no break would find the scan's own state.
        extra_noise = numbers[1:].flatten(0, 1).index_select(0, places)
        return Followed(states, outputs, breaks, places, counts, led_to, extra_tokens, extra_noise)

    @region
    def _read(self, observation: Observation, led_to: Observation) -> tuple[Tensor]:
        both = map_tree(lambda rows, extra: torch.cat([rows.flatten(0, 1), extra]), observation, led_to)
        return (self.encoder(both),)

    def arrive(self, followed: Followed, batch: Mapping[str, Any]) -> Seen:
        """Take the extra steps, where the recurrence does not go on."""
        states, outputs, breaks, places, counts, led_to, tokens, noise = followed
        actions = self.actions.from_environment(batch["action"]).flatten(0, 1).index_select(0, places)
        extra, extra_outputs = self.rssm.see(states.flat().at(places), self.rssm.action_layer(actions), tokens, noise)
        known = (~breaks).float().flatten().index_fill(0, places, 1.0).view_as(breaks)
        return Seen(states, outputs, breaks, places, counts, extra, extra_outputs, led_to, known)

    def start(self, batch: Mapping[str, Any]) -> ModelState:
        """Return the state that enters the first row of each window: as it was stored, or zeros."""
        if not self._stores_latents:
            return self.rssm.initial(batch["reward"].shape[1])
        return ModelState(batch[DETER][0].float(), self.rssm.latents.restored(batch[STOCH][0]))

    def entering(self, batch: Mapping[str, Any], states: ModelState) -> dict[str, Tensor]:
        """Return the states that enter each row as the model sees them now, in their stored form: (B, L, ...)."""
        if not self._stores_latents:
            return {}
        deter = torch.cat([batch[DETER][:1], states.deter[:-1].detach().to(batch[DETER].dtype)])
        stoch = torch.cat([batch[STOCH][:1], self.rssm.latents.stored(states.stoch[:-1]).to(batch[STOCH].dtype)])
        return {DETER: deter.transpose(0, 1), STOCH: stoch.transpose(0, 1)}

    def _is_first(self, batch: Mapping[str, Any]) -> Tensor:
        first = batch["is_first"]
        return first if self._stores_latents else torch.cat([torch.ones_like(first[:1]), first[1:]])

    def noise(self, noise: Noise, name: str, leading: tuple[int, ...]) -> Tensor:
        """Return noise to draw stochastic states from: (*leading, ...)"""
        latents = self.rssm.latents
        return getattr(noise, latents.noise)(name, (*leading, latents.noise_size))

    # ---- learning -----------------------------------------------------------------------------------------------------

    def losses(self, seen: Seen, batch: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the losses by name, means over rows, and metrics."""
        rows = seen.breaks.numel()
        deter, stoch = (torch.cat(both) for both in zip(seen.states.flat(), seen.extra, strict=True))
        observation = map_tree(lambda s, e: torch.cat([s.flatten(0, 1), e]), batch["observation"], seen.extra_observation)
        counts = torch.cat([torch.ones_like(seen.counts[:1]).expand(rows), seen.counts])  # every observation once

        def mean(values: Tensor) -> Tensor:
            return (values * counts).sum() / rows

        made = self.decoder({DETER: deter, STOCH: stoch})
        latents = self.rssm.latents
        posterior = latents.distribution(torch.cat([seen.outputs.flatten(0, 1), seen.extra_outputs]))
        prior = latents.distribution(self.rssm.prior(deter))
        dynamics, representation = balanced_kl(posterior, prior, 0.0 if self._of_batch else self._free_nats)
        arrivals = seen.at_arrivals(seen.states.features, seen.extra.features)
        reward = self.numbers.loss(self.reward(arrivals), batch["reward"])
        goes_on = 1 - batch["terminated"].float()
        over = self.continues(arrivals).squeeze(-1).float()
        continues = functional.binary_cross_entropy_with_logits(over, goes_on, reduction="none")
        losses = {
            "reconstruction": mean(reconstruction_error(made, observation, self.space)),
            "dynamics": self._beyond_free(mean(dynamics)),
            "representation": self._beyond_free(mean(representation)),
            "reward": (reward * seen.known).mean(),
            "continue": (continues * seen.known).mean(),
        }
        with torch.no_grad():
            metrics = {
                "train/kl": mean(posterior.detach().kl(prior.detach())),
                "train/prior_entropy": mean(prior.detach().entropy()),
                "train/posterior_entropy": mean(posterior.detach().entropy()),
            }
        return losses, metrics

    def _beyond_free(self, divergence: Tensor) -> Tensor:
        if not self._of_batch:
            return divergence
        whole = divergence if self.ranks.size == 1 else self.ranks.sum(divergence) / self.ranks.size
        return whole.clamp(min=self._free_nats)

    # ---- what heads say -----------------------------------------------------------------------------------------------

    def rewards(self, features: Tensor) -> Tensor:
        """Return the reward of arriving in states: (..., F) → (...)"""
        return self.numbers.mean(held(self.reward, features))

    def continuation(self, features: Tensor) -> Tensor:
        """Return how likely an episode goes on after arriving in states: (..., F) → (...)"""
        return torch.sigmoid(held(self.continues, features).squeeze(-1).float())

    def observations(self, state: ModelState) -> Observation:
        """Return what states look like: pictures from 0 to 1, vectors in symlog, discrete values as logits."""
        return self.decoder({DETER: state.deter, STOCH: state.stoch})

    @torch.no_grad()
    def open_loop(self, batch: Mapping[str, Any], context: int, horizon: int, noise: Noise) -> OpenLoop:
        """Follow windows (L, B, ...) for `context` steps, then predict the next `horizon` from their actions alone."""
        count, end = batch["reward"].shape[1], context + horizon
        steps = {name: map_tree(lambda column: column[:end], batch[name]) for name in batch}
        seen = self.observe({name: map_tree(lambda column: column[:context], steps[name]) for name in steps}, noise)
        actions = self.actions.from_environment(steps["action"])
        states = [ModelState(*(part[-1] for part in seen.states))]
        numbers = self.noise(noise, "open_loop", (horizon, count))
        for t in range(horizon):
            states.append(self.rssm.dream(states[-1], actions[context - 1 + t], numbers[t]))
        dreamt = ModelState(*(torch.stack(parts) for parts in zip(*states[1:], strict=True)))
        return OpenLoop(steps["observation"], self.observations(seen.states), self.observations(dreamt))


class Imagined(NamedTuple):
    """A dream of H steps, as people look at it."""

    states: ModelState
    """(H + 1, N, ...)"""
    actions: Tensor
    """(H, N, A), as the model sees them: one-hot, or on a scale where bounds are ±1"""
    observations: Observation
    """(H + 1, N, ...): pictures from 0 to 1, vectors in symlog, discrete values as logits"""
    rewards: Tensor
    """(H, N), of arriving in states 1 to H"""
    continues: Tensor
    """(H, N): how likely it goes on from there"""


class OpenLoop(NamedTuple):
    """What was seen, what the model makes of it, and what it predicts without seeing."""

    observed: Observation
    """(context + horizon, B, ...)"""
    reconstructed: Observation
    """(context, B, ...), as `WorldModel.observations` has them"""
    predicted: Observation
    """(horizon, B, ...), likewise; beyond an episode's end it goes on as if there were none"""


def sensed_space(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    """Return what of an observation the policy may know: of a robot's groups the actor's, else all."""
    return space.spaces[ACTOR] if isinstance(space, spaces.Dict) and ACTOR in space.spaces else space


def sensed(observation: Observation) -> Observation:
    """Return that part of an observation."""
    return observation[ACTOR] if isinstance(observation, dict) and ACTOR in observation else observation


def time_major(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return windows (B, L, ...) as (L, B, ...)."""
    return map_tree(lambda column: column.transpose(0, 1), dict(batch))
