"""Stacks put together from single frames are the stacks that came in, and take a fraction of their memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from etude.buffers.hindsight import Hindsight
from etude.buffers.replay import ReplayBuffer
from etude.config.schema import EnvironmentConfig
from etude.environments.make import make_environment
from etude.environments.wrappers.stacking import StackConfig
from etude.errors import UserError
from tests.runs_compared import assert_same_run, resume, stopped_after, train

K, N, ROWS = 4, 2, 20


def _rows(steps: int, *, start: str = "repeat", shape: tuple[int, ...] = (3, 5), channels: int = 2) -> list[dict[str, Any]]:
    """Steps of two environments whose episodes end now and then, terminated or cut."""
    generator = torch.Generator().manual_seed(1)

    def frame() -> torch.Tensor:
        return torch.randint(1, 256, (channels, *shape), generator=generator).to(torch.uint8)

    def begun() -> torch.Tensor:
        first = frame()
        past = first if start == "repeat" else torch.zeros_like(first)
        return torch.stack([past] * (K - 1) + [first])

    stacks, is_first, rows = [begun() for _ in range(N)], [True] * N, []
    for t in range(steps):
        led_to = [torch.cat([stack[1:], frame()[None]]) for stack in stacks]
        ends = [bool(torch.rand((), generator=generator) < 0.2) for _ in range(N)]
        rows.append(
            {
                "observation": torch.stack(stacks).flatten(1, 2),
                "next_observation": torch.stack(led_to).flatten(1, 2),
                "reward": torch.arange(N) + 10.0 * t,
                "is_first": torch.tensor(is_first),
                "terminated": torch.tensor([end and (t + e) % 2 == 0 for e, end in enumerate(ends)]),
                "truncated": torch.tensor([end and (t + e) % 2 == 1 for e, end in enumerate(ends)]),
            }
        )
        stacks, is_first = [begun() if end else stack for stack, end in zip(led_to, ends, strict=True)], ends
    return rows


def _assert_alike(single: ReplayBuffer, stacked: ReplayBuffer) -> None:
    """Every transition that can be drawn is, in every column, what the buffer of whole stacks holds there."""
    every = torch.arange(single.bounds.count)
    places = single.places.find({"place": every}, torch.device("cpu"))["index"]
    assert len(places.unique()) == len(every)
    found, expected = (buffer.gather(buffer.tensors(), {"index": places}) for buffer in (single, stacked))
    for key in expected:
        assert torch.equal(found[key], expected[key]), key


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("start", ["repeat", "zeros"])
def test_every_stack_is_the_one_that_came_in(start: str, n_step: int) -> None:
    single, stacked = (ReplayBuffer(ROWS * N, N, n_step=n_step, gamma=0.9, frame_stack=k) for k in (K, None))
    for t, row in enumerate(_rows(3 * ROWS, start=start)):
        for buffer in (single, stacked):
            buffer.add(row)
        _assert_alike(single, stacked)
        lost = K - 1 if t >= ROWS else 0
        assert single.bounds.count == (min(t + 1, ROWS) - lost) * N


def test_frames_take_their_share_of_the_memory() -> None:
    single, stacked = (ReplayBuffer(100, N, frame_stack=k) for k in (K, None))
    for buffer in (single, stacked):
        buffer.add(_rows(1, shape=(84, 84), channels=1)[0])
    assert stacked.nbytes / single.nbytes == pytest.approx(K, rel=0.01)


def test_a_buffer_that_was_saved_puts_the_same_stacks_together() -> None:
    rows = _rows(2 * ROWS, start="zeros")
    buffers = [ReplayBuffer(ROWS * N, N, frame_stack=k) for k in (K, None)]
    for row in rows[: ROWS + 7]:
        for buffer in buffers:
            buffer.add(row)
    loaded = ReplayBuffer(ROWS * N, N, frame_stack=K)
    loaded.load_state_dict(buffers[0].state_dict())
    for row in rows[ROWS + 7 :]:
        _assert_alike(loaded, buffers[1])
        for buffer in (loaded, buffers[1]):
            buffer.add(row)
    _assert_alike(loaded, buffers[1])


def test_a_run_with_stacks_of_observations_is_the_same_when_it_was_stopped(tmp_path: Any) -> None:
    words = (
        *("environment.wrappers=[{id: stack, count: 4}]", "environment.num_envs=2", "training.total_steps=120"),
        *("buffers.replay.frame_stack=4", "buffers.replay.capacity=60", "algorithm.learning_starts=20"),
        *("algorithm.batch_size=8", "algorithm.train_every=2", "network.q.hidden_dims=[8]", "evaluation.every_steps=0"),
    )
    whole = train("CartPole-v1:dqn", tmp_path / "whole", *words)
    with stopped_after(17):
        parted = train("CartPole-v1:dqn", tmp_path / "parted", *words)
    resume(parted)
    assert_same_run(whole, parted)


def test_the_stack_wrapper_is_understood() -> None:
    config = EnvironmentConfig(id="CartPole-v1", num_envs=N, wrappers=(StackConfig(count=K),))
    environment = make_environment(config)
    single, stacked = (ReplayBuffer(ROWS * N, N, frame_stack=k) for k in (K, None))
    observation, is_first = environment.reset([1, 2])[0], torch.ones(N, dtype=torch.bool)
    for t in range(3 * ROWS):
        step = environment.step(torch.full((N,), t % 3 // 2))
        row = {"observation": observation, "next_observation": step.final_observation, "is_first": is_first}
        for buffer in (single, stacked):
            buffer.add({**row, "reward": step.reward, "terminated": step.terminated, "truncated": step.truncated})
        observation, is_first = step.observation, step.terminated | step.truncated
    _assert_alike(single, stacked)


def test_what_are_no_such_stacks_is_an_error_that_names_the_setting() -> None:
    row = _rows(1)[0]
    with pytest.raises(UserError, match=r"buffers.replay.frame_stack=3.*\(8, 3, 5\)"):
        ReplayBuffer(40, N, frame_stack=3).add(row)
    with pytest.raises(UserError, match="several parts"):
        ReplayBuffer(40, N, frame_stack=K).add({**row, "observation": {"a": row["observation"]}})
    odd = {**row, "observation": torch.arange(N * 8 * 15).view(N, 8, 3, 5)}
    with pytest.raises(UserError, match="neither their first frame nor zeros"):
        ReplayBuffer(40, N, frame_stack=K).add(odd)
    with pytest.raises(UserError, match=r"frame_stack=4: not with hindsight.*several parts"):
        ReplayBuffer(40, N, frame_stack=K, hindsight=Hindsight())
    with pytest.raises(UserError, match="holds only 3 steps"):
        ReplayBuffer(3 * N, N, frame_stack=K)
