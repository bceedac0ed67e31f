"""A replay holds what its capacity, its bytes, memory and the disk allow, and says so before the run begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Generator

from etude.buffers import room
from etude.buffers.base import ColumnSpecs
from etude.buffers.replay import ReplayBuffer
from etude.config.compose import compose
from etude.config.schema import Config
from etude.errors import ConfigError, UserError
from etude.training import assembly, run_facts
from etude.workflows.base import ActResult
from tests.buffers.off_policy_double import LinearQ
from tests.buffers.transitions import transition

N = 4
BYTES = sum(part[0].nbytes for part in (*transition(0, N)["observation"].values(), *(
    transition(0, N)[name] for name in ("action", "reward", "is_first", "terminated", "truncated")))) + 8  # fmt: skip


class Latents(LinearQ):
    """Adds a latent to each transition, and says so."""

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        return {"memory": {"type": "replay", "capacity": 1000, "rewritten": ["latent"]}}

    @classmethod
    def extra_columns(cls, config: Config, observation_space: Any, action_space: Any) -> ColumnSpecs:
        return {"latent": ((32, 4), torch.bfloat16)}

    def act(self, *arguments: Any, **options: Any) -> ActResult:
        result = super().act(*arguments, **options)
        return result._replace(extras={"latent": torch.zeros(len(result.action), 32, 4, dtype=torch.bfloat16)})


class Undeclared(Latents):
    """Does not say so."""

    @classmethod
    def extra_columns(cls, config: Config, observation_space: Any, action_space: Any) -> ColumnSpecs:
        return {}


class Camera(gymnasium.Env[Any, Any]):
    """Shows 64 × 64 pictures."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({
            "camera": spaces.Box(0, 255, (3, 64, 64), np.uint8), "joints": spaces.Box(-1, 1, (6,))
        })  # fmt: skip
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {}


def build(spec: str, *words: str, **options: Any) -> Any:
    return assembly.build(assembly.resolve(compose(spec, words=[*words, "experiment.device=cpu"]).config), **options)


def test_bytes_decide_where_they_are_reached_before_the_capacity(capsys: pytest.CaptureFixture[str]) -> None:
    buffer = ReplayBuffer(100_000, N, max_bytes=2000 * BYTES)
    for t in range(1000):
        buffer.add(transition(t, N))
    assert 1600 * BYTES < buffer.nbytes <= 2000 * BYTES
    assert buffer.is_full
    assert f"more than max_bytes=84.0 KiB; it holds {buffer.capacity:,}" in capsys.readouterr().err
    assert buffer.reduced_to is None, "it is as asked"
    roomy = ReplayBuffer(400, N, max_bytes=2000 * BYTES)
    roomy.add(transition(0, N))
    assert roomy.capacity == 400


def test_a_size_may_have_a_unit_and_nonsense_is_refused() -> None:
    for text, size in (("8GB", 8 * 10**9), ("'1.5 MiB'", 3 * 2**19), ("2000000", 2 * 10**6), ("64kb", 64000)):
        config = compose("CartPole-v1:dqn", words=[f"buffers.replay.max_bytes={text}"]).config
        assert config.buffers["replay"].max_bytes == size
    for text in ("8GX", "much", "-3GB", "GB"):
        with pytest.raises(ConfigError, match=r"buffers.replay.max_bytes=.*: must be a number of bytes, such as 8GB or 500MB"):
            compose("CartPole-v1:dqn", words=[f"buffers.replay.max_bytes={text}"])
    with pytest.raises(ConfigError, match=r"buffers.replay.max_bytes=0: must be at least 1"):
        compose("CartPole-v1:dqn", words=["buffers.replay.max_bytes=0"])


def test_what_is_taken_is_said_before_the_run_begins_and_is_what_is_taken() -> None:
    orchestrator = build(
        "CartPole-v1:tests.buffers.test_room.Latents", "environment.num_envs=2", "buffers.memory.max_bytes=50KB"
    )
    buffer = orchestrator.buffers["memory"]
    reduced, said = buffer.notes()
    held, expected = buffer.capacity, sum(buffer.room_for.expected.values())
    assert reduced.endswith(f"more than max_bytes=48.8 KiB; it holds {held:,}")
    assert "on cpu (" in said
    assert f"{held * 256 / 1024:.1f} KiB of columns that learning rewrites" in said
    assert "not counted" not in said
    orchestrator.begin()
    orchestrator._run_cycle()
    assert buffer.capacity == held
    assert expected * 0.95 < buffer.nbytes <= 50_000
    assert f"capacity: 1000\n    max_bytes: {50_000}" in run_facts.resolved_yaml(
        orchestrator.workflow.context.config, orchestrator
    )
    orchestrator.close()


