"""Episode returns and lengths, tracked where the environment's tensors live."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.compute.world import ALONE, World

WINDOW = 100


class EpisodeStatistics:
    """Running return and length of each environment, and the last 100 finished episodes.

    Where wrappers change rewards, the task's own return is tracked beside what the learner gets. On a device nothing is read
    back until a row is logged. On the CPU the same arithmetic is done in NumPy on the same memory, which costs a third.
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self._on_host = device.type == "cpu"
        self._returns = torch.zeros(num_envs, dtype=torch.float64, device=device)
        self._lengths = torch.zeros(num_envs, dtype=torch.int64, device=device)
        # One slot more than the window: rows that did not end are written there, so that no row needs a branch.
        self._window = torch.zeros(2, WINDOW + 1, dtype=torch.float64, device=device)
        self._raw_returns: Tensor | None = None
        self._raw_window: Tensor | None = None
        self._finished = torch.zeros((), dtype=torch.int64, device=device)
        self._logged = 0
        self._best: float | None = None
        self._broken: tuple[int, float] | None = None
        self._arrays = (self._returns.numpy(), self._lengths.numpy()) if self._on_host else None

    @property
    def touched(self) -> list[Tensor]:
        """The tensors that steps without rewards of the task's own change."""
        return [self._returns, self._lengths, self._window, self._finished]

    def add(self, reward: Tensor, ended: Tensor, raw_reward: Tensor | None = None) -> None:
        """Take in one vector step: rewards, ends and, where they are others, the task's own rewards, all (N,)."""
        if raw_reward is not None and self._raw_returns is None:
            self._begin_raw()
        if self._on_host:
            self.add_arrays(reward.numpy(), ended.numpy(), None if raw_reward is None else raw_reward.numpy())
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
        if raw_reward is not None and self._raw_returns is not None and self._raw_window is not None:
            self._raw_returns += raw_reward
            self._raw_window.index_copy_(0, slots, self._raw_returns)
            self._raw_window[WINDOW] = 0.0
            self._raw_returns.masked_fill_(ended, 0.0)
        self._finished.copy_(finished)
        self._returns *= ~ended
        self._lengths *= ~ended

    def add_steps(self, reward: Tensor, ended: Tensor) -> None:
        """Take in several vector steps, (T, N) both: the same but for roundings, in as few operations as one step takes."""
        sums = self._returns + reward.double().cumsum(0)
        number = torch.arange(1, len(reward) + 1, device=reward.device)[:, None]
        # After which step the episode of each row began; 0: before all of these.
        begun = torch.where(ended, number, 0).cummax(0).values.roll(1, 0)
        begun[0] = 0
        earlier = sums.gather(0, (begun - 1).clamp(min=0)).masked_fill(begun == 0, 0.0)
        returns, lengths = sums - earlier, number - begun + self._lengths * (begun == 0)
        ends = ended.flatten()
        order = ends.cumsum(0) - 1 + self._finished
        finished = self._finished + ends.sum()
        slots = torch.where(ends & (order >= finished - WINDOW), order % WINDOW, WINDOW)
        self._window[0].index_copy_(0, slots, returns.flatten())
        self._window[1].index_copy_(0, slots, lengths.flatten().to(torch.float64))
        self._window[:, WINDOW] = 0.0
        self._finished.copy_(finished)
        self._returns.copy_(returns[-1] * ~ended[-1])
        self._lengths.copy_(lengths[-1] * ~ended[-1])

    def add_arrays(self, reward: np.ndarray, ends: np.ndarray, raw_reward: np.ndarray | None = None) -> None:
        """The same in NumPy, on the CPU."""
        assert self._arrays is not None
        returns, lengths = self._arrays
        returns += reward
        lengths += 1
        raw_returns = None
        if raw_reward is not None and self._raw_returns is not None:
            raw_returns = self._raw_returns.numpy()
            raw_returns += raw_reward
        if not np.count_nonzero(ends):  # a tenth of what any() costs
            return
        window, first = self._window.numpy(), int(self._finished)
        which = np.flatnonzero(ends)
        if self._broken is None:  # nothing a longer window would tell: the next episodes overwrite it
            self._broken = _first_non_finite(returns[which], which)
        slots = (first + np.arange(len(which))) % WINDOW
        window[0, slots], window[1, slots] = returns[which], lengths[which]
        self._finished += len(which)
        returns[which] = 0.0
        lengths[which] = 0
        if raw_returns is not None and self._raw_window is not None:
            self._raw_window.numpy()[slots] = raw_returns[which]
            raw_returns[which] = 0.0

    def _begin_raw(self) -> None:
        """Make room. What earlier steps earned, in a run that an earlier version began, is not known: NaN."""
        places = torch.arange(WINDOW + 1, device=self._returns.device)
        self._raw_returns = torch.zeros_like(self._returns).masked_fill_(self._lengths > 0, math.nan)
        self._raw_window = torch.zeros_like(self._window[0]).masked_fill_(places < self._finished, math.nan)

    def non_finite(self) -> tuple[int, float] | None:
        """Return a copy and its return that is NaN or infinite, if one has been since the last call; reads the device."""
        broken, self._broken = self._broken, None
        here = self._returns.to("cpu").numpy()
        return broken or _first_non_finite(here, np.arange(len(here)))

    @property
    def finished(self) -> int:
        """How many episodes have ended so far; reads the device."""
        return int(self._finished.to("cpu"))

    def read(self, world: World = ALONE) -> dict[str, float]:
        """Return the rolling means for a row of metrics, over all ranks' windows, and count from here for the next row."""
        finished = self.finished
        since, self._logged = finished - self._logged, finished
        held, raw = self._held(self._window, finished, world), self._raw_window
        if world.size > 1:
            finished, since = (int(count) for count in world.gather(torch.tensor([finished, since])).sum(0))
        if finished == 0:
            return {"collect/episodes": 0.0}
        returns, lengths = held
        mean = float(returns.mean())
        self._best = mean if self._best is None else max(self._best, mean)
        return {
            "collect/return_mean": mean,
            "collect/return_std": float(returns.std(correction=0)),
            "collect/return_best": self._best,
            **({} if raw is None else _read_raw(self._held(raw.unsqueeze(0), self.finished, world)[0])),
            "collect/length_mean": float(lengths.mean()),
            "collect/episodes": float(since),
        }

    def _held(self, window: Tensor, finished: int, world: World) -> Tensor:
        """Return what is in all ranks' windows, rank after rank: (rows, episodes)"""
        own = window[:, : min(finished, WINDOW)].to("cpu")
        if world.size == 1:
            return own
        room = torch.zeros(len(window), WINDOW, dtype=window.dtype)
        room[:, : own.shape[1]] = own
        counts = world.gather(torch.tensor(own.shape[1])).tolist()
        return torch.cat([each[:, :count] for each, count in zip(world.gather(room), counts, strict=True)], 1)

    def restart(self, copies: slice = slice(None)) -> None:
        """Forget unfinished episodes, of some copies: these begin new ones."""
        self._returns[copies].zero_()
        self._lengths[copies].zero_()
        if self._raw_returns is not None:
            self._raw_returns[copies].zero_()

    def state_dict(self) -> dict[str, Any]:
        """Return everything tracked."""
        state = {
            "returns": self._returns,
            "lengths": self._lengths,
            "window": self._window,
            "finished": self._finished,
            "logged": self._logged,
            "best": self._best,
        }
        if self._raw_returns is not None:
            state |= {"raw_returns": self._raw_returns, "raw_window": self._raw_window}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what was tracked."""
        self._returns.copy_(state["returns"])
        self._lengths.copy_(state["lengths"])
        self._window.copy_(state["window"])
        self._finished.copy_(state["finished"])
        self._logged, self._best, self._broken = state["logged"], state["best"], None
        self._raw_returns = self._raw_window = None
        if "raw_returns" in state:
            device = self._returns.device
            self._raw_returns = state["raw_returns"].to(device, copy=True)
            self._raw_window = state["raw_window"].to(device, copy=True)


def _read_raw(known: Tensor) -> dict[str, float]:
    known = known[~known.isnan()]
    if not len(known):
        return {}
    return {"collect/raw_return_mean": float(known.mean()), "collect/raw_return_std": float(known.std(correction=0))}


def _first_non_finite(returns: np.ndarray, copies: np.ndarray) -> tuple[int, float] | None:
    if math.isfinite(returns.sum()):  # which no NaN and no infinity is lost in
        return None
    bad = np.flatnonzero(~np.isfinite(returns))
    return (int(copies[bad[0]]), float(returns[bad[0]])) if len(bad) else None
