"""What is said when an environment in this process raises, or returns what no step can be made of. Defect 11."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.buffers.given import given_non_finite
from etude.cli import run as command
from etude.environments.gymnasium import GymnasiumVector
from etude.errors import EnvironmentFailureError, NonFiniteError
from etude.runs.run import Run
from tests.runs_compared import resume, train


class Odd(gymnasium.Env[Any, Any]):
    """Does, at its fifth step, what it is told to."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, fault: Callable[[], Any] | None = None, **returned: Any) -> None:
        self.fault, self.returned, self.steps = fault, returned, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.returned.get("first", np.zeros(3, np.float32)), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.steps += 1
        usual = {"observation": np.zeros(3, np.float32), "reward": 1.0, "terminated": False, "truncated": False}
        if self.steps == 5:
            if self.fault is not None:
                self.fault()
            usual |= self.returned
        return *(usual[name] for name in ("observation", "reward", "terminated", "truncated")), {}

    def close(self) -> None:
        if self.fault is not None and self.fault.__name__ == "unclosable":
            raise OSError("no such window")


def _said(**options: Any) -> EnvironmentFailureError:
    made = iter([Odd(), Odd(**options)])
    vector = GymnasiumVector(lambda: next(made), 2)
    with pytest.raises(EnvironmentFailureError) as failure:
        _drive(vector)
    assert "\n" not in str(failure.value)
    return failure.value


def _drive(vector: GymnasiumVector) -> None:
    vector.reset([*range(vector.num_envs)])
    for _ in range(5):
        vector.step(torch.zeros(vector.num_envs, dtype=torch.long))


def _raises(error: BaseException) -> Callable[[], None]:
    def fault() -> None:
        raise error

    return fault


RAISED = {
    "an error": (ZeroDivisionError("the ground is gone"), "ZeroDivisionError: the ground is gone"),
    "several lines": (ValueError("one\n  two"), "ValueError: one two"),
    "without a word": (RuntimeError(), "RuntimeError"),
    "SystemExit": (SystemExit(0), "SystemExit: 0"),
    "a broken pipe": (BrokenPipeError(32, "Broken pipe"), "BrokenPipeError: [Errno 32] Broken pipe"),
}


@pytest.mark.parametrize(("error", "shown"), RAISED.values(), ids=RAISED.keys())
def test_what_it_raises_is_one_line_with_the_place_in_its_own_code(error: BaseException, shown: str) -> None:
    said = _said(fault=_raises(error))
    here = re.escape("test_failures.py")
    assert re.fullmatch(rf"copy 1 of the environment raised in step: {re.escape(shown)} \(.*{here}:\d+\)", str(said))
    assert "in fault\n    raise error" in said.details


def test_an_interrupt_is_no_failure() -> None:
    vector = GymnasiumVector(lambda: Odd(fault=_raises(KeyboardInterrupt())), 1)
    with pytest.raises(KeyboardInterrupt):
        _drive(vector)


RETURNED = {
    "a scalar": ({"observation": 0.5}, "step an observation of shape (), where its space has the shape (3,)"),
    "one number": ({"observation": np.ones(1)}, "step an observation of shape (1,), where its space has the shape (3,)"),
    "no observation": ({"observation": None}, "step None as an observation, where its space has the shape (3,)"),
    "a scalar at first": ({"first": 0.5}, "reset an observation of shape (), where its space has the shape (3,)"),
    "no reward": ({"reward": None}, "step None as reward"),
    "no end": ({"terminated": None}, "step None as terminated"),
    "no other end": ({"truncated": None}, "step None as truncated"),
}  # fmt: skip


@pytest.mark.parametrize(("returned", "shown"), RETURNED.values(), ids=RETURNED.keys())
def test_what_numpy_would_take_without_a_word_is_refused(returned: dict[str, Any], shown: str) -> None:
    said = str(_said(**returned))
    assert said.startswith(f"copy 1 of the environment returned from {shown} (")
    assert re.search(r"test_failures\.py:\d+\)$", said), "where the method is"


def test_a_reward_of_the_wrong_kind_is_a_failure_too() -> None:
    assert "raised in step: ValueError: could not convert string to float: 'much'" in str(_said(reward="much"))


def test_one_that_can_not_be_closed_keeps_no_other_from_it() -> None:
    closed: list[int] = []

    def unclosable() -> None: ...

    made = iter([Odd(), Odd(fault=unclosable), Odd()])
    vector = GymnasiumVector(lambda: next(made), 3)
    vector.copies[0].close = lambda: closed.append(0)  # type: ignore[method-assign] # a double
    vector.copies[2].close = lambda: closed.append(2)  # type: ignore[method-assign] # a double
    with pytest.raises(EnvironmentFailureError, match="copy 1 of the environment raised in close: OSError: no such window"):
        vector.close()
    assert sorted(closed) == [0, 2]


