"""Steps of unfinished episodes wait for the next rollout; every step of every episode comes out once, in order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.components import whole_episodes
from etude.components.returns import in_whole_episodes
from etude.components.whole_episodes import WaitingSteps
from etude.errors import EtudeError

N = 3
CPU = torch.device("cpu")


def rollouts(seed: int, count: int, steps: int) -> list[dict[str, Any]]:
    """Rows numbered in the order in which they happened, with ends at random."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for k in range(count):
        number = torch.arange(k * steps, (k + 1) * steps).unsqueeze(1).expand(steps, N) * 10 + torch.arange(N)
        ended = torch.rand(steps, N, generator=generator) < 0.15
        found.append({"number": number.clone(), "nested": {"same": number.clone()}, "ended": ended})
    return found


def taken(waiting: WaitingSteps, rollout: dict[str, Any]) -> torch.Tensor:
    stretch = waiting.before(rollout)
    ended = stretch.columns["ended"] & stretch.held
    whole = in_whole_episodes(ended) & stretch.held
    waiting.keep(stretch, ended)
    assert torch.equal(stretch.columns["number"], stretch.columns["nested"]["same"])
    return stretch.columns["number"][whole]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 9))
def test_every_step_comes_out_once_when_its_episode_has_ended(seed: int, steps: int) -> None:
    waiting, out = WaitingSteps(CPU), []
    data = rollouts(seed, 12, steps)
    for position, rollout in enumerate(data):
        out += taken(waiting, rollout).tolist()
        if position % 4 == 3:  # and a resume in between changes nothing
            saved, waiting = waiting.state_dict(), WaitingSteps(CPU)
            waiting.load_state_dict(saved)
    ended, number = (torch.cat([rollout[key] for rollout in data]) for key in ("ended", "number"))
    assert sorted(out) == sorted(number[in_whole_episodes(ended)].tolist())


def test_what_waits_is_a_copy() -> None:
    waiting = WaitingSteps(CPU)
    rollout = {"number": torch.ones(4, N), "ended": torch.zeros(4, N, dtype=torch.bool)}
    assert not len(taken_of(waiting, rollout))
    rollout["number"].zero_()  # the buffer is written anew
    assert (waiting.state_dict()["columns"]["number"] == 1).all()


def taken_of(waiting: WaitingSteps, rollout: dict[str, Any]) -> torch.Tensor:
    stretch = waiting.before(rollout)
    waiting.keep(stretch, stretch.columns["ended"])
    return stretch.columns["number"][in_whole_episodes(stretch.columns["ended"]) & stretch.held]


def test_an_episode_without_end_is_an_error_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_episodes, "LONGEST_EPISODE", 10)
    waiting = WaitingSteps(CPU)
    rollout = {"number": torch.ones(4, N), "ended": torch.zeros(4, N, dtype=torch.bool)}
    for _ in range(2):
        taken_of(waiting, rollout)
    with pytest.raises(EtudeError, match=r"has not ended in 12 steps.*environment.max_episode_steps"):
        taken_of(waiting, rollout)
