from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from etude.buffers.columns import leaves
from etude.buffers.places import Prioritized, Priority
from etude.buffers.replay import PrioritizedReplayBuffer, ReplayBuffer
from etude.buffers.replay_config import PrioritizedConfig
from etude.config.schedules import Moment, Schedule
from etude.config.schema import Config, EnvironmentConfig, ExperimentConfig
from etude.runs.checkpoint import CheckpointStore
from tests.buffers.test_replay import Learner
from tests.buffers.transitions import transition

N = 2


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def make(rows: int = 10, alpha: float = 0.6, beta: Any = 1.0, smallest_priority: float = 1e-6, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(rows * N, N, priority=Priority(alpha, beta, smallest_priority), **options)


def tree(buffer: ReplayBuffer) -> Any:
    assert isinstance(buffer.places, Prioritized)
    return buffer.places.tree


def fill(buffer: ReplayBuffer, count: int) -> ReplayBuffer:
    for t in range(buffer.store.written, buffer.store.written + count):
        buffer.add(transition(t, N))
    return buffer


def rank(buffer: ReplayBuffer, priority: Tensor) -> None:
    """Give every slot its priority."""
    index = torch.arange(buffer.size)
    buffer.learned(index, buffer.store.generation(index), priority=priority)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_transitions_are_drawn_in_proportion_to_their_priority(alpha: float) -> None:
    buffer = fill(make(alpha=alpha, smallest_priority=1e-12), 10)
    priority = torch.arange(1.0, 21.0)
    rank(buffer, priority)
    counts, generator = torch.zeros(20), seeded()
    for _ in range(50):
        counts += torch.bincount(buffer.sample(4000, generator)["index"], minlength=20)
    expected = priority.pow(alpha) / priority.pow(alpha).sum()
    assert torch.allclose(counts / counts.sum(), expected, rtol=0.02, atol=0)


def test_weights_undo_the_uneven_sampling_and_the_largest_is_one() -> None:
    buffer = fill(make(alpha=0.7, beta=0.5, smallest_priority=1e-12), 10)
    priority = torch.rand(20, generator=seeded(5)) + 0.1
    rank(buffer, priority)
    batch = buffer.sample_many(3, 50, seeded())
    odds = priority.double().pow(0.7) / priority.double().pow(0.7).sum()
    weight = (20 * odds[batch["index"]]).pow(-0.5)
    expected = weight / weight.amax(-1, keepdim=True)
    assert batch["weight"].dtype == torch.float32
    assert torch.allclose(batch["weight"].double(), expected, rtol=1e-5)
    assert (batch["weight"].amax(-1) == 1).all()


def test_weights_with_beta_one_make_the_average_unbiased() -> None:
    buffer = fill(make(alpha=1.0, beta=1.0), 10)
    rank(buffer, torch.rand(20, generator=seeded(5)) + 0.1)
    batch = buffer.sample(20_000, seeded())
    weighted = (batch["weight"] * batch["reward"]).sum() / batch["weight"].sum()
    assert float(weighted) == pytest.approx(float(buffer.columns["reward"].mean()), rel=0.01)


def test_new_transitions_have_the_largest_priority_so_far() -> None:
    buffer = fill(make(alpha=1.0, smallest_priority=1e-9), 3)
    assert torch.allclose(buffer.sample(9, seeded())["weight"], torch.ones(9))
    rank(buffer, torch.tensor([5.0, 1, 1, 1, 1, 1]))
    rank(buffer, torch.tensor([2.0, 1, 1, 1, 1, 1]))
    fill(buffer, 1)
    buffer.sample(1, seeded())
    assert torch.allclose(tree(buffer).leaves[:8], torch.tensor([2.0, 1, 1, 1, 1, 1, 5, 5]).double())


def test_slots_overwritten_since_are_left_alone() -> None:
    buffer = fill(make(rows=4, alpha=1.0), 4)
    batch = buffer.sample(64, seeded())
    fill(buffer, 2)  # over rows 0 and 1: slots 0 to 3
    buffer.learned(batch["index"], batch["generation"], priority=torch.full((64,), 7.0))
    assert torch.allclose(tree(buffer).leaves, torch.tensor([1.0, 1, 1, 1, 7, 7, 7, 7]).double(), atol=1e-5)
    fill(buffer, 1)
    buffer.sample(1, seeded())
    assert tree(buffer).leaves[5] == pytest.approx(7, abs=1e-5), "the largest is of transitions that were still there"


def test_of_several_batches_the_last_decides_and_within_one_the_largest() -> None:
    buffer = fill(make(rows=2, alpha=1.0, smallest_priority=1e-12), 2)
    index = torch.tensor([[0, 1, 1], [1, 1, 2]])
    buffer.learned(index, buffer.store.generation(index), priority=torch.tensor([[9.0, 8, 8], [2, 3, 4]]))
    assert torch.allclose(tree(buffer).leaves, torch.tensor([9.0, 3, 4, 1]).double())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -2.0])
