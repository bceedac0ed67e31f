"""A mixture-density recurrent network (Ha and Schmidhuber 2018): what may come next, after all that was seen and done.

    z[t], a[t], h[t] ─→ LSTM ─→ h[t+1] ─→ for each latent dimension K normals of z[t+1], the reward of step t, and its end

    −ln p(z) = −logsumexp over k ( ln π[k] + ln N(z; μ[k], σ[k]) )
    at temperature τ:  π ∝ π^(1/τ),  σ² · τ               above 1 the dream is harder to exploit than the world

Where an episode begins, h is 0: nothing of the one before is remembered.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from etude.components.networks.layers import linear
from etude.components.networks.memory import forget
from etude.components.two_hot import TwoHot
from etude.compute.regions import region
from etude.compute.world import ALONE, World

HIDDEN, CELL = "hidden", "cell"
LOG_STD_RANGE = (-7.0, 7.0)
"""A mixture that is surer than this has found two equal numbers."""
REWARD_BINS, REWARD_REACH = 101, 10.0
"""Rewards are two-hot in symlog: up to about ± 22,000."""


class Outlook(NamedTuple):
    """What may follow a step, (*batch, ...)."""

    log_weights: Tensor
    """(*batch, Z, K), normalised"""
    means: Tensor
    """(*batch, Z, K)"""
    log_stds: Tensor
    """(*batch, Z, K)"""
    reward: Tensor
    """(*batch, bins), logits"""
    end: Tensor
    """(*batch,), the logit of the task's end"""

    def nll(self, latent: Tensor) -> Tensor:
        """Return how unlikely latents (*batch, Z) are, the mean over their dimensions: (*batch,)"""
        apart = (latent.unsqueeze(-1) - self.means) * torch.exp(-self.log_stds)
        log_probs = self.log_weights - self.log_stds - 0.5 * apart.square() - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(log_probs, -1).mean(-1)

    def draw(self, uniform: Tensor, normal: Tensor, temperature: float = 1.0) -> Tensor:
        """Draw latents: uniform and normal numbers (*batch, Z) each → (*batch, Z)"""
        total = (self.log_weights / temperature).softmax(-1).cumsum(-1)
        chosen = (uniform.unsqueeze(-1) >= total[..., :-1]).sum(-1, keepdim=True)
        mean, log_std = (each.gather(-1, chosen).squeeze(-1) for each in (self.means, self.log_stds))
        return mean + torch.exp(log_std) * math.sqrt(temperature) * normal

    def mean(self) -> Tensor:
        """Return the expected latents (*batch, Z)."""
        return (self.log_weights.exp() * self.means).sum(-1)


class MDNRNN(nn.Module):
    """Remembers latents and actions, and says what may come next."""

    def __init__(self, latents: int, actions: int, *, size: int, mixtures: int, generator: Generator) -> None:
        super().__init__()
        self.latents, self.size, self.mixtures = latents, size, mixtures
        self.rewards = TwoHot(REWARD_BINS, REWARD_REACH, "in symlog")
        # Made without memory first: a plain cell would draw its weights from the global generator.
        self.cell = nn.LSTMCell(latents + actions, size, device="meta").to_empty(device="cpu")
        for weights in self.cell.parameters():
            nn.init.uniform_(weights, -(size**-0.5), size**-0.5, generator=generator)
        self.head = linear(size, 3 * latents * mixtures + REWARD_BINS + 1, 1.0, generator)

    def initial(self, n: int) -> dict[str, Tensor]:
        """Return what is remembered before n episodes: nothing."""
        empty = self.head.weight.new_zeros(n, self.size)
        return {HIDDEN: empty, CELL: empty.clone()}

    def step(self, state: dict[str, Tensor], latent: Tensor, action: Tensor) -> dict[str, Tensor]:
        """Remember a latent (N, Z) and what was done then (N, A)."""
        hidden, cell = self._cell(torch.cat([latent, action], -1), state[HIDDEN], state[CELL])
        return {HIDDEN: hidden, CELL: cell}

    def sequence(self, latent: Tensor, action: Tensor, is_first: Tensor, state: dict[str, Tensor] | None = None) -> Tensor:
        """Remember T steps: (T, N, Z), (T, N, A), (T, N) → h after each (T, N, H), from a state, or from nothing."""
        state = self.initial(latent.shape[1]) if state is None else state
        hidden, cell = state[HIDDEN], state[CELL]
        found: list[Tensor] = []
        for inputs, first in zip(torch.cat([latent, action], -1), is_first, strict=True):
            hidden, cell = self._cell(inputs, forget(hidden, first), forget(cell, first))
            found.append(hidden)
        return torch.stack(found)

    @region
    def _cell(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        return self.cell(inputs, (hidden, cell))

    def outlook(self, hidden: Tensor) -> Outlook:
        """Return what may follow: h after a step (*batch, H) → all of `Outlook`"""
        outputs = self.head(hidden).float()
        numbers = self.latents * self.mixtures
        weights, means, log_stds, reward, end = outputs.split([numbers, numbers, numbers, REWARD_BINS, 1], -1)
        shape = (self.latents, self.mixtures)
        return Outlook(
            weights.unflatten(-1, shape).log_softmax(-1),
            means.unflatten(-1, shape),
            log_stds.unflatten(-1, shape).clamp(*LOG_STD_RANGE),
            reward,
            end.squeeze(-1),
        )

    def losses(
        self, latent: Tensor, action: Tensor, is_first: Tensor, reward: Tensor, terminated: Tensor, world: World = ALONE
    ) -> dict[str, Tensor]:
        """Return what was not foreseen along windows (T, N, ...): of the next latents, of rewards, and of ends.

        What an episode's last step led to is not in a window, so nothing is said of the latents there. The mean of what
        all ranks return is that of all windows.
        """
        outlook = self.outlook(self.sequence(latent, action, is_first))
        next_is_known = is_first[1:].logical_not().float()
        before = Outlook(*(each[:-1] for each in outlook))
        known = world.sum(next_is_known.sum()) / world.size
        nll = (before.nll(latent[1:]) * next_is_known).sum() / known.clamp(min=1)
        end = functional.binary_cross_entropy_with_logits(outlook.end, terminated.float())
        return {"nll": nll, "reward": self.rewards.loss(outlook.reward, reward).mean(), "done": end}
