"""Robots on a GPU: steps that are recorded are the steps themselves; skipped where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.config.compose import compose
from etude.robots.environment import RobotVector
from etude.training import assembly, stored_config
from tests.runs_compared import resume, stopped_after, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
FULL = Path(__file__).parents[2] / "bench" / "robots" / "full.yaml"
ROBOTS = 64


def build(compile_: str) -> RobotVector:
    pytest.importorskip("mujoco_warp")
    words = ["experiment.device=cuda", f"experiment.compile={compile_}", f"environment.num_envs={ROBOTS}"]
    loop = assembly.build(assembly.resolve(compose("quadruped-flat:ppo", file=FULL, words=words).config))
    assert loop.collector is not None
    environment = loop.collector.environment.base
    assert isinstance(environment, RobotVector)
    environment.reset(range(ROBOTS))
    return environment


def actions(seed: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.rand(ROBOTS, 12, generator=generator, device="cuda") * 2 - 1


def leaves(tree: Any, path: str = "") -> dict[str, torch.Tensor]:
    if isinstance(tree, dict):
        return {name: leaf for key, value in tree.items() for name, leaf in leaves(value, f"{path}/{key}").items()}
    return {path: tree} if isinstance(tree, torch.Tensor) else {}


@pytest.mark.parametrize("compile_", ["capture", "on"])
def test_a_recorded_step_is_the_step_itself_from_the_same_state(compile_: str) -> None:
    recorded, plain = build(compile_), build("off")
    for seed in range(12):
        recorded.step(actions(seed))
    plain.load_state_dict(recorded.state_dict())
    ours, theirs = recorded.step(actions(12)), plain.step(actions(12))
    assert [part.is_compiled for part in recorded.traced] == [True] * (3 if compile_ == "on" else 0)
    torch.testing.assert_close(ours.reward, theirs.reward, atol=1e-5 if compile_ == "on" else 1e-6, rtol=0)
    before, after = leaves(plain.state_dict()), leaves(recorded.state_dict())
    drawn = [name for name in before if name.startswith("/drawn") or name == "/lag_steps"]
    assert drawn
    for name in drawn:  # what was drawn is the same to the last bit; physics differs there by the order of its sums
        assert torch.equal(after[name], before[name]), name
    for name in ("/simulation/state/qpos", "/memory/command", "/groups/actor/frames"):
        torch.testing.assert_close(after[name], before[name], atol=1e-4, rtol=1e-4)


def test_state_round_trips_bitwise() -> None:
    first, second = build("capture"), build("capture")
    for seed in range(6):
        first.step(actions(seed))
    saved = first.state_dict()
    second.load_state_dict(saved)
    again = leaves(second.state_dict())
    assert all(torch.equal(value, again[name]) for name, value in leaves(saved).items())


def test_a_run_on_the_gpu_learns_stops_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("mujoco_warp")
    words = ("experiment.device=cuda", "environment.num_envs=64", "training.total_steps=15360", "evaluation.episodes=2")
    with stopped_after(3):
        run = train("quadruped-flat:ppo", tmp_path, *words)
    assert resume(run).status == "finished"
    assert stored_config.load_config(run).experiment.device == "cuda"
