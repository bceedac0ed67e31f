from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator

from etude.buffers import base
from etude.buffers.rollout import RolloutBuffer, flatten, minibatches, take
from etude.config.schema import Config, ExperimentConfig
from etude.errors import EtudeError, UserError
from etude.workflows.random_policy import RandomConfig


def filled(steps: int, num_envs: int = 2) -> RolloutBuffer:
    buffer = RolloutBuffer(steps)
    for t in range(steps):
        buffer.add({"reward": torch.full((num_envs,), float(t)), "value": 10.0 * t + torch.arange(num_envs)})
    return buffer


# ---- flattening -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (5,), (3, 8, 8)], ids=["scalar", "vector", "image"])
def test_flattening_puts_each_environments_steps_together_and_keeps_shapes(shape: tuple[int, ...]) -> None:
    T, N = 4, 3
    column = torch.arange(T * N).reshape(T, N, *[1] * len(shape)).expand(T, N, *shape)
    flat = flatten({"x": column})["x"]
    assert flat.shape == (N * T, *shape)
    for n in range(N):
        for t in range(T):
            assert torch.equal(flat[n * T + t], column[t, n])


def test_flattening_goes_into_dicts() -> None:
    observation = {"a": torch.zeros(4, 3, 2), "b": torch.zeros(4, 3, dtype=torch.uint8)}
    flat = flatten({"observation": observation, "reward": torch.ones(4, 3)})
    assert flat["observation"]["a"].shape == (12, 2)
    assert flat["observation"]["b"].shape == flat["reward"].shape == (12,)
    assert flat["observation"]["b"].dtype == torch.uint8


def test_taking_rows_goes_into_dicts() -> None:
    flat = {"observation": {"a": torch.arange(5.0)}, "reward": torch.arange(5)}
    taken = take(flat, torch.tensor([4, 0]))
    assert taken["observation"]["a"].tolist() == [4.0, 0.0]
    assert taken["reward"].tolist() == [4, 0]


# ---- minibatches ----------------------------------------------------------------------------------------------------


@given(parts=st.integers(1, 6), batch_size=st.integers(1, 7), epochs=st.integers(0, 4), seed=st.integers(0, 2**32))
def test_each_row_comes_once_a_pass(parts: int, batch_size: int, epochs: int, seed: int) -> None:
    size = parts * batch_size
    batches = list(minibatches(size, batch_size, epochs, Generator().manual_seed(seed)))
    assert [len(batch) for batch in batches] == [batch_size] * (parts * epochs)
    for epoch in range(epochs):
        seen = torch.cat(batches[epoch * parts : (epoch + 1) * parts])
        assert sorted(seen.tolist()) == list(range(size))


def test_each_pass_has_another_order() -> None:
    first, second = minibatches(50, 50, 2, Generator().manual_seed(0))
    assert first.tolist() != second.tolist()


def test_a_batch_that_does_not_divide_the_rollout_is_an_error() -> None:
    with pytest.raises(ValueError, match="a batch of 7 does not divide 20 rows"):
        list(minibatches(20, 7, 1, Generator()))


# ---- the rollout ----------------------------------------------------------------------------------------------------


def test_room_counts_down_and_a_full_rollout_takes_no_more() -> None:
    buffer = filled(3)
    assert buffer.room == 0
    with pytest.raises(IndexError, match="buffer 'rollout' is full"):
        buffer.add({"reward": torch.zeros(2), "value": torch.zeros(2)})
    buffer.clear()
    assert buffer.room == 3


def test_a_draw_is_the_whole_rollout_once() -> None:
    buffer = filled(4)
    batch = buffer.draw(1, Generator())
    assert batch["value"].tolist() == [[0.0, 1.0], [10.0, 11.0], [20.0, 21.0], [30.0, 31.0]]
    assert buffer.size == 0


def test_a_partial_rollout_is_not_sampled_beyond_what_was_written() -> None:
    buffer = filled(4)
    buffer.clear()
    buffer.add({"reward": torch.zeros(2), "value": torch.full((2,), -5.0)})
    assert (buffer.sample(50, Generator().manual_seed(0))["value"] == -5.0).all()


def test_only_the_rows_written_are_saved() -> None:
    buffer = filled(4)
    buffer.clear()
    buffer.add({"reward": torch.ones(2), "value": torch.ones(2)})
    state = buffer.state_dict()
    assert state["columns"]["value"].shape == (1, 2)


def test_a_shorter_rollout_refuses_a_longer_saved_one() -> None:
    with pytest.raises(EtudeError, match="room for 2 steps; the saved one holds 4"):
        RolloutBuffer(2).load_state_dict(filled(4).state_dict())


def test_a_rollout_needs_a_length() -> None:
    config = Config(experiment=ExperimentConfig(device="cpu"), algorithm=RandomConfig())
    with pytest.raises(UserError, match=r"buffers.mine.steps.*random does not say"):
        RolloutBuffer.build(RolloutBuffer.Config(), config, "mine")
    assert RolloutBuffer.build(RolloutBuffer.Config(steps=5), config, "mine").steps == 5


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_more_memory_than_is_free_is_a_clear_error_before_anything_is_taken() -> None:
    buffer = RolloutBuffer(10**12, "huge")
    with pytest.raises(EtudeError, match=r"buffer 'huge' needs [\d.]+ GiB and [\d.]+ GiB are free; make it smaller"):
        buffer.add({"reward": torch.zeros(4), "observation": {"picture": torch.zeros(4, 3, 64, 64)}})
    assert not buffer.columns


def test_what_is_asked_for_is_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    row: dict[str, Any] = {"reward": torch.zeros(4), "observation": {"a": torch.zeros(4, 3, dtype=torch.float64)}}
    needed = 10 * 4 * (4 + 24)
    monkeypatch.setattr(base, "free_memory", lambda device: needed)
    buffer = RolloutBuffer(10)
    buffer.add(row)
    assert buffer.nbytes == needed
    monkeypatch.setattr(base, "free_memory", lambda device: needed - 1)
    with pytest.raises(EtudeError, match="GiB are free"):
        RolloutBuffer(10).add(row)
