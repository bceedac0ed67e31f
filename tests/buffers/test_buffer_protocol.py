"""What every registered buffer promises, whatever it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from etude.buffers.base import Buffer
from etude.config.registry import buffers
from etude.config.schema import Config, EnvironmentConfig, ExperimentConfig
from etude.workflows.ppo import PPOConfig

N, T = 3, 8
CONFIG = Config(
    experiment=ExperimentConfig(device="cpu"),
    environment=EnvironmentConfig(id="CartPole-v1", num_envs=N),
    algorithm=PPOConfig(rollout_steps=T),
)

SMALL = {"capacity": T * N + 1, "min_size": T * N}
OPTIONS: dict[str, dict[str, Any]] = {
    "replay": SMALL,
    "prioritized": SMALL,
    "hindsight": {**SMALL, "ratio": 0.0},  # with others, rewards are not those that were written
}


def make(name: str) -> Buffer:
    cls = buffers.resolve(name)
    return cls.build(cls.Config(**OPTIONS.get(name, {})), CONFIG, "store")


def row(t: int) -> dict[str, Any]:
    """Row t holds 100·t + environment in every column, so that mixed-up rows are seen."""
    mark = 100 * t + torch.arange(N)
    return {
        "observation": {"vector": mark[:, None].float().expand(N, 2), "picture": mark.to(torch.uint8)[:, None, None]},
        "is_first": torch.zeros(N, dtype=torch.bool),
        "action": mark,
        "reward": mark.float(),
        "terminated": mark % 2 == 0,
        "truncated": torch.zeros(N, dtype=torch.bool),
        "next_observation": {"vector": mark[:, None].float() + 100, "picture": mark.to(torch.uint8)[:, None, None] + 1},
    }


def leaves(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, Tensor):
        yield tree


# A dataset is read, never written to: what it promises is in tests/datasets/test_buffer.py.
@pytest.fixture(params=[name for name in buffers.names() if name != "dataset"])
def buffer(request: pytest.FixtureRequest) -> Buffer:
    return make(request.param)


@pytest.fixture
def fresh(buffer: Buffer, request: pytest.FixtureRequest) -> Buffer:
    """Another of the same kind."""
    return make(request.node.callspec.params["buffer"])


def fill(buffer: Buffer, steps: int = T, first: int = 0) -> None:
    for t in range(first, first + steps):
        buffer.add(row(t))


def test_it_begins_empty_and_not_ready(buffer: Buffer) -> None:
    assert buffer.size == 0
    assert not buffer.ready
    assert buffer.nbytes == 0


def test_it_counts_transitions_and_becomes_ready(buffer: Buffer) -> None:
    for t in range(T):
        assert buffer.size == t * N
        buffer.add(row(t))
    assert buffer.size == T * N
    assert buffer.ready
    assert buffer.nbytes > 0


def test_a_sample_is_whole_rows_of_what_was_written(buffer: Buffer) -> None:
    fill(buffer)
    batch = buffer.sample(500, Generator().manual_seed(0))
    marks = batch["action"]
    assert marks.shape == (500,)
    assert set(marks.tolist()) == {100 * t + i for t in range(T) for i in range(N)}
    assert torch.equal(batch["reward"], marks.float())
    assert torch.equal(batch["observation"]["vector"], marks[:, None].float().expand(500, 2))
    assert torch.equal(batch["observation"]["picture"][:, 0, 0], marks.to(torch.uint8))
    assert torch.equal(batch["terminated"], marks % 2 == 0)


def test_a_sample_depends_on_its_generator_alone(buffer: Buffer) -> None:
    fill(buffer)
    before = torch.get_rng_state()
    first = buffer.sample(20, Generator().manual_seed(4))["action"]
    assert torch.equal(first, buffer.sample(20, Generator().manual_seed(4))["action"])
    assert not torch.equal(first, buffer.sample(20, Generator().manual_seed(5))["action"])
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_are_copied_in(buffer: Buffer) -> None:
    given = row(0)
    buffer.add(given)
    given["reward"].fill_(-1.0)
    assert (buffer.sample(50, Generator().manual_seed(0))["reward"] >= 0).all()


def test_samples_are_copies(buffer: Buffer) -> None:
    fill(buffer)
    buffer.sample(10, Generator().manual_seed(0))["reward"].fill_(-1.0)
    assert (buffer.sample(100, Generator().manual_seed(1))["reward"] >= 0).all()


def test_clearing_forgets_everything_and_keeps_the_memory(buffer: Buffer) -> None:
    fill(buffer)
    places = [tensor.data_ptr() for tensor in leaves(buffer.columns)]
    buffer.clear()
    assert buffer.size == 0
    assert not buffer.ready
    fill(buffer, first=50)
    assert [tensor.data_ptr() for tensor in leaves(buffer.columns)] == places
    assert buffer.sample(100, Generator().manual_seed(0))["action"].min() >= 5_000


@pytest.mark.parametrize("steps", [0, 1, T - 3, T])
def test_a_saved_buffer_goes_on_where_it_was(buffer: Buffer, fresh: Buffer, steps: int) -> None:
    fill(buffer, steps)
    fresh.load_state_dict(buffer.state_dict())
    assert fresh.size == buffer.size
    assert fresh.ready == buffer.ready
    assert fresh.room == buffer.room
    for t in range(steps, T):
        buffer.add(row(t))
        fresh.add(row(t))
    ours, theirs = (b.sample(100, Generator().manual_seed(0)) for b in (buffer, fresh))
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(leaves(ours), leaves(theirs), strict=True))


def test_loading_goes_into_memory_that_exists(buffer: Buffer) -> None:
    fill(buffer, 3)
    saved = _copied(buffer.state_dict())
    fill(buffer, T - 3, first=3)
    places = [tensor.data_ptr() for tensor in leaves(buffer.columns)]
    buffer.load_state_dict(saved)
    assert [tensor.data_ptr() for tensor in leaves(buffer.columns)] == places
    assert buffer.size == 3 * N


def test_a_thousand_refills_take_no_more_memory(buffer: Buffer) -> None:
    fill(buffer)
    places, size = [tensor.data_ptr() for tensor in leaves(buffer.columns)], buffer.nbytes
    rows = [row(t) for t in range(T)]
    for _ in range(1_000):
        buffer.clear()
        for one in rows:
            buffer.add(one)
    assert [tensor.data_ptr() for tensor in leaves(buffer.columns)] == places
    assert buffer.nbytes == size


def _copied(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    return tree.clone() if isinstance(tree, Tensor) else tree
