"""Recurrent state-space model: a state that is partly remembered and partly drawn (Hafner et al. 2019; blocks: 2025).

    deterministic   h[t] = f(h[t-1], z[t-1], a[t-1])          a GRU in blocks, which share what goes in
    posterior       z[t] ~ q(z | h[t], o[t])                  where there is an observation
    prior           z[t] ~ p(z | h[t])                        where there is none: in imagination

A sequence is its steps one after the other. Where an episode begins, h, z and the action before are zeros. What does not
depend on the recurrence, the encoder, the actions' layer and the prior, is computed for all steps at once around the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from etude.components.latents import Latents
from etude.components.networks.normed_layers import BlockLinear, Normed, NormedGroups, fan_in_linear, normed_layers
from etude.compute.regions import region
from etude.compute.scan import scan

BLOCKS = 8
Policy = Callable[[Tensor, Tensor], Tensor]
"""From features (N, F) and noise (N, ...) to actions (N, A), on the scale that the model sees."""


class ModelState(NamedTuple):
    """What a world model remembers. Leading dimensions may be any."""

    deter: Tensor
    """(..., D)"""
    stoch: Tensor
    """(..., S)"""

    @property
    def features(self) -> Tensor:
        """Both parts, side by side, as heads read them: (..., D + S)"""
        return torch.cat(self, -1)

    def at(self, index: Tensor) -> ModelState:
        """Return some of the states (N, ...), by their places."""
        return ModelState(*(part.index_select(0, index) for part in self))

    def flat(self) -> ModelState:
        """(T, B, ...) → (T · B, ...)"""
        return ModelState(*(part.flatten(0, 1) for part in self))

    def detach(self) -> ModelState:
        """Return the same numbers without gradients."""
        return ModelState(*(part.detach() for part in self))


class RSSM(nn.Module):
    """The model of what is remembered, and of what is drawn. Observations come as `tokens`, `hidden` numbers each."""

    def __init__(
        self,
        latents: Latents,
        actions: int,
        *,
        deter: int,
        hidden: int,
        generator: Generator,
        blocks: int = BLOCKS,
        joint_norm: bool = False,
    ) -> None:
        """`joint_norm`: h, z and the action are normed together as they enter, and not each by itself, as in DreamerV3.

        By itself a single action is left with little but its sign, which gradients through it and plans need more of.
        """
        super().__init__()
        self.latents, self.deter_size, self.blocks = latents, deter, blocks
        self.feature_size = deter + latents.size
        self.from_deter = fan_in_linear(deter, hidden, generator)
        self.from_stoch = fan_in_linear(latents.size, hidden, generator)
        self.from_action = fan_in_linear(actions, hidden, generator)
        self.shared_normed = NormedGroups(1, 3 * hidden) if joint_norm else NormedGroups(3, hidden)
        # What all blocks share meets a full matrix; each block of h besides its own.
        inputs = deter + blocks * 3 * hidden
        self.mixed_shared = fan_in_linear(3 * hidden, deter, generator, fan_in=inputs)
        self.mixed_own = BlockLinear(deter, deter, blocks, generator, fan_in=inputs)
        self.mixed_normed = Normed(deter)
        self.gates = BlockLinear(deter, 3 * deter, blocks, generator)
        # The first layer of the posterior is linear in both: the observation's half is the last one of the encoder.
        self.posterior_deter = fan_in_linear(deter, hidden, generator)
        self.posterior_normed = Normed(hidden)
        self.posterior_out = fan_in_linear(hidden, latents.outputs, generator)
        self.prior_hidden = normed_layers(deter, hidden, 2, generator)
        self.prior_out = fan_in_linear(hidden, latents.outputs, generator)

    def initial(self, n: int) -> ModelState:
        """Return the state at the start of n episodes: zeros."""
        zeros = self.posterior_out.weight.new_zeros
        return ModelState(zeros(n, self.deter_size), zeros(n, self.latents.size))

    # ---- one step -----------------------------------------------------------------------------------------------------

    def advance(self, state: ModelState, action: Tensor) -> Tensor:
        """Return h after an action (N, hidden) that went through `action_layer`: (N, D)"""
        shared = self.shared_normed(torch.cat([self.from_deter(state.deter), self.from_stoch(state.stoch), action], -1))
        own = state.deter.unflatten(-1, (self.blocks, -1)).transpose(0, 1)  # (blocks, N, D / blocks)
        mixed = self.mixed_shared(shared) + self.mixed_own(own).transpose(0, 1).flatten(1)
        gates = self.gates(self.mixed_normed(mixed).unflatten(-1, (self.blocks, -1)).transpose(0, 1))
        reset, candidate, update = gates.float().chunk(3, -1)
        candidate = torch.tanh(torch.sigmoid(reset) * candidate)
        moved = own + torch.sigmoid(update - 1) * (candidate - own)
        return moved.transpose(0, 1).flatten(1)

    def action_layer(self, action: Tensor) -> Tensor:
        """Return what the recurrence reads of actions (..., A), none of which may push it further than ±1."""
        return self.from_action(action / action.detach().abs().clamp(min=1))

    def prior(self, deter: Tensor) -> Tensor:
        """Return what describes p(z | h): (..., D) → (..., outputs)"""
        return self.prior_out(self.prior_hidden(deter))

    def posterior(self, deter: Tensor, tokens: Tensor) -> Tensor:
        """Return what describes q(z | h, o): (..., D), (..., hidden) → (..., outputs)"""
        return self.posterior_out(self.posterior_normed(self.posterior_deter(deter) + tokens))

    def see(self, state: ModelState, action: Tensor, tokens: Tensor, noise: Tensor | None) -> tuple[ModelState, Tensor]:
        """Take one step with an observation; without noise z is the likeliest. Returns the state and its posterior's outputs.

        `action` has gone through `action_layer`; where an episode begins, it and the state are zeros before.
        """
        deter = self.advance(state, action)
        outputs = self.posterior(deter, tokens)
        found = self.latents.distribution(outputs)
        return ModelState(deter, found.mode() if noise is None else found.draw(noise)), outputs

    def step(
        self, state: ModelState, action: Tensor, tokens: Tensor, is_first: Tensor, noise: Tensor | None
    ) -> tuple[ModelState, Tensor]:
        """Take one step: the action before (N, A), tokens (N, hidden), is_first (N,), noise (N, ...)."""
        keep = (~is_first).to(state.deter.dtype).unsqueeze(-1)
        before = ModelState(state.deter * keep, state.stoch * keep)
        return self.see(before, self.action_layer(action * keep), tokens, noise)

    def dream(self, state: ModelState, action: Tensor, noise: Tensor | None) -> ModelState:
        """Take one step without an observation, after an action (N, A)."""
        deter = self.advance(state, self.action_layer(action))
        expected = self.latents.distribution(self.prior(deter))
        return ModelState(deter, expected.mode() if noise is None else expected.draw(noise))

    # ---- many steps ---------------------------------------------------------------------------------------------------

    def observe(
        self, state: ModelState, actions: Tensor, tokens: Tensor, is_first: Tensor, noise: Tensor
    ) -> tuple[ModelState, Tensor]:
        """Take T steps: actions before each (T, B, A), tokens (T, B, hidden), is_first (T, B), noise (T, B, ...).

        Returns the states (T, B, ...) and the posteriors' outputs (T, B, outputs).
        """
        keep = (~is_first).to(state.deter.dtype).unsqueeze(-1)
        actions = self.action_layer(actions * keep)
        deter, stoch, outputs = scan(self, RSSM._cell, tuple(state), (keep, actions, tokens, noise))
        return ModelState(deter, stoch), outputs

    @region
    def _cell(
        self, deter: Tensor, stoch: Tensor, keep: Tensor, action: Tensor, tokens: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        state, outputs = self.see(ModelState(deter * keep, stoch * keep), action, tokens, noise)
        return state.deter, state.stoch, outputs

    def imagine(self, policy: Policy, state: ModelState, policy_noise: Tensor, noise: Tensor) -> tuple[ModelState, Tensor]:
        """Dream H steps of a policy from states (N, ...), with noise (H, N, ...) for its actions and for the states.

        Returns the H + 1 states on the way, the first included, and the H actions: action k was chosen in state k and leads
        to state k + 1. Gradients flow through all of it where they are asked for.
        """
        states, actions = [state], []
        for for_action, for_state in zip(policy_noise, noise, strict=True):
            actions.append(policy(states[-1].features, for_action))
            states.append(ModelState(*self._dream_cell(*states[-1], actions[-1], for_state)))
        return ModelState(*(torch.stack(parts) for parts in zip(*states, strict=True))), torch.stack(actions)

    @region
    def _dream_cell(self, deter: Tensor, stoch: Tensor, action: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        state = self.dream(ModelState(deter, stoch), action, noise)
        return state.deter, state.stoch
