"""Dreams of an MDN-RNN: what it foresees of latents, rewards and ends while a controller acts on what it remembers.

z, h ─→ controller ─→ a       z, a, h ─→ M ─→ h', and drawn from its outlook: z', the reward, how likely it goes on
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from etude.components.mdn_rnn import CELL, HIDDEN, MDNRNN
from etude.components.world_actions import WorldActions
from etude.compute.trees import map_tree

Controller = Callable[[Tensor, Tensor], Tensor]
"""Features (rows, F) and the weights of each row → actions (rows, A), as M reads them."""


class Dream(NamedTuple):
    """Where dreams stand, (rows, ...) each."""

    latent: Tensor
    hidden: Tensor
    cell: Tensor
    alive: Tensor
    """How likely each still goes on. (rows,)"""
    earned: Tensor
    """(rows,)"""


class LatentDreams:
    """Steps through what M foresees."""

    def __init__(self, memory: MDNRNN, controller: Controller, head: WorldActions, temperature: float) -> None:
        self._memory, self._controller, self._head, self._temperature = memory, controller, head, temperature

    def begin(self, latent: Tensor) -> Dream:
        """Begin as episodes do, with nothing remembered: latents (rows, Z)."""
        rows, state = len(latent), self._memory.initial(len(latent))
        return Dream(latent, state[HIDDEN], state[CELL], latent.new_ones(rows), latent.new_zeros(rows))

    def step(self, dream: tuple[Tensor, ...], weights: Tensor, uniform: Tensor, normal: Tensor) -> tuple[Tensor, ...]:
        """Go on, each row by its controller's weights; chances (n, Z) are those of every n rows."""
        latent, hidden, cell, alive, earned = dream
        action = self._controller(torch.cat([latent, hidden], -1), weights)
        # M knows actions as the environment has taken them.
        action = self._head.from_environment(self._head.to_environment(action))
        state = self._memory.step({HIDDEN: hidden, CELL: cell}, latent, action)
        outlook = self._memory.outlook(state[HIDDEN])
        times = len(latent) // len(uniform)
        latent = outlook.draw(uniform.repeat(times, 1), normal.repeat(times, 1), self._temperature)
        earned = earned + alive * self._memory.rewards.mean(outlook.reward)
        return Dream(latent, state[HIDDEN], state[CELL], alive * torch.sigmoid(-outlook.end), earned)

    def walked(self, latent: Tensor, weights: Tensor, steps: int, generator: Generator) -> Tensor:
        """Return the latents (steps + 1, B, Z) that a controller (P,) meets in dreams from some (B, Z)."""
        dream: tuple[Tensor, ...] = self.begin(latent)
        found = [latent]
        for _ in range(steps):
            dream = self.step(dream, weights.expand(len(latent), -1), *chances(latent, generator))
            found.append(dream[0])
        return torch.stack(found)

    def foreseen(self, seen: Tensor, action: Tensor, is_first: Tensor, context: int, generator: Generator) -> Tensor:
        """Follow latents (L, B, Z) for `context` steps, then foresee the others from actions (L, B, ...) alone: (L, B, Z)"""
        actions, found = self._head.from_environment(action), [seen[0]]
        state = self._memory.initial(seen.shape[1])
        for t in range(len(seen) - 1):
            state = self._memory.step(state, found[-1], actions[t])
            drawn = self._memory.outlook(state[HIDDEN]).draw(*chances(seen[0], generator), self._temperature)
            begins = is_first[t + 1][:, None]  # how another episode begins, nobody foresees
            state = map_tree(lambda part, new=begins: part.masked_fill(new, 0), state)
            found.append(seen[t + 1] if t + 1 < context else torch.where(begins, seen[t + 1], drawn))
        return torch.stack(found)


def chances(like: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Return what latents are drawn from: uniform and normal numbers of a shape."""
    own = {"generator": generator, "device": generator.device}
    return torch.rand(like.shape, **own), torch.randn(like.shape, **own)
