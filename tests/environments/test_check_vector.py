"""The checker of vector environments: each fault is named in words, and what training steps passes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from etude.cli import run as etude
from etude.environments.check.check import check_environment
from etude.environments.check.report import Remark
from etude.environments.check.vector import VectorChecker
from etude.environments.vector import Step, VectorEnvironment
from etude.errors import UserError

CHECKS = ["builds", "spaces", "reset", "step", "ends", "limit", "seeds", "copies", "resume", "speed"]


class Walks(VectorEnvironment):
    """Walks on a line, each from a place and with steps of its own; at 5 they end, and after `limit` steps they are cut."""

    snapshot = "exact"
    device = torch.device("cpu")

    def __init__(self, limit: int | None, num_envs: int = 4) -> None:
        self.num_envs, self.limit = num_envs, limit or 40
        self.single_observation_space = spaces.Box(-99, 99, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.max_episode_steps = self.limit
        self.place, self.age = torch.zeros(num_envs), torch.zeros(num_envs)
        self.generators = [np.random.default_rng(0) for _ in range(num_envs)]

    def reset(self, seeds: Sequence[int]) -> Any:
        self.generators = [np.random.default_rng(seed) for seed in seeds]
        self.begin(torch.ones(self.num_envs, dtype=torch.bool))
        return self.observe(), {}

    def step(self, action: Tensor) -> Step:
        self.age += 1
        self.place += 2.0 * action - 1.0 + torch.tensor([float(each.normal()) / 10 for each in self.generators])
        terminated = self.place.abs() > 5
        truncated = (self.age >= self.limit) & ~terminated
        final = self.observe()
        reward = -self.place.abs()
        self.begin(terminated | truncated)
        return Step(self.observe(), reward, terminated, truncated, final, {})

    def begin(self, which: Tensor) -> None:
        for i in which.nonzero().flatten().tolist():
            self.place[i], self.age[i] = float(self.generators[i].uniform(-1, 1)), 0.0

    def observe(self) -> Tensor:
        return torch.stack([self.place, self.age], 1)

    def state_dict(self) -> dict[str, Any]:
        generators = [each.bit_generator.state for each in self.generators]
        return {"place": self.place.clone(), "age": self.age.clone(), "generators": generators}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place, self.age = state["place"].clone(), state["age"].clone()
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.bit_generator.state = saved


def changed(**methods: Any) -> type[Walks]:
    return type("Changed", (Walks,), methods)


def with_step(change: Any) -> type[Walks]:
    return changed(step=lambda self, action: change(self, Walks.step(self, action)))


def found(walks: type[Walks], level: str, steps: int = 400) -> list[str]:
    remarks = VectorChecker(walks, steps=steps).run()
    return [f"{each.check}: {each.says} → {each.way_out}" for each in remarks if each.level == level]


def test_a_sound_vector_is_fine_in_every_check() -> None:
    remarks = VectorChecker(Walks, steps=400).run()
    assert {each.level for each in remarks} == {"fine"}, remarks
    assert [each.check for each in remarks] == CHECKS


def shared_stream(self: Walks, seeds: Sequence[int]) -> Any:
    self.generators = [np.random.default_rng(seeds[0])] * self.num_envs
    self.begin(torch.ones(self.num_envs, dtype=torch.bool))
    return self.observe(), {}


def crosstalk(self: Walks, step: Step) -> Step:
    self.place[1:] += 0.01 * self.place[0]
    return step


def same_memory(self: Walks, step: Step) -> Step:
    self.kept = getattr(self, "kept", step.observation)  # type: ignore[attr-defined] # a double's own
    kept = self.kept.copy_(step.observation)  # type: ignore[attr-defined]
    return step._replace(observation=kept)


def ended(step: Step) -> Tensor:
    return step.terminated | step.truncated


def never_cut(self: Walks, step: Step) -> Step:
    return step._replace(terminated=ended(step), truncated=torch.zeros_like(step.truncated))


def ignores_limit(self: Walks, limit: int | None) -> None:
    Walks.__init__(self, 40)


WRONG = {
    "shape": (with_step(lambda _, s: s._replace(reward=s.reward[:, None])), "step: reward must be a tensor (4,) of float32"),
    "dtype": (with_step(lambda _, s: s._replace(truncated=s.truncated.float())), "truncated must be a tensor (4,) of bool"),
    "rows": (with_step(lambda _, s: s._replace(observation=s.observation[:2])), "is (2, 2) of torch.float32, the space says"),
    "NaN": (with_step(lambda _, s: s._replace(reward=s.reward * torch.nan)), "the reward is NaN or infinite"),
    "observes NaN": (changed(observe=lambda self: Walks.observe(self) / 0), "observation has NaN or infinite entries"),
    "outside": (changed(observe=lambda self: Walks.observe(self) + 95), "observation lies outside of its bounds"),
    "both": (with_step(lambda _, s: s._replace(truncated=ended(s))), "terminated and truncated at once"),
    "final of others": (with_step(lambda _, s: s._replace(final_observation=s.final_observation + 1)), "that did not end"),
    "no final": (with_step(lambda _, s: s._replace(final_observation=s.observation)), "is the first observation of the next"),
    "memory": (with_step(same_memory), "a step has changed during the next one"),
    "beyond its limit": (changed(__init__=ignores_limit), "goes on beyond a limit of 10 steps"),
    "a limit terminates": (with_step(never_cut), "limit: whoever comes to a limit of 10 steps is terminated there"),
    "global generator": (
        with_step(lambda _, s: s._replace(reward=s.reward + torch.rand(4))),
        "seeds: it draws from the global generator of torch",
    ),
    "unseeded": (
        with_step(lambda _, s: s._replace(reward=s.reward + float(np.random.default_rng().random()))),
        "seeds: two resets with the same seeds differ in the reward, after 1 steps",
    ),
    "crosstalk": (
        with_step(crosstalk),
        "copies: what the first copy does changes the observation of another one",
    ),
    "not restored": (
        changed(load_state_dict=lambda self, state: Walks.load_state_dict(self, {**state, "age": state["age"] + 1})),
        "resume: age of its state is another one after it was loaded",
    ),
    "not saved": (
        changed(
            state_dict=lambda self: {"place": self.place.clone()},
            load_state_dict=lambda self, state: self.place.copy_(state["place"]),
        ),
        "resume: a restored environment differs in",
    ),
    "raises": (with_step(lambda _, s: 1 / 0), "step: raised ZeroDivisionError"),
}


@pytest.mark.parametrize(("walks", "says"), WRONG.values(), ids=WRONG)
def test_a_fault_of_a_vector_is_named(walks: type[Walks], says: str) -> None:
    wrong = found(walks, "wrong")
    assert any(says in each for each in wrong), wrong


def test_what_can_not_be_checked_says_so() -> None:
    alone = changed(__init__=lambda self, limit: Walks.__init__(self, limit, num_envs=1))
    assert any("copies: there is one only" in each for each in found(alone, "fine"))
    (restarts,) = found(changed(snapshot="restart", state_dict=lambda self: {}), "notice")
    assert "resume: restart" in restarts


def test_a_stream_that_copies_share_is_no_fault() -> None:
    """Robots draw for all from one stream: an episode's end in one shifts what the others draw."""
    assert found(changed(reset=shared_stream), "wrong") == []


