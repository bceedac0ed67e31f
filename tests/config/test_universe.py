"""--universe, --domain and --task name the same environments as ids do."""

from __future__ import annotations

import pytest
import yaml

from etude.cli import run as etude
from etude.config.universe import environment_id
from etude.errors import UserError


@pytest.mark.parametrize(
    ("universe", "domain", "task", "expected"),
    [
        ("gym", "HalfCheetah", "v5", "HalfCheetah-v5"),
        (None, "CartPole", "v1", "CartPole-v1"),
        ("gymnasium", "MiniGrid-DoorKey", "5x5-v0", "MiniGrid-DoorKey-5x5-v0"),
        ("dm_control", "cheetah", "run", "dmc/cheetah-run"),
        ("dmc", "ball_in_cup", "catch", "dmc/ball_in_cup-catch"),
        ("atari", "Pong", "v5", "ALE/Pong-v5"),
    ],
)
def test_parts_make_an_id(universe: str | None, domain: str, task: str, expected: str) -> None:
    assert environment_id(universe, domain, task) == expected


def test_the_config_is_the_same_as_with_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    parts = ["--universe", "gym", "--domain", "HalfCheetah", "--task", "v5", "--algorithm", "sac"]
    configs = []
    for words in (parts, ["HalfCheetah-v5:sac"], ["HalfCheetah-v5", "--algorithm", "sac"]):
        assert etude(["train", *words, "--seed", "3", "--print-config"]) == 0
        configs.append(yaml.safe_load(capsys.readouterr().out))
    assert configs[0] == configs[1] == configs[2]
    assert configs[0]["environment"]["id"] == "HalfCheetah-v5"


WRONG = [
    (["--universe", "gmy", "--domain", "A", "--task", "v1", "--algorithm", "sac"], "did you mean 'gym'?"),
    (["--domain", "HalfCheetah", "--algorithm", "sac"], "--task: is missing"),
    (["--universe", "dm_control", "--algorithm", "sac"], "--domain and --task: is missing; for example --universe dm_control"),
    (["--domain", "HalfCheetah", "--task", "v5"], "which algorithm? --algorithm sac, or as one word: HalfCheetah-v5:sac"),
    (["CartPole-v1:ppo", "--domain", "HalfCheetah", "--task", "v5"], "leave one of the two out"),
    (["CartPole-v1:ppo", "--algorithm", "sac"], "leave one of the two out"),
    (["--algorithm", "sac"], "in which environment?"),
]


@pytest.mark.parametrize(("words", "expected"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_a_slip_is_one_line(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["train", *words]) == 2
    assert expected in capsys.readouterr().err


def test_no_universe_is_gym() -> None:
    with pytest.raises(UserError, match="--universe gym --domain HalfCheetah"):
        environment_id(None, None, "v5")
