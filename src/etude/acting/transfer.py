"""Steps between the environment's device and the actor's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from etude.compute.devices import is_same
from etude.compute.packed_transfer import PackedTransfer
from etude.compute.trees import map_tree
from etude.environments.vector import Observation, Step

WORTH_PINNING = 2**18
"""Bytes from which a tensor goes to a GPU faster through pinned memory: pictures, not rewards."""


class Transfer:
    """Brings what an environment says to whoever acts. Where both are on one device nothing moves."""

    def __init__(self, environment: torch.device, actor: torch.device) -> None:
        self.is_needed = not is_same(environment, actor)
        self.is_packed = environment.type == "cpu" and actor.type == "cuda"
        """Whether all of a step crosses in one copy."""
        self._environment, self._actor = environment, actor
        self._pack: PackedTransfer | None = None

    def to_actor(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the environment where the actor reads it."""
        if not self.is_needed:
            return tensor
        if self.is_packed and tensor.nbytes >= WORTH_PINNING:
            tensor = tensor.pin_memory()  # in memory that torch keeps and reuses; the copy then waits for nobody
        return tensor.to(self._actor, non_blocking=True)

    def to_environment(self, tensor: Tensor) -> Tensor:
        """Return an action where the environment reads it."""
        return tensor.to(self._environment)

    def step(self, step: Step, ended: Tensor) -> dict[str, Any]:
        """Return what a step says, by column, where the actor reads it."""
        tree: dict[str, Any] = {
            "observation": step.observation,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "ended": ended,
        }
        if self.is_packed:
            self._pack = self._pack or PackedTransfer(tree, self._actor)
            tree = self._pack(tree)
        elif self.is_needed:
            tree = {key: map_tree(self.to_actor, value) for key, value in tree.items()}
        return tree

    def led_to(self, step: Step, moved: Observation) -> Observation:
        """Return where a step led: where nothing ended that is what comes next, and crosses once."""
        return moved if step.final_observation is step.observation else map_tree(self.to_actor, step.final_observation)
