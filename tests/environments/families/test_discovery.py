"""Optional families whose packages are not here: what is looked for where, with packages made of thin air."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import pytest
import torch

from etude.config.compose import compose
from etude.config.schema import EnvironmentConfig
from etude.environments import make as factory
from etude.environments.families import FAMILIES, family_of, vizdoom
from etude.environments.make import make_environment
from etude.errors import EtudeError, MissingPackageError, UserError
from etude.training import assembly, evaluation


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A copy of Gymnasium's registry, which is forgotten."""
    known = dict(gymnasium.registry)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", known)
    monkeypatch.setattr(gymnasium, "registry", known)
    return known


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: dict[str, Any]) -> Path:
    """A package vizdoom with two scenarios and no game."""
    (tmp_path / "scenarios").mkdir()
    for name in ("basic", "deadly_corridor"):
        (tmp_path / "scenarios" / f"{name}.cfg").touch()
    module = ModuleType("vizdoom")
    module.scenarios_path = str(tmp_path / "scenarios")  # type: ignore[attr-defined] # as the real one has
    wrapper = ModuleType("vizdoom.gymnasium_wrapper")
    base = ModuleType("vizdoom.gymnasium_wrapper.base_gymnasium_env")
    base.VizdoomEnv = Doom  # type: ignore[attr-defined] # as the real one has
    for each in (module, wrapper, base):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    monkeypatch.delenv(vizdoom.FOLDER, raising=False)
    return tmp_path / "scenarios"


