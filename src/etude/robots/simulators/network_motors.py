"""Motors that are networks, between physics steps: how far off their targets and how fast they were, and their torques."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from etude.robots.scene import Scene


class NetworkMotors:
    """Of all robots at once; nothing in it asks the device for a number."""

    def __init__(self, scene: Scene, count: int, device: torch.device) -> None:
        self._groups = [(network.to(device), torch.as_tensor(places, device=device)) for network, places in scene.networks]
        self._rows = [
            torch.tensor(
                [ago * round(network.layout.step / scene.model.opt.timestep) for ago in network.layout.history], device=device
            )
            for network, _ in self._groups
        ]
        depth = max(int(rows.max()) for rows in self._rows) + 1
        self._past = torch.zeros(depth, 2, count, len(scene.joints), device=device)
        """Position errors and velocities, the newest first."""
        self._fresh = torch.ones(count, dtype=torch.bool, device=device)
        """Whose past is not known yet: it was as it is now."""

    def aim(self, targets: Tensor, position: Tensor, velocity: Tensor) -> Tensor:
        """Return what to ask motors for in the next physics step: torques of networks, targets of others. (N, J)"""
        now = torch.stack([targets - position, velocity])
        past = torch.cat([now[None], self._past[:-1]])
        self._past.copy_(torch.where(self._fresh[:, None], now, past))
        self._fresh.zero_()
        asked = targets.clone()
        for (network, joints), rows in zip(self._groups, self._rows, strict=True):
            seen = self._past[rows].index_select(3, joints)  # (H, 2, N, joints)
            asked[:, joints] = network.torque(seen[:, 0].permute(1, 2, 0), seen[:, 1].permute(1, 2, 0))
        return asked

    def forget(self, which: Tensor) -> None:
        """Begin anew for the robots `which`, (N,) bool."""
        self._fresh.logical_or_(which)

    def state_dict(self) -> dict[str, Any]:
        """Return what the next torques depend on."""
        return {"past": self._past.clone(), "fresh": self._fresh.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self._past.copy_(state["past"])
        self._fresh.copy_(state["fresh"])
