"""DeepMind Control: the suite's own trajectories, ends that mean what they say, and states that go on bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("dm_control")

from etude.config.schema import EnvironmentConfig
from etude.environments.dm_control.suite_task import SuiteTask, _import_suite
from etude.environments.dm_control.tasks import IDS, domain_and_task
from etude.environments.families import family_of
from etude.environments.make import make_environment
from etude.environments.vector import VectorEnvironment
from etude.errors import UserError

family_of("dmc/cheetah-run").register()
# Gains drawn into the model, and a body that falls; all the others take minutes.
FEW = ("dmc/point_mass-hard", "dmc/walker-stand")
FEW_OR_ALL = [*FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in IDS if name not in FEW)]


def make(name: str, num_envs: int = 2, **options: Any) -> VectorEnvironment:
    return make_environment(EnvironmentConfig(id=name, num_envs=num_envs, **options))


def actions(environment: VectorEnvironment, steps: int, seed: int = 0) -> list[torch.Tensor]:
    size = (steps, environment.num_envs, *(environment.single_action_space.shape or ()))
    return list(torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, size).astype(np.float32)))


def bare(name: str) -> Any:
    """The suite's environment, built as ours is."""
    domain, task = domain_and_task(name)
    return _import_suite().load(domain, task, task_kwargs={"random": 0})


def flat(observation: dict[str, Any]) -> bytes:
    return np.concatenate([np.asarray(part).ravel() for part in observation.values()]).astype(np.float32).tobytes()


def record(environment: VectorEnvironment, steps: int, seed: int) -> list[bytes]:
    found = []
    for action in actions(environment, steps, seed):
        step = environment.step(action)
        found += [part.numpy().tobytes() for part in step[:5] if isinstance(part, torch.Tensor)]
    return found


def test_the_tasks_are_those_of_the_suite() -> None:
    assert {domain_and_task(name) for name in IDS} == set(_import_suite().ALL_TASKS)


def test_the_suite_is_not_imported_to_list_its_tasks() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, gymnasium; from etude.environments.families import family_of;"
            "family_of('dmc/cheetah-run').register(); assert 'dmc/cheetah-run' in gymnasium.registry;"
            "assert not {'dm_control', 'mujoco', 'torch'} & set(sys.modules)",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", FEW_OR_ALL)
def test_trajectories_are_those_of_the_suite(name: str) -> None:
    environment = make(name, num_envs=1)
    reference = bare(name)
    reference.task.random.seed(7)
    observation, _ = environment.reset([7])
    assert isinstance(observation, torch.Tensor)
    assert observation.numpy().tobytes() == flat(reference.reset().observation)
    for action in actions(environment, 30):
        step, expected = environment.step(action), reference.step(action[0].numpy())
        assert isinstance(step.final_observation, torch.Tensor)
        assert step.final_observation.numpy().tobytes() == flat(expected.observation)
        assert step.reward.item() == np.float32(expected.reward)
        assert step.terminated.item() == (expected.discount == 0)


@pytest.mark.parametrize("backend", ["native", "gymnasium"])
@pytest.mark.parametrize("name", FEW_OR_ALL)
def test_a_fresh_environment_goes_on_bit_for_bit(name: str, backend: str) -> None:
    """From the middle of an episode, from its first state, and through its end into the next ones."""
    options = {"backend": backend, "max_episode_steps": 14}
    environment, fresh = make(name, **options), make(name, **options)
    environment.reset([1, 2])
    for steps in (0, 9, 5, 3):
        record(environment, steps, seed=steps)
        state = environment.state_dict()
        assert environment.snapshot == "exact"
        expected = record(environment, 17, seed=99)
        fresh.load_state_dict(state)  # new at first, and then somewhere else
        assert record(fresh, 17, seed=99) == expected
        environment.load_state_dict(state)


@pytest.mark.parametrize("name", FEW_OR_ALL)
def test_the_gymnasium_environment_is_the_native_one(name: str) -> None:
    native, reference = (make(name, backend=backend, max_episode_steps=12) for backend in ("native", "gymnasium"))
    assert type(native) is not type(reference)
    assert native.single_action_space == reference.single_action_space
    assert native.single_observation_space == reference.single_observation_space
    for environment in (native, reference):
        environment.reset([3, 2**40 + 1])
    assert record(native, 30, seed=1) == record(reference, 30, seed=1)


@pytest.mark.parametrize("name", FEW_OR_ALL)
def test_limits_are_a_thousand_steps(name: str) -> None:
    limit = bare(name)._step_limit
    assert limit == pytest.approx(1000) or (limit == float("inf") and "lqr" in name)


