"""Candidates judged by whole episodes, on any number of environment copies.

    episodes            candidate 1, 2, ..., λ in the first episode, the same in the second, ...
    turns               of these as many at a time as there are copies, each copy one; a turn ends with its longest episode

An episode's return is what it earned until its end, a time limit's too. A copy that has ended goes on, for copies step
together, and what it earns then counts for nothing. All candidates may have the same first states and chances (common random
numbers): then it is candidates that differ, not their luck.

Where several processes train together, the copies of all of them are one row of places, in the order of ranks: each judges what
its own copies are dealt, a turn ends for all at once, and all have all returns. So candidates are judged as one process with as
many copies would.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from etude.compute.random_streams import derive_seed
from etude.compute.world import ALONE, World


class Judging:
    """One generation's candidates and where their episodes stand; all of it is state, so that a run may stop in between."""

    def __init__(
        self, population: int, size: int, episodes: int, copies: int, device: torch.device, world: World = ALONE
    ) -> None:
        """`population` candidates of `size` numbers each, judged by `episodes` episodes each, on `copies` of each process."""
        self.population, self.episodes, self._world = population, episodes, world
        self.copies = copies * world.size
        self.turns = -(-population * episodes // self.copies)
        self.candidates = torch.zeros((population, size), dtype=torch.float64)
        self.generation = 0
        """How many generations have begun."""
        self._turn = self._steps = self._restarts = 0
        self._earned = torch.zeros((self.turns, copies), dtype=torch.float64, device=device)
        self._ended = torch.zeros(copies, dtype=torch.bool, device=device)
        self._counted = torch.zeros_like(self._ended)
        self._places = world.rank * copies + torch.arange(copies, device=device)

    def begin(self, candidates: Tensor) -> None:
        """Begin a generation: candidates (population, size), the first process's."""
        self.candidates.copy_(candidates)
        self._world.broadcast_([self.candidates])
        self.generation += 1
        self._turn = self._steps = 0

    @property
    def is_complete(self) -> bool:
        """Whether every candidate of this generation has been judged; also before there is one."""
        return self.generation == 0 or self._turn == self.turns

    def begins_turn(self, restarts: int) -> bool:
        """Whether the next step is a turn's first; `restarts`: how often the environment has lost its episodes so far."""
        return self._steps == 0 or any(self._world.any(restarts != self._restarts))

    def begin_turn(self, root: int, restarts: int, *, common: bool) -> list[int]:
        """Begin a turn, and return the seed of each own copy's episode; `common`: the same for all candidates."""
        self._steps, self._restarts = 0, restarts
        self._earned[self._turn] = 0.0
        self._ended.copy_(self._numbers() >= self.population * self.episodes)  # the last turn may have copies to spare
        seeds = []
        for number in self._numbers().tolist():
            episode, candidate = divmod(number, self.population)
            own = () if common else (candidate,)
            seeds.append(derive_seed(root, "judging", self.generation, episode, *own))
        return seeds

    def dealt(self) -> Tensor:
        """Return the candidate of each of this process's copies in this turn. (own copies, size)"""
        return self.candidates[self._numbers().cpu() % self.population]

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in one vector step."""
        self._counted.copy_(~self._ended)
        self._earned[self._turn] += row["reward"].masked_fill(self._ended, 0.0)
        self._ended |= row["terminated"] | row["truncated"]
        self._steps += 1
        if not any(self._world.any(not self._ended.all())):
            self._turn += 1
            self._steps = 0

    def counted(self) -> Tensor:
        """Return for which of its copies the last step counted. (own copies,)"""
        return self._counted

    def fitness(self) -> Tensor:
        """Return the mean return of each candidate, once the generation is complete. (population,)"""
        returns = self._world.gather(self._earned).movedim(0, 1).flatten()[: self.population * self.episodes]
        return returns.view(self.episodes, self.population).mean(0).cpu()

    def _numbers(self) -> Tensor:
        """The places of this turn's episodes among all of the generation. (own copies,)"""
        return self._turn * self.copies + self._places

    def state_dict(self) -> dict[str, Any]:
        """Return the candidates, and how far their judging is."""
        counts = {"generation": self.generation, "turn": self._turn, "steps": self._steps, "restarts": self._restarts}
        return {"candidates": self.candidates, "earned": self._earned, "ended": self._ended, **counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.candidates.copy_(state["candidates"])
        self._earned.copy_(state["earned"])
        self._ended.copy_(state["ended"])
        self.generation, self._turn = state["generation"], state["turn"]
        self._steps, self._restarts = state["steps"], state["restarts"]
