"""The factory: overrides, and one line for everything that can be wrong with a name or its arguments."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from etude.config.schema import EnvironmentConfig
from etude.environments.families import family_of
from etude.environments.make import make_environment
from etude.errors import EnvironmentFailureError, EtudeError, UserError


def refused(name: str, **options: Any) -> EtudeError:
    with pytest.raises(EtudeError) as caught:
        make_environment(EnvironmentConfig(id=name, **options))
    assert "\n" not in str(caught.value)
    return caught.value


def test_the_config_describes_the_environment() -> None:
    environment = make_environment(EnvironmentConfig(id="FrozenLake-v1", num_envs=3, kwargs={"is_slippery": False}))
    assert environment.num_envs == 3
    assert environment.return_threshold == gymnasium.spec("FrozenLake-v1").reward_threshold
    lake: Any = environment
    assert lake._envs[0].unwrapped.spec.kwargs["is_slippery"] is False


def test_width_and_rendering_can_be_overridden() -> None:
    config = EnvironmentConfig(id="Taxi-v4", num_envs=8)
    environment = make_environment(config, num_envs=1, render_mode="ansi")
    environment.reset([0])
    assert environment.num_envs == 1
    assert "+---------+" in environment.render()


def test_a_time_limit_can_be_set_and_is_registered_otherwise() -> None:
    limits = []
    for steps in (None, 12):
        environment: Any = make_environment(
            EnvironmentConfig(id="CartPole-v1", num_envs=1, max_episode_steps=steps, backend="gymnasium")
        )
        limits.append(environment._envs[0].spec.max_episode_steps)
    assert limits == [500, 12]


def test_an_unknown_name_is_one_line_with_the_nearest_known_one() -> None:
    assert str(refused("Carpole-v1")) == "unknown environment 'Carpole-v1'; did you mean 'CartPole-v1'?"
    # Defect 38: what Gymnasium does not know yet, Etude's own tasks and robots, was never suggested.
    assert str(refused("Bandit-v1")) == "unknown environment 'Bandit-v1'; did you mean 'Bandit-v0'?"
    assert str(refused("quadruped-flt")) == "unknown environment 'quadruped-flt'; did you mean 'quadruped-flat'?"
    assert isinstance(refused("Carpole-v1"), UserError)
    assert "`etude envs SEARCH` lists what there is" in str(refused("Zzzzzzzz-v9"))
    assert "Malformed environment ID" in str(refused("what is this"))


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
def test_a_version_that_is_gone_names_its_successor() -> None:
    assert "LunarLander-v3" in str(refused("LunarLander-v2"))


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
def test_an_environment_that_moved_away_says_where_to() -> None:
    assert "gymnasium-robotics" in str(refused("Hopper-v3"))


@pytest.mark.parametrize("prefix", ["", "gymnasium:"])
def test_a_missing_version_is_one_line_with_the_newest(prefix: str) -> None:
    expected = f"environment '{prefix}CartPole': which version? write {prefix}CartPole-v1"
    assert str(refused(f"{prefix}CartPole")) == expected


def test_the_newest_version_is_the_largest_number(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gymnasium.spec("CartPole-v1")
    monkeypatch.setitem(gymnasium.registry, "Thing-v9", spec)
    monkeypatch.setitem(gymnasium.registry, "Thing-v10", spec)
    assert str(refused("Thing")).endswith("write Thing-v10")


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    problem = refused("LunarLander-v3")
    assert not isinstance(problem, UserError)
    assert str(problem) == "Box2D (LunarLander-v3) needs Box2D: pip install 'etude[box2d]'"
    assert str(refused("phys2d/Pendulum-v0")).endswith("not installed: pip install jax")


@pytest.mark.parametrize(
    ("name", "kwargs", "complaint"),
    [
        ("CartPole-v1", {"foo": 1}, "CartPole-v1 got an unexpected keyword argument 'foo'"),
        ("FrozenLake-v1", {"map_name": "9x9"}, "FrozenLake-v1 refused them: KeyError: '9x9'"),
        ("CartPole-v1", {"max_episode_steps": -3}, "ValueError: Expect the `max_episode_steps` to be positive"),
        ("CartPole-v1", {"id": "Taxi-v4"}, "TypeError: .*multiple values"),
    ],
)
def test_a_wrong_argument_is_one_line_with_its_value(name: str, kwargs: dict[str, Any], complaint: str) -> None:
    problem = refused(name, kwargs=kwargs)
    assert isinstance(problem, UserError)
    assert str(problem).startswith(f"environment.kwargs={kwargs}: ")
    assert re.search(complaint, str(problem))
    assert "was raised from" not in str(problem)


def test_a_fault_of_the_environment_itself_is_shown_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise ValueError("a bug in the environment")

    monkeypatch.setitem(gymnasium.registry, "Broken-v0", gymnasium.envs.registration.EnvSpec("Broken-v0", broken))
    with pytest.raises(EnvironmentFailureError, match=r"ValueError: a bug in the environment.* \(.*test_make\.py:\d+\)"):
        make_environment(EnvironmentConfig(id="Broken-v0"))


# ---- module:Name-v0 -------------------------------------------------------------------------------------------------

MODULE = """
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
gymnasium.register("{name}-v0", entry_point=CartPoleEnv, max_episode_steps=30)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "an_environment_of_the_tests"
    (tmp_path / f"{name}.py").write_text(MODULE.format(name="OfTheTests"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    return name


def test_a_module_in_the_current_folder_registers_its_environments(module: str) -> None:
    environment = make_environment(EnvironmentConfig(id=f"{module}:OfTheTests-v0", num_envs=2))
    environment.reset([1, 2])
    assert environment.snapshot == "exact"
    assert str(refused(f"{module}:OfTheTests")).endswith(f"which version? write {module}:OfTheTests-v0")
    assert str(refused(f"{module}:OfTheTest-v0")).startswith(f"unknown environment '{module}:OfTheTest-v0'; did you mean")


def test_a_module_that_is_not_there_is_one_line() -> None:
    problem = str(refused("no_such_module:Thing-v0"))
    assert problem == "environment 'no_such_module:Thing-v0': there is no module 'no_such_module' here"
    assert "there is no module 'gymnasium.nothing'" in str(refused("gymnasium.nothing:Thing-v0"))


def test_a_module_that_needs_another_one_says_which(module: str, tmp_path: Path) -> None:
    (tmp_path / "needs_another.py").write_text("import a_package_nobody_has\n")
    with pytest.raises(EnvironmentFailureError, match=r"No module named 'a_package_nobody_has' \(needs_another\.py:1\)"):
        make_environment(EnvironmentConfig(id="needs_another:Thing-v0"))


def test_native_mujoco_tasks_are_the_default() -> None:
    pytest.importorskip("mujoco")
    from etude.environments.gymnasium import GymnasiumVector
    from etude.environments.native.mujoco_tasks import TASKS

    assert all(family_of(name).name == "mujoco" for name in TASKS)
    assert type(make_environment(EnvironmentConfig(id="HalfCheetah-v5", num_envs=2))) is TASKS["HalfCheetah-v5"]
    own = EnvironmentConfig(id="HalfCheetah-v5", num_envs=2, backend="gymnasium")
    assert type(make_environment(own)) is GymnasiumVector


@pytest.mark.parametrize("backend", ["native", "gymnasium"])
def test_more_copies_than_memory_are_one_line(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect 12: a MemoryError was a traceback."""
    from etude.environments import gymnasium as copies

    def no_memory(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(copies.BufferPair, "zeros", no_memory)
    config = EnvironmentConfig(id="CartPole-v1", num_envs=2 if backend == "gymnasium" else 2**57, backend=backend)
    with pytest.raises(UserError, match=rf"environment.num_envs={config.num_envs}: this many copies don't fit into memory"):
        make_environment(config)