def by_check(remarks: list[Remark]) -> dict[str, Remark]:
    assert not [each for each in remarks if each.level == "wrong"], remarks
    return {each.check: each for each in remarks}


def test_a_native_class_is_checked_as_it_is_trained() -> None:
    checked = by_check(check_environment("CartPole-v1", steps=200))
    assert list(checked) == CHECKS
    assert "etude.environments.native.classic.CartPole, 4 copies" in checked["builds"].says
    assert "time limit 500" in checked["ends"].says
    # Its arguments are Gymnasium's own class's affair, and then that is what training steps.
    assert (
        "gymnasium.envs" in by_check(check_environment("CartPole-v1", {"sutton_barto_reward": True}, steps=50))["builds"].says
    )


def test_a_robots_task_is_checked_by_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    """Defect 37: no robot was known."""
    pytest.importorskip("mujoco")
    assert etude(["check", "quadruped-flat", "environment.max_episode_steps=30", "--steps", "160", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    says = {remark["check"]: remark["says"] for remark in told["remarks"]}
    assert list(says) == CHECKS
    assert "RobotVector, 4 copies" in says["builds"]
    assert "actor: Box(47) float32" in says["spaces"]
    assert "time limit 30" in says["ends"]
    assert says["resume"].startswith("exact")
    assert etude(["check", "quadruped-flat", "environment.robot.rewards.wlak=1"]) == 2
    assert "environment.robot.rewards.wlak" in capsys.readouterr().err


def test_a_task_of_ones_own_is_checked_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    robot = "{model: ball, observations: {actor: {gravity: {}}}}"
    task = f"environment:\n  id: roll\n  max_episode_steps: 20\n  robot: {robot}\n"
    Path("roll.yaml").write_text(task)
    checked = by_check(check_environment("roll.yaml", steps=80))
    assert checked["spaces"].says.startswith("observations Box(3) float32")
    assert "0 of 4 episodes terminated; time limit 20" in checked["ends"].says
    Path("with_algorithm.yaml").write_text(task + "algorithm: {name: ppo, gamma: 0.9}\n")
    assert by_check(check_environment("with_algorithm.yaml", steps=8))["resume"].says.startswith("exact")
    Path("no_robot.yaml").write_text("environment: {id: CartPole-v1}\n")
    with pytest.raises(UserError, match="describes no robot"):
        check_environment("no_robot.yaml")
    with pytest.raises(UserError, match="there is no such file"):
        check_environment("nowhere.yaml")


@pytest.mark.parametrize("file", ["ball.yaml", "quadruped.xml"])
def test_a_robot_without_a_task_is_checked_in_a_plain_one(file: str) -> None:
    pytest.importorskip("mujoco")
    from etude.robots.models.description import MODELS

    checked = by_check(check_environment(str(MODELS / file), {"environment": {"max_episode_steps": 25}}, steps=40))
    assert "RobotVector" in checked["builds"].says
    assert "time limit 25" in checked["ends"].says
    with pytest.raises(UserError, match="length: a robot's check takes"):
        check_environment(str(MODELS / file), {"length": 3})


def test_a_robots_usual_time_limit_is_known() -> None:
    pytest.importorskip("mujoco")
    from etude.robots.models.description import MODELS

    assert "time limit 1,000" in by_check(check_environment(str(MODELS / "ball.yaml"), steps=8))["ends"].says
