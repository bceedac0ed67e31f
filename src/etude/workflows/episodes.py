"""Episode returns and lengths, tracked where the environment's tensors live."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

WINDOW = 100


class EpisodeStatistics:
    """Running return and length of each environment, and the last 100 finished episodes.

    On a device nothing is read back until a row is logged. On the CPU the same arithmetic is done in NumPy on the same
    memory, which costs a third.
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self._on_host = device.type == "cpu"
        self._returns = torch.zeros(num_envs, dtype=torch.float64, device=device)
        self._lengths = torch.zeros(num_envs, dtype=torch.int64, device=device)
        # One slot more than the window: rows that did not end are written there, so that no row needs a branch.
        self._window = torch.zeros(2, WINDOW + 1, dtype=torch.float64, device=device)
        self._finished = torch.zeros((), dtype=torch.int64, device=device)
        self._logged = 0
        self._best: float | None = None

    def add(self, reward: Tensor, ended: Tensor) -> None:
        """Take in one vector step: rewards and ends, both (N,)."""
        if self._on_host:
            returns, lengths = self._returns.numpy(), self._lengths.numpy()
            returns += reward.numpy()
            lengths += 1
            ends = ended.numpy()
            if ends.any():
                window, first = self._window.numpy(), int(self._finished)
                which = np.flatnonzero(ends)
                slots = (first + np.arange(len(which))) % WINDOW
                window[0, slots], window[1, slots] = returns[which], lengths[which]
                self._finished += len(which)
                returns[which] = 0.0
                lengths[which] = 0
            return
        self._returns += reward
        self._lengths += 1
        order = ended.cumsum(0) - 1 + self._finished
        finished = self._finished + ended.sum()
        # Of more ends than slots only the last ones count: two rows for one slot would be written in any order.
        slots = torch.where(ended & (order >= finished - WINDOW), order % WINDOW, WINDOW)
        self._window[0].index_copy_(0, slots, self._returns)
        self._window[1].index_copy_(0, slots, self._lengths.to(torch.float64))
        self._window[:, WINDOW] = 0.0
        self._finished.copy_(finished)
        self._returns *= ~ended
        self._lengths *= ~ended

    @property
    def finished(self) -> int:
        """How many episodes have ended so far; reads the device."""
        return int(self._finished.to("cpu"))

    def read(self) -> dict[str, float]:
        """Return the rolling means for a row of metrics, and count from here for the next row."""
        finished = self.finished
        since, self._logged = finished - self._logged, finished
        if finished == 0:
            return {"collect/episodes": 0.0}
        returns, lengths = self._window[:, : min(finished, WINDOW)].to("cpu")
        mean = float(returns.mean())
        self._best = mean if self._best is None else max(self._best, mean)
        return {
            "collect/return_mean": mean,
            "collect/return_std": float(returns.std(correction=0)),
            "collect/return_best": self._best,
            "collect/length_mean": float(lengths.mean()),
            "collect/episodes": float(since),
        }

    def restart(self) -> None:
        """Forget unfinished episodes: the environments begin new ones."""
        self._returns.zero_()
        self._lengths.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Return everything tracked."""
        return {
            "returns": self._returns,
            "lengths": self._lengths,
            "window": self._window,
            "finished": self._finished,
            "logged": self._logged,
            "best": self._best,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what was tracked."""
        self._returns.copy_(state["returns"])
        self._lengths.copy_(state["lengths"])
        self._window.copy_(state["window"])
        self._finished.copy_(state["finished"])
        self._logged, self._best = state["logged"], state["best"]
