"""What a config says of its environment is compared with it: spaces before a run begins, rewards by `etude check`."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest

from etude.cli import run as etude
from etude.config.compose import compose
from etude.config.hashing import config_hash
from etude.config.validate import to_plain
from etude.environments.check.check import check_environment
from etude.errors import ConfigError
from etude.training import assembly
from tests.runs_compared import train

FILE = """
environment:
  id: CartPole-v1
  spec:
    observation_space: {type: box, shape: [4], dtype: float32}
    action_space: {type: discrete, n: 2, start: 0}
    reward_range: [0, null]
    metadata: {source: a book, masses: [1.0, 0.1]}
ppo:
  algorithm: {gamma: 0.97}
stacked:
  algorithm: {name: ppo}
  environment:
    wrappers: [{id: history, count: 3}]
    spec:
      observation_space: {shape: [12]}
      metadata: {source: a paper}
counted:
  algorithm: {name: ppo}
  environment:
    spec:
      observation_space: {type: discrete, n: 16}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE)
    return path


def test_a_run_whose_environment_is_as_described_trains_and_is_read_back(file: Path, tmp_path: Path) -> None:
    words = ["--config", str(file), "CartPole-v1:ppo", "--total-steps", "600", "--runs", str(tmp_path / "runs"), "-q"]
    assert etude(["train", *words]) == 0
    assert etude(["resume", "@last", "training.total_steps=900", "--runs", str(tmp_path / "runs"), "-q"]) == 0


def test_a_variant_says_another_block(file: Path) -> None:
    spec = compose("CartPole-v1:stacked", file=file).config.environment.spec
    assert spec.observation_space is not None
    assert (spec.observation_space.type, spec.observation_space.shape) == ("box", (12,))
    assert spec.metadata == {"source": "a paper", "masses": [1.0, 0.1]}
    assert spec.reward_range == (0, None)
    assembly.build(assembly.resolve(compose("CartPole-v1:stacked", file=file).config)).collector.environment.close()


def test_a_space_of_another_type_replaces_the_one_below_whole(file: Path) -> None:
    composition = compose("CartPole-v1:counted", file=file)
    said = composition.config.environment.spec.observation_space
    assert said is not None
    assert (said.type, said.n, said.shape) == ("discrete", 16, None)
    with pytest.raises(ConfigError, match=r"observation_space: CartPole-v1 has another one: a box, not a disc"):
        assembly.build(assembly.resolve(composition.config))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (
            "environment.spec.observation_space={type:box,shape:[3]}",
            "CartPole-v1 has another one: shape [4], not [3]; correct it",
        ),
        (
            "environment.spec.action_space={type:discrete,n:3}",
            "spec.action_space: CartPole-v1 has another one: n 2, not 3",
        ),
        ("environment.spec.observation_space={type:boxx}", "environment.spec.observation_space.type=boxx: must be one of box"),
        ("environment.spec.observation_space={shape:[4]}", "environment.spec.observation_space.type: is required"),
        ("environment.spec.observation_space={type:box,n:2}", "environment.spec.observation_space: n says nothing about a box"),
        ("environment.spec.reward_range=[2,1]", "reward_range=[2, 1]: the lowest reward comes first"),
        ("environment.spec.reward_range=3", "environment.spec.reward_range=3: must be a list"),
        ("environment.spec.metadata=3", "environment.spec.metadata=3: must be a mapping"),
    ],
)
def test_a_wrong_description_is_one_line_before_there_is_a_run(word: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        train("CartPole-v1:ppo", tmp_path / "runs", word)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_config_that_says_none_of_it_has_the_hash_it_had_before() -> None:
    plain = to_plain(compose("CartPole-v1:ppo").config)
    before = dict(plain["environment"]["spec"])
    for name in ("observation_space", "action_space", "reward_range", "metadata"):
        del before[name]
    older = {**plain, "environment": {**plain["environment"], "spec": before}}
    assert config_hash(older) == config_hash(plain)
    said = compose("CartPole-v1:ppo", words=["environment.spec.reward_range=[0,1]"]).config
    assert config_hash(said) != config_hash(plain)


class Paying(gymnasium.Env[np.ndarray, int]):
    """Pays more with every step."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)  # type: ignore[assignment] # of whole numbers

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict[str, object]]:
        super().reset(seed=seed)
        self.paid = 0.0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        self.paid += 0.1
        return np.zeros(1, np.float32), self.paid, self.paid > 2, False, {}


@pytest.mark.parametrize(
    ("allowed", "said"),
    [([0, 3], None), ([None, None], None), ([0.1, None], None), ([0, 1], "above 1"), ([0.5, 9], "below 0.5")],
)
def test_check_finds_a_reward_outside_of_its_range_once(allowed: list[float | None], said: str | None) -> None:
    gymnasium.register("Paying-v0", Paying, max_episode_steps=50)
    try:
        remarks = check_environment("Paying-v0", {"environment": {"spec": {"reward_range": allowed}}}, steps=60)
    finally:
        del gymnasium.registry["Paying-v0"]
    found = [remark for remark in remarks if remark.level == "wrong"]
    assert [remark.says for remark in found if "reward" in remark.says] == [remark.says for remark in found]
    assert len(found) == (said is not None)
    if said is not None:
        assert f"reward: it is {said}, as " in found[0].says
        assert "correct environment.spec.reward_range" in found[0].way_out


def test_check_holds_native_copies_to_a_range_too_and_presets_to_their_own() -> None:
    (found,) = [
        remark
        for remark in check_environment("CartPole-v1", {"environment": {"spec": {"reward_range": [0, 0.5]}}}, steps=40)
        if remark.level == "wrong"
    ]
    assert "reward: it is above 0.5, as 1 is" in found.says
    for name in ("Pendulum-v1", "MountainCar-v0"):
        assert compose(f"{name}:random").config.environment.spec.reward_range is not None
        assert all(remark.level != "wrong" for remark in check_environment(name, steps=400))