def test_columns_that_nobody_declares_are_said_to_be_missing_and_count_all_the_same() -> None:
    orchestrator = build("CartPole-v1:tests.buffers.test_room.Undeclared", "buffers.memory.max_bytes=50KB")
    buffer = orchestrator.buffers["memory"]
    assert "latent come with the first step and are not counted" in buffer.notes()[-1]
    orchestrator.begin()
    orchestrator._run_cycle()
    assert buffer.nbytes <= 50_000
    orchestrator.close()


def test_bytes_that_hold_less_than_learning_starts_with_are_refused() -> None:
    with pytest.raises(UserError, match=r"more than max_bytes=2.0 KiB; it holds \d+, and learning starts at 50 "):
        build("CartPole-v1:tests.buffers.off_policy_double.LinearQ", "buffers.memory.max_bytes=2KiB")


def test_other_bytes_after_a_resume_hold_other_steps() -> None:
    small, large = (ReplayBuffer(4000, N, max_bytes=size * BYTES) for size in (100, 1000))
    for t in range(100):
        small.add(transition(t, N))
    large.load_state_dict(small.state_dict())
    assert large.size == small.size
    for t in range(100, 140):
        large.add(transition(t, N))
    assert large.size == small.size + 40 * N
    again = ReplayBuffer(4000, N, max_bytes=50 * BYTES)
    again.load_state_dict(large.state_dict())
    assert 25 * BYTES < again.nbytes <= 50 * BYTES
    assert int(again.sample(200, Generator().manual_seed(0))["action"].max()) // 1000 == 139, "the newest"


@pytest.fixture
def camera() -> Any:
    gymnasium.register("Camera-v0", entry_point=lambda **_: Camera())
    yield
    del gymnasium.registry["Camera-v0"]


WORDS = ("buffers.rollout.type=replay", "buffers.rollout.storage=disk", "environment.num_envs=2")


def test_frames_on_disk_are_counted_apart(camera: Any, tmp_path: Path) -> None:
    orchestrator = build("Camera-v0:random", *WORDS, "buffers.rollout.capacity=100000", folder=tmp_path)
    (said,) = orchestrator.buffers["rollout"].notes()
    memory, disk = said.split(", and ")
    assert "about" in memory
    assert "MiB on cpu" in memory
    assert disk.startswith("1.4 GiB of frames on the disk of "), "100,000 frames of 12,288 bytes, and room for ends"
    assert f"{tmp_path} (as much again in checkpoints); learning starts at" in disk
    orchestrator.close()


def test_observations_that_are_too_small_for_a_file_are_said_so_and_stay_in_memory(tmp_path: Path) -> None:
    buffer = build("CartPole-v1:random", *WORDS, folder=tmp_path).buffers["rollout"]
    assert "; observations are too small for a file and stay in memory; learning starts at" in buffer.notes()[-1]
    assert buffer.is_tensor_function


def test_a_disk_that_is_too_small_is_told_before_the_run_begins(
    camera: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "free_disk", lambda folder: 10**9)
    orchestrator = build("Camera-v0:random", *WORDS, "buffers.rollout.capacity=1000000", folder=tmp_path)
    reduced, said = orchestrator.buffers["rollout"].notes()
    assert f"do not fit into the 953.7 MiB free on the disk of {tmp_path}; it holds" in reduced
    assert "762.9 MiB of frames on the disk" in said, "four fifths"
    buffer = orchestrator.buffers["rollout"]
    for _ in range(2):
        assert buffer.reduced_to == buffer.capacity < 100_000
        orchestrator.begin()
        orchestrator._run_cycle()
    orchestrator.close()
    with pytest.raises(UserError, match="on_low_memory=shrink"):
        build("Camera-v0:random", *WORDS, "buffers.rollout.capacity=1000000", "buffers.rollout.on_low_memory=strict",
              folder=tmp_path)  # fmt: skip


def test_a_folder_that_is_not_there_yet_is_on_the_disk_of_the_nearest_above(tmp_path: Path) -> None:
    assert room.free_disk(tmp_path / "not" / "yet") is not None
