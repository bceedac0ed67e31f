from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Generator

from etude.buffers import base, room
from etude.buffers.columns import leaves, map_columns
from etude.buffers.replay import ReplayBuffer, ReplayConfig
from etude.config.algorithm import AlgorithmSettings
from etude.config.compose import compose
from etude.config.schema import Config, EnvironmentConfig, ExperimentConfig
from etude.errors import EtudeError, UserError
from etude.training import assembly, run_facts
from tests.buffers.transitions import transition


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def filled(steps: int, capacity: int = 100, num_envs: int = 3, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, num_envs, **options)
    for t in range(steps):
        buffer.add(transition(t, num_envs))
    return buffer


# ---- windows and single steps ---------------------------------------------------------------------------------------


def test_single_steps_are_drawn_from_a_buffer_of_windows() -> None:
    buffer = filled(12, sequence=4)
    windows, single = (buffer.sample_many(2, 5, seeded(3), ("action",), single=one) for one in (False, True))
    assert windows["action"].shape == (2, 5, 4)
    assert torch.equal(single["action"], windows["action"][..., 0])
    assert torch.equal(single["index"], windows["index"][..., 0])


@pytest.mark.parametrize("steps", [3, 5, 13])
@pytest.mark.parametrize("sequence", [None, 3])
def test_everything_that_is_held_is_walked_through_in_order(steps: int, sequence: int | None) -> None:
    buffer = filled(steps, capacity=16, sequence=sequence, rewritten=("reward",))
    held = [1000 * t + i for t in range(max(0, steps - 5), steps) for i in range(3)]
    walked = list(buffer.walk(("action", "observation"), first=0, at_once=7, device=torch.device("cpu")))
    assert max(len(batch["action"]) for batch in walked) <= 6  # two whole steps of three environments
    assert torch.cat([batch["action"] for batch in walked]).tolist() == held
    assert torch.cat([batch["observation"]["vector"][:, 0] for batch in walked]).tolist() == held
    later = buffer.walk(("action",), first=steps - 1, at_once=1, device=torch.device("cpu"))
    assert torch.cat([batch["action"] for batch in later]).tolist() == held[-3:]
    for batch in walked:
        buffer.learned(batch["index"], batch["generation"], reward=2.0 * batch["action"])
    drawn = buffer.sample(50, seeded(), ("action", "reward"))
    assert torch.equal(drawn["reward"], 2.0 * drawn["action"])


# ---- the ring -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 4, 5, 6, 13])
def test_the_newest_transitions_are_held_and_the_oldest_overwritten(steps: int) -> None:
    buffer = filled(steps, capacity=16)  # 5 rows of 3
    expected = {1000 * t + i for t in range(max(0, steps - 5), steps) for i in range(3)}
    batch = buffer.sample(2000, seeded())
    assert set(batch["action"].tolist()) == expected
    assert buffer.size == len(expected)
    assert torch.equal(batch["observation"]["vector"][:, 0], batch["action"].double())
    assert torch.equal(batch["next_observation"]["vector"][:, 0], batch["action"] + 1000.0)


def test_types_and_shapes_are_kept() -> None:
    batch = filled(4).sample(7, seeded())
    assert batch["observation"]["picture"].dtype == torch.uint8
    assert batch["observation"]["picture"].shape == (7, 1, 2, 2)
    assert batch["observation"]["vector"].dtype == torch.float64
    assert batch["terminated"].dtype == torch.bool
    assert batch["reward"].shape == batch["discount"].shape == (7,)


def test_sampling_is_uniform() -> None:
    """Chi-square with 29 degrees of freedom: above 65.3 once in 10,000 times, and the seed is fixed."""
    buffer = filled(23, capacity=30, num_envs=3)
    drawn = 30_000
    counts = torch.bincount(buffer.sample(drawn, seeded(1))["index"], minlength=30).double()
    expected = drawn / 30
    assert ((counts - expected).square() / expected).sum() < 65.3


@pytest.mark.parametrize("n_step", [1, 3])
def test_many_batches_at_once_are_the_batches_one_by_one(n_step: int) -> None:
    buffer = filled(50, n_step=n_step, gamma=0.9)
    one_by_one, at_once, in_two = seeded(3), seeded(3), seeded(3)
    singles = [buffer.sample(8, one_by_one) for _ in range(5)]
    many = buffer.sample_many(5, 8, at_once)
    first, rest = buffer.sample_many(2, 8, in_two), buffer.sample_many(3, 8, in_two)
    for k, single in enumerate(singles):
        part, place = (first, k) if k < 2 else (rest, k - 2)
        for left, middle, right in zip(leaves(single), leaves(many), leaves(part), strict=True):
            assert torch.equal(left, middle[k])
            assert torch.equal(left, right[place])
    states = [generator.get_state() for generator in (one_by_one, at_once, in_two)]
    assert torch.equal(states[0], states[1])
    assert torch.equal(states[0], states[2])