# ---- whole runs -----------------------------------------------------------------------------------------------------------

MODULE = """
import os
import gymnasium
import numpy as np

class Frail(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        Frail.total += 1
        observation, reward = np.full(2, 0.1, np.float32), 1.0
        if Frail.total >= 300:
            fault = os.environ.get("FRAIL")
            if fault == "raise":
                raise ZeroDivisionError("the ground is gone")
            if fault == "exit":
                raise SystemExit(0)
            if fault == "pipe":
                raise BrokenPipeError(32, "Broken pipe")
            if fault == "observation" and self.steps == 3:
                observation = np.array([0.1, np.nan], np.float32)
            if fault == "reward" and self.steps == 3:
                reward = float("inf")
        return observation, reward, self.steps >= 10, False, {}

gymnasium.register("Frail-v0", Frail)
"""
WORDS = ("training.total_steps=768", "algorithm.rollout_steps=32", "algorithm.epochs=1", "environment.num_envs=2",
         "evaluation.every_steps=0", "logging.every_steps=64", "checkpoint.every_steps=128")  # fmt: skip
SPEC = "frail:Frail-v0:ppo"


@pytest.fixture
def frail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    (tmp_path / "frail.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield lambda fault: monkeypatch.setenv("FRAIL", fault)
    gymnasium.registry.pop("Frail-v0", None)


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        ("raise", r"ZeroDivisionError: the ground is gone \(frail\.py:23\)"),
        ("exit", r"SystemExit: 0 \(frail\.py:25\)"),
        ("pipe", r"BrokenPipeError: \[Errno 32\] Broken pipe \(frail\.py:27\)"),
    ],
)
def test_a_run_fails_with_one_line_and_the_way_on(
    fault: str, shown: str, frail: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frail(fault)
    assert command(["train", SPEC, *WORDS, "--runs", "runs", "--quiet"]) == 1
    said = capfd.readouterr().err.strip().splitlines()
    run = Run.resolve("@last", tmp_path / "runs")
    assert re.fullmatch(rf"etude: copy \d of the environment raised in step: {shown}; run.log has the traceback", said[-2])
    assert said[-1] == f"etude: `etude resume {run.id}` goes on from 256 environment steps"
    assert not any("Traceback" in line for line in said)
    assert "Traceback (most recent call last)" in run.log_path.read_text()
    assert run.status == "failed"
    monkeypatch.delenv("FRAIL")
    assert resume(run).status == "finished"


def test_a_nan_of_the_environment_is_not_blamed_on_the_learning_rate(frail: Any, tmp_path: Path) -> None:
    frail("observation")
    with pytest.raises(NonFiniteError, match=r"environment gave an observation of nan to copy \d, and .* is NaN") as failure:
        train(SPEC, tmp_path / "runs", *WORDS)
    assert "learning rate" not in str(failure.value)


def test_an_infinite_reward_is_named_and_never_the_best(frail: Any, tmp_path: Path) -> None:
    frail("reward")
    with pytest.raises(NonFiniteError, match=r"the environment paid copy \d a return of inf at 3\d\d environment steps"):
        train(SPEC, tmp_path / "runs", *WORDS)


def test_an_infinite_reward_in_an_evaluation_is_named(frail: Any, tmp_path: Path) -> None:
    frail("reward")
    sys.modules.pop("frail", None)
    words = (*WORDS, "evaluation.every_steps=32", "evaluation.episodes=40", "training.total_steps=64")
    with pytest.raises(EnvironmentFailureError, match="paid a return of inf in an evaluation"):
        train(SPEC, tmp_path / "runs", *words)


def test_what_follows_from_an_action_that_is_not_a_number_is_not_the_environments() -> None:
    nan = math.nan
    columns = {name: torch.zeros(4, 2) for name in ("observation", "action", "reward", "next_observation")}
    assert given_non_finite(columns) is None
    columns["action"][2, 1] = columns["reward"][2, 1] = columns["next_observation"][2, 1] = columns["observation"][3, 1] = nan
    assert given_non_finite(columns) is None
    columns["reward"][1, 0] = math.inf
    assert given_non_finite(columns) == "a reward of inf to copy 0"
    assert given_non_finite(columns, oldest=2) is None, "in a ring the action came first"
    columns["observation"][1, 1] = nan
    assert given_non_finite(columns) == "an observation of nan to copy 1"