class Doom(gymnasium.Env[Any, Any]):
    """Stands in for the game."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config_file: str, max_buttons_pressed: int, doom_config_path: str, frame_skip: int = 1) -> None:
        assert not Path(doom_config_path).is_relative_to(Path.cwd())
        self.facts = (config_file, max_buttons_pressed, frame_skip)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        return 0, 0.0, False, False, {}


def made(name: str, **kwargs: Any) -> tuple[str, int, int]:
    environment: Any = make_environment(EnvironmentConfig(id=name, num_envs=1, kwargs=kwargs))
    return environment.copies[0].unwrapped.facts


def test_a_scenario_of_the_package_is_found(package: Path) -> None:
    assert made("VizDoom-Basic-v0") == (str(package / "basic.cfg"), 1, 1)
    assert made("VizDoom-DeadlyCorridor-v0", frame_skip=4) == (str(package / "deadly_corridor.cfg"), 1, 4)
    assert made("VizDoom-deadly_corridor-v0", max_buttons_pressed=0)[1] == 0


def test_a_folder_of_ones_own_comes_before_the_package(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: dict[str, Any]
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "basic.cfg").touch()
    (own / "my_maze.cfg").touch()
    monkeypatch.setenv(vizdoom.FOLDER, str(own))
    assert made("VizDoom-Basic-v0")[0] == str(own / "basic.cfg")
    assert made("VizDoom-MyMaze-v0")[0] == str(own / "my_maze.cfg")
    assert made("VizDoom-DeadlyCorridor-v0")[0] == str(package / "deadly_corridor.cfg")
    assert "VizDoom-MyMaze-v0" in registry


def test_an_argument_names_the_file_itself(package: Path, tmp_path: Path) -> None:
    (tmp_path / "x.cfg").touch()
    assert made("VizDoom-Whatever-v0", config_path=str(tmp_path / "x.cfg"))[0] == str(tmp_path / "x.cfg")
    with pytest.raises(UserError, match=r"environment.kwargs.config_path=/no/such.cfg: there is no such file"):
        made("VizDoom-Basic-v0", config_path="/no/such.cfg")


def test_a_scenario_that_is_nowhere_names_all_three_places(package: Path) -> None:
    with pytest.raises(UserError) as caught:
        made("VizDoom-Basik-v0")
    said = str(caught.value)
    assert "no ViZDoom scenario 'basik.cfg'; did you mean 'basic'?" in said
    assert f"the package vizdoom: {package}" in said
    assert "the folder VIZDOOM_SCENARIOS_DIR: not set" in said
    assert "environment.kwargs.config_path" in said


@pytest.mark.parametrize("family", [each for each in FAMILIES if each.packages], ids=lambda family: family.name)
def test_an_absent_family_is_one_line_with_the_command(family: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in family.packages:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError) as caught:
        make_environment(EnvironmentConfig(id=family.example, num_envs=1, backend=family.backend))
    assert f"pip install '{family.install}'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_example_belongs_to_its_family() -> None:
    for family in FAMILIES[:-1]:
        assert family.backend == "envpool" or family_of(family.example) is family


# ---- one emulator a process ----


def test_every_copy_of_an_emulator_gets_a_worker_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import etude.environments.workers.vector as workers

    asked = []

    def vector(make: Any, num_envs: int, *, workers: int, timeout_s: float) -> Any:
        asked.append((num_envs, workers))
        return SimpleNamespace(num_envs=num_envs, compute_reward=None, base=SimpleNamespace())

    monkeypatch.setattr(workers, "WorkerVector", vector)
    monkeypatch.setattr(factory, "family_of", lambda _: SimpleNamespace(**PRETENDED))
    monkeypatch.setattr(factory, "episode_limit", lambda _: None)
    for count in (1, 3):
        make_environment(EnvironmentConfig(id="Retro/Some-v0", num_envs=count, workers=2))
    assert asked == [(1, 1), (3, 3)]


PRETENDED = {
    "register": lambda name=None: None,
    "make_vector": lambda config, count: None,
    "one_per_process": True,
    "adapter": lambda config: (dict(config.kwargs), lambda env: env),
}


def test_evaluation_environments_are_made_at_the_first_evaluation_and_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int | None] = []

    def counted(config: Any, *, num_envs: int | None = None, **options: Any) -> Any:
        made.append(num_envs)
        return make_environment(config, num_envs=num_envs, **options)

    for module in (assembly, evaluation):
        monkeypatch.setattr(module, "make_environment", counted)
    monkeypatch.setattr(evaluation, "family_of", lambda _: SimpleNamespace(one_per_process=True))
    words = ["training.total_steps=128", "evaluation.every_steps=64", "environment.num_envs=2", "evaluation.episodes=3"]
    config = assembly.resolve(compose("CartPole-v1:random", words=words).config)
    orchestrator = assembly.build(config)
    assert made == [None]  # the training's own
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    evaluator: Any = orchestrator.evaluator
    policy = orchestrator.workflow.policy()
    for steps in (64, 128):
        evaluator.evaluate(policy, steps, 0)
        assert made == [None, 1]
    evaluator.close()


# ---- EnvPool ----


def test_envpool_resets_what_ended_in_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", pretended_envpool())
    environment = make_environment(EnvironmentConfig(id="Count-v1", num_envs=3, backend="envpool"))
    observation, _ = environment.reset([10, 20, 30])
    assert isinstance(observation, torch.Tensor)
    assert observation.tolist() == [[10.0], [20.0], [30.0]]
    seen = []
    for _ in range(4):
        step = environment.step(torch.zeros(3, dtype=torch.int64))
        assert isinstance(step.observation, torch.Tensor)
        assert isinstance(step.final_observation, torch.Tensor)
        seen.append((step.observation.flatten().tolist(), step.final_observation.flatten().tolist(), step.truncated.tolist()))
    assert seen == [
        ([11.0, 21.0, 31.0], [11.0, 21.0, 31.0], [False, False, False]),
        ([12.0, 20.0, 32.0], [12.0, 22.0, 32.0], [False, True, False]),  # the second copy's episodes have two steps
        ([10.0, 21.0, 30.0], [13.0, 21.0, 33.0], [True, False, True]),
        ([11.0, 20.0, 31.0], [11.0, 22.0, 31.0], [False, True, False]),
    ]
    assert environment.snapshot == "restart"
    assert environment.state_dict() == {}


def test_envpool_names_what_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", pretended_envpool())
    with pytest.raises(EtudeError, match=r"EnvPool has no CartPole-v1.*use auto"):
        make_environment(EnvironmentConfig(id="CartPole-v1", backend="envpool"))
    with pytest.raises(UserError, match=r"environment.kwargs=\{'foo': 1\}: Count-v1 in EnvPool got an unexpected"):
        make_environment(EnvironmentConfig(id="Count-v1", backend="envpool", kwargs={"foo": 1}))
    with pytest.raises(UserError, match=r"environment.workers=2 needs copies of Gymnasium's kind"):
        make_environment(EnvironmentConfig(id="Count-v1", backend="envpool", workers=2))


def pretended_envpool() -> Any:
    import numpy as np

    class Pool:
        """Counts up from the seeds; every second copy is cut after two steps, the others after three."""

        def __init__(self, seed: list[int]) -> None:
            self.seed, self.age = np.array(seed, np.float64), np.zeros(len(seed))

        def reset(self, env_id: Any = None) -> Any:
            chosen = np.arange(len(self.seed)) if env_id is None else env_id[::-1]
            self.age[chosen] = 0
            return self.seed[chosen, None], {"env_id": chosen}

        def step(self, action: Any) -> Any:
            assert action.shape == self.age.shape
            self.age += 1
            cut = self.age == np.where(np.arange(len(self.age)) % 2, 2, 3)
            return (self.seed + self.age)[:, None], np.ones(len(cut)), np.zeros_like(cut), cut, {}

    def spec(name: str, **options: Any) -> Any:
        if options:
            raise TypeError(f"Config.__new__() got an unexpected keyword argument '{next(iter(options))}'")
        box, choice = gymnasium.spaces.Box(-99, 99, (1,), np.float64), gymnasium.spaces.Discrete(2)
        config = SimpleNamespace(reward_threshold=1.0)
        return SimpleNamespace(gymnasium_observation_space=box, gymnasium_action_space=choice, config=config)

    module: Any = ModuleType("envpool")
    module.list_all_envs, module.make_spec = lambda: ["Count-v1"], spec
    module.make = lambda name, *, env_type, num_envs, num_threads, seed: Pool(seed)
    return module