@pytest.mark.parametrize("backend", ["native", "gymnasium"])
def test_a_time_limit_truncates(backend: str) -> None:
    environment = make("dmc/pendulum-swingup", num_envs=1, backend=backend, max_episode_steps=5)
    environment.reset([1])
    ends = [environment.step(action)[2:4] for action in actions(environment, 5)]
    assert [(terminated.item(), truncated.item()) for terminated, truncated in ends[-1:]] == [(False, True)]


def test_a_discount_of_zero_terminates() -> None:
    environment: Any = gymnasium.make("dmc/lqr-lqr_2_1", disable_env_checker=True).unwrapped
    environment.reset(seed=1)
    with environment.suite_task.physics.reset_context() as physics:
        physics.data.qpos[:] = 0
    _, _, terminated, truncated, _ = environment.step(np.zeros(1, np.float32))
    assert (terminated, truncated) == (True, False)


def test_a_seed_decides_the_episodes_and_without_one_they_go_on() -> None:
    environment = gymnasium.make("dmc/reacher-easy", disable_env_checker=True)
    first, second = environment.reset(seed=5)[0], environment.reset()[0]
    assert not np.array_equal(first, second)
    assert np.array_equal(environment.reset(seed=5)[0], first)
    assert np.array_equal(environment.reset()[0], second)


def test_observations_by_name_are_in_the_suites_order() -> None:
    environment = make("dmc/walker-stand", kwargs={"flatten": False})
    together = make("dmc/walker-stand", backend="gymnasium")
    parts, _ = environment.reset([1, 2])
    whole, _ = together.reset([1, 2])
    assert isinstance(parts, dict)
    assert isinstance(whole, torch.Tensor)
    assert list(parts) == ["orientations", "height", "velocity"]
    assert torch.equal(torch.cat([part.reshape(2, -1) for part in parts.values()], 1), whole)


def test_actuators_without_limits_have_none() -> None:
    assert np.isinf(make("dmc/lqr-lqr_6_2").single_action_space.high).all()  # type: ignore[attr-defined] # a Box
    assert make("dmc/quadruped-walk").single_action_space.high.max() == np.float32(1.1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"time_limit": 5}, "environment.max_episode_steps"),
        ({"random": 3}, "experiment.seed"),
        ({"heigth": 64}, "heigth"),
        ({"height": 0}, "height=0 must be a whole number from 1 to "),
        ({"pixels": True, "width": 100_000}, "width=100000 must be a whole number from 1 to "),
        ({"camera_id": 9}, "camera_id=9 must be a whole number from -1"),
    ],
)
def test_an_argument_that_means_nothing_is_named(kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make("dmc/cheetah-run", kwargs=kwargs)


def test_a_typo_in_an_id_is_told() -> None:
    with pytest.raises(UserError, match=r"unknown environment 'dmc/cheeta-run'; did you mean 'dmc/cheetah-run'"):
        make("dmc/cheeta-run")
    assert family_of("dmc/ball_in_cup-catch").name == "dmc"


def test_a_state_of_another_task_is_refused() -> None:
    with pytest.raises(ValueError, match="of another model"):
        SuiteTask("dmc/cheetah-run").load_state_dict(SuiteTask("dmc/walker-stand").state_dict())


def test_what_can_not_be_drawn_can_be_trained() -> None:
    code = (
        "import os, gymnasium; from etude.environments.families import family_of; family_of('dmc/cheetah-run').register();"
        "env = gymnasium.make('dmc/cheetah-run', render_mode='rgb_array', disable_env_checker=True); env.reset(seed=1);"
        "env.step(env.action_space.sample()); print(os.environ.get('MUJOCO_GL')); env.render()"
    )
    # What a machine without EGL says too: its platform can't be had.
    names = {name: value for name, value in os.environ.items() if name not in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**names, "PYOPENGL_PLATFORM": "osmesa"}
    )
    assert done.stdout == "None\n", done.stderr
    assert "No OpenGL rendering backend is available" in done.stderr


def test_pixels_are_observed_and_pictures_drawn_without_a_screen() -> None:
    environment = gymnasium.make(
        "dmc/cheetah-run", pixels=True, height=32, width=48, render_mode="rgb_array", disable_env_checker=True
    )
    try:
        seen, _ = environment.reset(seed=1)
    except (RuntimeError, ImportError) as error:
        pytest.skip(f"no OpenGL here: {error}")
    assert environment.observation_space.contains(seen)
    assert seen.shape == (32, 48, 3)
    moved = environment.step(np.ones(6, np.float32))[0]
    assert not np.array_equal(seen, moved)
    assert np.array_equal(np.asarray(environment.render()), moved)
    assert environment.metadata["render_fps"] == 100
    environment.close()