def test_only_the_columns_asked_for_are_gathered() -> None:
    for n_step in (1, 2):
        buffer = filled(9, n_step=n_step)
        whole, part = buffer.sample(6, seeded()), buffer.sample(6, seeded(), columns=("observation", "reward"))
        assert set(part) == {"observation", "reward", "discount", "index", "generation"}
        assert all(torch.equal(part[key], whole[key]) for key in ("reward", "discount", "index"))


def test_a_slots_generation_counts_how_often_it_was_written_over() -> None:
    buffer = filled(12, capacity=5, num_envs=1)  # slots: 10 11 | 7 8 9
    batch = buffer.sample(200, seeded())
    assert torch.equal(batch["generation"], torch.where(batch["index"] < 2, 2, 1))
    assert torch.equal(batch["action"] // 1000, batch["generation"] * 5 + batch["index"])


def test_generations_never_come_twice_even_after_clearing() -> None:
    buffer = filled(3, capacity=5, num_envs=1)
    seen = {tuple(pair) for pair in _slots(buffer)}
    for _ in range(3):
        buffer.clear()
        assert buffer.size == 0
        buffer.add(transition(0, 1))
        now = {tuple(pair) for pair in _slots(buffer)}
        assert not seen & now
        seen |= now


def _slots(buffer: ReplayBuffer) -> list[list[int]]:
    batch = buffer.sample(50, seeded())
    return torch.stack([batch["index"], batch["generation"]], -1).tolist()


def test_an_empty_buffer_can_not_be_sampled() -> None:
    buffer = ReplayBuffer(10, 2, name="mine")
    with pytest.raises(IndexError, match="buffer 'mine' is empty"):
        buffer.sample(1, seeded())


def test_a_uniform_replay_has_nothing_to_learned() -> None:
    buffer = filled(3)
    batch = buffer.sample(2, seeded())
    with pytest.raises(TypeError, match="is told nothing by learning, not priority"):
        buffer.learned(batch["index"], batch["generation"], priority=torch.ones(2))


# ---- what the config says -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learner(AlgorithmSettings):
    name: str = "learner"
    batch_size: int = 32
    gamma: float = 0.9
    learning_starts: int = 70
    n_step: int = 3


@dataclass(frozen=True)
class Plain(AlgorithmSettings):
    name: str = "plain"
    batch_size: int = 32


def build(algorithm: Any, num_envs: int = 4, **options: Any) -> ReplayBuffer:
    config = Config(
        experiment=ExperimentConfig(device="cpu"), environment=EnvironmentConfig(num_envs=num_envs), algorithm=algorithm
    )
    return ReplayBuffer.build(ReplayConfig(**options), config, "memory")


def test_the_algorithm_says_when_to_start_and_how_far_to_look() -> None:
    buffer = build(Learner())
    assert (buffer.min_size, buffer.steps.count, buffer.steps.gamma) == (70, 3, 0.9)
    buffer = build(Plain())
    assert (buffer.min_size, buffer.steps.count, buffer.steps.gamma) == (32, 1, 1.0)


def test_its_own_options_come_first() -> None:
    buffer = build(Learner(), min_size=8, n_step=2, capacity=10)
    assert (buffer.min_size, buffer.steps.count, buffer.store.rows) == (8, 2, 2)
    for t in range(2):
        assert not buffer.ready
        buffer.add(transition(t, 4))
    assert buffer.ready


def test_several_steps_need_a_discount() -> None:
    with pytest.raises(UserError, match=r"buffers.memory.n_step=2: plain has no gamma"):
        build(Plain(), n_step=2)


def test_a_capacity_below_one_step_or_below_the_start_of_learning_is_refused() -> None:
    with pytest.raises(UserError, match=r"buffers.memory.capacity=3: must hold at least one step of all 4 environments"):
        build(Learner(), capacity=3)
    with pytest.raises(UserError, match=r"capacity=71: holds 68 transitions, and learning starts at 70"):
        build(Learner(), capacity=71)


def test_columns_nobody_needs_are_not_stored() -> None:
    buffer = build(Plain(), leave_out=("action", "is_first"))
    buffer.add(transition(0, 4))
    assert not {"action", "is_first"} & set(buffer.sample(3, seeded()))
    with pytest.raises(UserError, match=r"buffers.memory.leave_out: 'reward' is needed"):
        build(Plain(), leave_out=("reward",))
    with pytest.raises(UserError, match="'is_first' is needed for n_step"):
        build(Learner(), leave_out=("is_first",))


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_a_buffer_that_does_not_fit_shrinks_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    each = (
        base.bytes_per_transition(transition(0, 4)) + 8
    )  # both observations, where every step may be an end, and where they lie
    monkeypatch.setattr(room, "free_memory", lambda device: each * 1000)
    buffer = build(Plain(), capacity=4000)
    buffer.add(transition(0, 4))
    assert buffer.capacity == 796, "and one slot more"
    assert 790 * each < buffer.nbytes <= 800 * each
    said = capsys.readouterr().err
    assert "buffer 'memory': 4,000 transitions" in said
    assert "it holds 796" in said


def test_a_strict_buffer_that_does_not_fit_is_refused() -> None:
    buffer = build(Plain(), capacity=10**13, on_low_memory="strict")
    with pytest.raises(UserError, match=r"buffers.memory.capacity=10000000000000: .* do not fit into the [\d.]+ GiB free"):
        buffer.add(transition(0, 4))


def test_memory_is_looked_at_before_the_run_begins_and_what_it_decides_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["buffers.rollout.type=replay", "buffers.rollout.capacity=5000000"]
    config = assembly.resolve(compose("CartPole-v1:random", words=words).config)
    monkeypatch.setattr(room, "free_memory", lambda device: 55 * 1_000_000)  # CartPole: 2 · 16 + 8 + 7 + 8 bytes
    orchestrator = assembly.build(config)
    reduced, expected = orchestrator.buffers["rollout"].notes()
    assert reduced == (
        "buffer 'rollout': 5,000,000 transitions of 55 bytes do not fit into the 52.5 MiB free; it holds 799,992"
    )
    assert expected == (
        "buffer 'rollout': 799,992 transitions, about 42.0 MiB on cpu (29.8 MiB of steps, 12.2 MiB for ends of episodes); "
        "learning starts at 1"
    )
    assert "capacity: 799992" in run_facts.resolved_yaml(config, orchestrator)
    strict = assembly.resolve(compose("CartPole-v1:random", words=[*words, "buffers.rollout.on_low_memory=strict"]).config)
    with pytest.raises(UserError, match="on_low_memory=shrink"):
        assembly.build(strict)


def test_what_memory_decided_once_holds_after_a_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as tight:
        tight.setattr(room, "free_memory", lambda device: base.bytes_per_transition(transition(0, 4)) * 100)
        small = build(Plain(), capacity=4000)
        small.add(transition(0, 4))
    resumed = build(Plain(), capacity=4000)
    resumed.load_state_dict(small.state_dict())
    assert resumed.capacity == small.capacity == 68


@pytest.mark.parametrize("capacity", [12, 40])
def test_a_changed_capacity_keeps_the_newest_transitions(capacity: int) -> None:
    saved = filled(13, capacity=24, num_envs=3).state_dict()  # rows 5 to 12
    buffer = ReplayBuffer(capacity, 3)
    buffer.load_state_dict(saved)
    held = min(8, capacity // 3)
    assert set((buffer.sample(1000, seeded())["action"] // 1000).tolist()) == set(range(13 - held, 13))
    for t in range(13, 33):
        buffer.add(transition(t, 3))
    rows = capacity // 3
    assert set((buffer.sample(1000, seeded())["action"] // 1000).tolist()) == set(range(33 - rows, 33))


def test_another_number_of_environments_is_refused() -> None:
    saved = filled(3).state_dict()
    buffer = filled(2, num_envs=2)
    with pytest.raises(EtudeError, match=r"saved with 3 environments and can't go on with 2; set environment.num_envs back"):
        buffer.load_state_dict(saved)


def test_another_shape_is_refused() -> None:
    saved = filled(3).state_dict()
    buffer = ReplayBuffer(100, 3)
    buffer.add({**transition(0, 3), "action": torch.zeros(3, 2)})
    with pytest.raises(EtudeError, match=r"'action' was saved as int64 \(3,\) and is float32 \(3, 2\) now"):
        buffer.load_state_dict(saved)


def test_samples_share_no_memory_with_the_ring() -> None:
    buffer = filled(4)
    before = map_columns(buffer.columns, torch.clone)
    for column in leaves(buffer.sample(20, seeded())):
        column.zero_()
    assert all(torch.equal(one, other) for one, other in zip(leaves(before), leaves(buffer.columns), strict=True))
