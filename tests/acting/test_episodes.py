"""Returns and lengths equal a reference that follows each environment on its own; host and device agree to the bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.acting.episodes import WINDOW, EpisodeStatistics
from tests.runs_compared import assert_same_state
from tests.workflows.tiny_runs import copied


def statistics(num_envs: int, *, on_device: bool = False) -> EpisodeStatistics:
    made = EpisodeStatistics(num_envs, torch.device("cpu"))
    made._on_host = not on_device  # the tensor path, as on a device
    return made


def steps(num_envs: int, count: int, seed: int, ends: float = 0.1) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    return [(torch.randn(num_envs, generator=draw), torch.rand(num_envs, generator=draw) < ends) for _ in range(count)]


def reference(num_envs: int, taken: list[tuple[torch.Tensor, torch.Tensor]]) -> list[tuple[float, int]]:
    """Every finished episode as (return, length), in order of time and then of environment."""
    finished, running, length = [], [0.0] * num_envs, [0] * num_envs
    for reward, ended in taken:
        for i in range(num_envs):
            running[i] += float(reward[i])
            length[i] += 1
            if ended[i]:
                finished.append((running[i], length[i]))
                running[i], length[i] = 0.0, 0
    return finished


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@settings(max_examples=30, deadline=None)
@given(num_envs=st.integers(1, 9), count=st.integers(1, 80), seed=st.integers(0, 2**32))
def test_returns_and_lengths_equal_the_reference(on_device: bool, num_envs: int, count: int, seed: int) -> None:
    tracked, taken = statistics(num_envs, on_device=on_device), steps(num_envs, count, seed)
    for reward, ended in taken:
        tracked.add(reward, ended)
    finished = reference(num_envs, taken)
    assert tracked.finished == len(finished)
    row = tracked.read()
    assert row["collect/episodes"] == len(finished)
    if not finished:
        assert row.keys() == {"collect/episodes"}
        return
    recent = torch.tensor(finished[-WINDOW:], dtype=torch.float64)
    assert row["collect/return_mean"] == pytest.approx(float(recent[:, 0].mean()), abs=1e-12)
    assert row["collect/return_std"] == pytest.approx(float(recent[:, 0].std(correction=0)), abs=1e-9)
    assert row["collect/length_mean"] == pytest.approx(float(recent[:, 1].mean()), abs=1e-12)


@pytest.mark.parametrize("num_envs", [1, 7, WINDOW, 3 * WINDOW + 11])
@pytest.mark.parametrize("ends", [0.02, 0.9, 1.0])
def test_host_and_device_agree_to_the_bit(num_envs: int, ends: float) -> None:
    host, device = statistics(num_envs), statistics(num_envs, on_device=True)
    for index, (reward, ended) in enumerate(steps(num_envs, 60, seed=3, ends=ends)):
        host.add(reward, ended)
        device.add(reward, ended)
        if index % 17 == 0:
            assert host.read() == device.read()
    assert_same_state(host.state_dict(), device.state_dict())


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_more_ends_at_once_than_the_window_keep_the_last_ones(on_device: bool) -> None:
    tracked = statistics(250, on_device=on_device)
    tracked.add(torch.arange(250.0), torch.ones(250, dtype=torch.bool))
    assert tracked.read()["collect/return_mean"] == pytest.approx(sum(range(150, 250)) / 100)


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_a_saved_count_goes_on_where_it_was(on_device: bool) -> None:
    straight, stopped = statistics(5, on_device=on_device), statistics(5, on_device=on_device)
    for index, (reward, ended) in enumerate(steps(5, 120, seed=8)):
        straight.add(reward, ended)
        stopped.add(reward, ended)
        if index % 13 == 0:
            assert straight.read() == stopped.read()
            state = copied(stopped.state_dict())
            stopped = statistics(5, on_device=on_device)
            stopped.load_state_dict(state)
    assert straight.read() == stopped.read()


def test_each_row_counts_its_own_episodes_and_the_best_mean_stays() -> None:
    tracked = statistics(1)
    end = torch.tensor([True])
    tracked.add(torch.tensor([10.0]), end)
    assert tracked.read()["collect/episodes"] == 1
    tracked.add(torch.tensor([0.0]), end)
    tracked.add(torch.tensor([2.0]), end)
    row = tracked.read()
    assert row["collect/episodes"] == 2
    assert row["collect/return_mean"] == pytest.approx(4.0)
    assert row["collect/return_best"] == 10.0
    assert tracked.read()["collect/episodes"] == 0


def test_new_episodes_after_a_restart_begin_from_nothing() -> None:
    tracked = statistics(2)
    tracked.add(torch.tensor([5.0, 5.0]), torch.tensor([False, True]))
    tracked.restart()
    tracked.add(torch.tensor([1.0, 1.0]), torch.tensor([True, True]))
    assert tracked.read()["collect/return_mean"] == pytest.approx((5 + 1 + 1) / 3)


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_the_tasks_own_returns_are_those_of_the_same_episodes(on_device: bool) -> None:
    tracked, plain = statistics(6, on_device=on_device), statistics(6, on_device=on_device)
    taken = steps(6, 200, seed=4)
    for index, (raw, ended) in enumerate(taken):
        tracked.add(raw.sign(), ended, raw)
        plain.add(raw, ended)
        if index % 40 == 3:
            state = copied(tracked.state_dict())
            tracked = statistics(6, on_device=on_device)
            tracked.load_state_dict(state)
    row, expected = tracked.read(), plain.read()
    assert row["collect/raw_return_mean"] == expected["collect/return_mean"]
    assert row["collect/raw_return_std"] == expected["collect/return_std"]
    assert row["collect/return_mean"] != expected["collect/return_mean"]
    assert "collect/raw_return_mean" not in expected


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_of_episodes_that_began_before_the_tasks_own_rewards_were_known_nothing_is_said(on_device: bool) -> None:
    tracked = statistics(2, on_device=on_device)
    nothing, first, both = torch.tensor([False, False]), torch.tensor([True, False]), torch.tensor([True, True])
    tracked.add(torch.ones(2), first)
    tracked.add(torch.ones(2), nothing)
    tracked.add(torch.ones(2), nothing, torch.full((2,), 5.0))
    assert "collect/raw_return_mean" not in tracked.read()
    tracked.add(torch.ones(2), both, torch.full((2,), 5.0))
    assert "collect/raw_return_mean" not in tracked.read()
    tracked.add(torch.ones(2), both, torch.full((2,), 7.0))
    assert tracked.read()["collect/raw_return_mean"] == 7.0


def test_long_returns_keep_their_digits() -> None:
    tracked: Any = statistics(1)
    for _ in range(10_000):
        tracked.add(torch.tensor([0.1]), torch.tensor([False]))
    tracked.add(torch.tensor([0.1]), torch.tensor([True]))
    assert tracked.read()["collect/return_mean"] == pytest.approx(1000.1, abs=1e-4)