def test_a_priority_that_is_no_number_breaks_nothing(bad: float) -> None:
    buffer = fill(make(), 3)
    rank(buffer, torch.tensor([bad, 1, 1, 1, 1, 1]))
    assert tree(buffer).nodes.isfinite().all()
    assert buffer.sample(100, seeded())["weight"].isfinite().all()


def test_only_priorities_can_be_written_back() -> None:
    buffer = fill(make(), 3)
    batch = buffer.sample(2, seeded())
    with pytest.raises(TypeError, match="told priority by learning, not latent"):
        buffer.learned(batch["index"], batch["generation"], latent=torch.ones(2))


def test_many_batches_at_once_are_the_batches_one_by_one() -> None:
    buffer = fill(make(n_step=3, gamma=0.9), 15)
    rank(buffer, torch.rand(20, generator=seeded(5)))
    one, other = seeded(3), seeded(3)
    many = buffer.sample_many(4, 8, one)
    for k in range(4):
        single = buffer.sample(8, other)
        assert all(torch.equal(a[k], b) for a, b in zip(leaves(many), leaves(single), strict=True))


def test_beta_follows_its_schedule() -> None:
    config = Config(
        experiment=ExperimentConfig(device="cpu"), environment=EnvironmentConfig(num_envs=N), algorithm=Learner(gamma=0.9)
    )
    buffer = PrioritizedReplayBuffer.build(PrioritizedConfig(beta=Schedule.parse({"start": 0.4, "end": 1})), config, "b")
    places = buffer.places
    assert isinstance(places, Prioritized)
    assert (places.beta, buffer.steps.count, places.alpha) == (0.4, 3, 0.6)
    buffer.set_schedules(Moment(50, 100))
    assert places.beta == pytest.approx(0.7)
    buffer.set_schedules(Moment(100, 100))
    assert places.beta == 1.0


# ---- state ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 4, 10, 17])
def test_priorities_come_back_exactly_and_the_tree_with_them(steps: int, tmp_path: Path) -> None:
    buffer = fill(make(), steps)
    if steps:
        rank(buffer, torch.rand(buffer.size, generator=seeded(9)))
    fill(buffer, 1)  # not ranked yet when it is saved
    store = CheckpointStore(tmp_path / "checkpoints", keep=1)
    saved: Any = store.save({"rank/0": buffer.state_dict()}, counters={"env_steps": 1, "updates": 1}, metadata={}).load()
    loaded = make()
    loaded.load_state_dict(saved["rank/0"])
    assert torch.equal(tree(loaded).nodes, tree(buffer).nodes), "to the last bit"
    for _ in range(2):
        left, right = (each.sample_many(2, 30, seeded(1)) for each in (buffer, loaded))
        assert all(torch.equal(a, b) for a, b in zip(leaves(left), leaves(right), strict=True))
        for each, batch in ((buffer, left), (loaded, right)):
            each.learned(batch["index"], batch["generation"], priority=batch["reward"] / 1000)
            fill(each, 3)


@pytest.mark.parametrize("rows", [3, 30])
def test_another_capacity_keeps_each_transitions_priority(rows: int) -> None:
    buffer = fill(make(rows=8, alpha=1.0, smallest_priority=1e-9), 13)
    index = torch.arange(16)
    buffer.learned(index, buffer.store.generation(index), priority=buffer.store.flat["action"].double())
    loaded = make(rows=rows, alpha=1.0, smallest_priority=1e-9)
    loaded.load_state_dict(buffer.state_dict())
    marks = loaded.store.flat["action"][: loaded.size]
    assert torch.allclose(tree(loaded).leaves[: loaded.size], marks.double())
    assert loaded.size == min(rows, 8) * N


def test_another_alpha_holds_for_what_was_saved_too() -> None:
    buffer = fill(make(alpha=0.5, smallest_priority=1e-12), 3)
    priority = torch.tensor([4.0, 9, 16, 25, 36, 49])
    rank(buffer, priority)
    loaded = make(alpha=1.0)
    loaded.load_state_dict(buffer.state_dict())
    assert torch.allclose(tree(loaded).leaves[:6], priority.double())


def test_clearing_forgets_priorities() -> None:
    buffer = fill(make(), 10)
    rank(buffer, torch.rand(20, generator=seeded()))
    buffer.clear()
    assert tree(buffer).total == 0
    fill(buffer, 1)
    assert set(buffer.sample(50, seeded())["index"].tolist()) == {0, 1}
