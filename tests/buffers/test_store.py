"""Every observation lies once: what that takes, what gives way when ends have no more room, and what learning writes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from etude.buffers import store
from etude.buffers.replay import ReplayBuffer
from etude.runs.checkpoint import CheckpointStore
from tests.buffers.test_hindsight import distance_reward
from tests.buffers.test_hindsight import make as make_hindsight
from tests.buffers.test_hindsight import row as goal_row
from tests.buffers.transitions import transition


def frames(shape: tuple[int, ...]) -> dict[str, Any]:
    seen = torch.zeros((2, *shape), dtype=torch.uint8)
    flags = torch.zeros(2, dtype=torch.bool)
    rest = {"is_first": ~flags, "action": torch.zeros(2, dtype=torch.int64), "reward": torch.ones(2)}
    return {"observation": seen, **rest, "terminated": flags, "truncated": flags, "next_observation": seen}


@pytest.mark.parametrize(("shape", "stack", "most"), [((4, 84, 84), 4, 7_500), ((3, 64, 64), None, 12_600)])
def test_a_million_pictures_take_little_more_than_once_their_size(
    shape: tuple[int, ...], stack: int | None, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ROOM_FOR_ENDS", store.ROOM_FOR_ENDS // 1000)  # a thousandth of everything
    buffer = ReplayBuffer(1000, 2, frame_stack=stack)
    buffer.add(frames(shape))
    assert buffer.nbytes / 1000 <= most + shape[-1] ** 2 * 3 * 2 / 1000, "and one slot more"
    assert buffer.store.ends * 2 >= 1000 / 100, "episodes of a hundred steps have room for their ends"


def test_where_ends_have_no_more_room_the_oldest_steps_go_and_the_rest_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ROOM_FOR_ENDS", 0)  # four for each environment
    buffer = ReplayBuffer(40, 2)
    for t in range(31):  # every other step is an end
        buffer.add(transition(t, 2, terminated=[t % 2 == 1] * 2, is_first=[t % 2 == 0] * 2))
    assert buffer.store.held == 9, "those since the end before the last four"
    assert buffer.is_full
    batch = buffer.sample(300, Generator().manual_seed(0))
    led = torch.where(batch["terminated"], batch["action"] + 0.5, batch["action"] + 1000.0)
    assert torch.equal(batch["next_observation"]["vector"][:, 0], led.double())
    assert set((batch["action"] // 1000).tolist()) == set(range(22, 31))


def test_several_rewards_are_those_of_the_other_goal() -> None:
    buffer = make_hindsight(20, 1, ratio=1e9, n_step=3, gamma=0.5)
    for t in range(12):
        buffer.add(goal_row(t, 1, [t % 6 == 5], [t % 6 == 0]))
    batch = buffer.sample(200, Generator().manual_seed(0))
    for k in range(200):
        t, goal = int(batch["action"][k]) // 1000, batch["observation"]["desired_goal"][k]
        last = min(t + 2, t - t % 6 + 5)
        wanted = sum(0.5**j * distance_reward(torch.tensor([1000.0 * (t + j)]), goal) for j in range(last - t + 1))
        torch.testing.assert_close(batch["reward"][k], wanted)
        assert batch["next_observation"]["achieved_goal"][k] == 1000.0 * last
        assert float(batch["discount"][k]) == (0.0 if last % 6 == 5 else 0.5**3)


def test_what_learning_rewrites_comes_back_in_sequences_and_after_a_resume(tmp_path: Path) -> None:
    def make() -> ReplayBuffer:
        return ReplayBuffer(16, 2, sequence=3, rewritten=("latent",))

    buffer = make()
    for t in range(13):
        buffer.add({**transition(t, 2, is_first=[t % 5 == 0] * 2), "latent": torch.full((2, 4), -1.0, dtype=torch.bfloat16)})
    batch = buffer.sample(40, Generator().manual_seed(0))
    assert batch["latent"].shape == (40, 3, 4)
    assert torch.equal(batch["action"] // 1000, batch["action"][:, :1] // 1000 + torch.arange(3)), "in a row, across episodes"
    latent = (batch["action"] % 97).to(torch.bfloat16)[..., None].expand(40, 3, 4)
    buffer.add({**transition(13, 2), "latent": torch.full((2, 4), -1.0, dtype=torch.bfloat16)})  # over step 5
    buffer.learned(batch["index"], batch["generation"], latent=latent)
    saves = CheckpointStore(tmp_path / "checkpoints", keep=1)
    saved: Any = saves.save({"rank/0": buffer.state_dict()}, counters={"env_steps": 1, "updates": 1}, metadata={}).load()
    loaded = make()
    loaded.load_state_dict(saved["rank/0"])
    for each in (buffer, loaded):
        again = each.sample(200, Generator().manual_seed(1))
        seen = again["latent"][..., 0].float()
        is_new = seen != -1
        assert torch.equal(seen[is_new], (again["action"] % 97).float()[is_new])
        assert is_new.any()
        assert not is_new[again["action"] // 1000 == 13].any(), "which was written over what was learnt"
