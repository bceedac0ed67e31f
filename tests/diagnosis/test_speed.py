"""`etude bench`: trains, measures, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.diagnosis.speed import Speed, best_of


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("spec", ["CartPole-v1:ppo", "CartPole-v1:dqn", "CartPole-v1:random", "FrozenLake-v1:q_learning"])
def test_a_training_is_measured_and_thrown_away(spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["algorithm.learning_starts=100"] if spec.endswith("dqn") else []
    assert etude(["bench", spec, *words, "--seconds", "0.05", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["off"]
    assert found["mode"] == "eager"
    assert found["steps_per_s"] > 0
    assert (found["updates_per_s"] > 0) != spec.endswith("random")
    assert found["shares"]["collect"] > 0
    assert list(tmp_path.iterdir()) == []


def test_the_table_has_a_line_for_each_mode(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--mode", "off", "--mode", "auto", "--mode", "off", "--seconds", "0.05", "--rounds", "1"]
    assert etude(["bench", "CartPole-v1:random", *options]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split()[:2] == ["compile", "updates"]
    assert [line.split()[0] for line in lines] == ["off", "auto"]


def test_of_several_rounds_the_fastest_counts() -> None:
    slow, fast = (Speed("eager", speed, 0.0, 1.0, {}) for speed in (1.0, 2.0))
    assert best_of(None, slow) is slow
    assert best_of(slow, fast) is best_of(fast, slow) is fast


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["CartPole-v1:pppo"], "pppo"),
        (["CartPole-v1:ppo", "algorithm.gama=1"], "algorithm.gama: unknown key"),
        (["CartPole-v1:ppo", "--seconds", "0"], "--seconds 0: must be above 0"),
        (["CartPole-v1:ppo", "--rounds", "0"], "--rounds 0: must be at least 1"),
        ([], "which environment?"),
    ],
)
def test_a_slip_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["bench", *words]) == 2
    assert said in capsys.readouterr().err
