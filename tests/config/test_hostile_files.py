"""Config files and words that would hang or crash a parser are one clear line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.config.compose import compose
from etude.errors import UserError
from tests.config.conftest import Complaints, Write

SPEC = "CartPole-v1:ppo"
BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10))]
)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("bomb.yaml", BOMB, "more than 20,000 values, aliases counted"),  # Defect 7: it hung
        ("deep.yaml", "a: " + "[" * 100_000, "nested more than 64 deep"),  # Defect 36: the parser in C crashed
        ("deep.json", "[" * 100_000, "nested too deeply"),
        ("deep.json", '{"a": ' * 100 + "1" + "}" * 100, "nested more than 64 deep"),
        ("long.yaml", "experiment: {seed: " + "9" * 5_000 + "}", "a whole number of 5,000 digits"),
        ("long.json", '{"experiment": {"seed": ' + "9" * 5_000 + "}}", "a whole number of 5,000 digits"),
        ("tag.yaml", "experiment: {seed: !!int x}", "a value can't be read"),
    ],
    ids=lambda value: value[:20],
)
def test_a_hostile_file_is_one_line(complaints: Complaints, write: Write, name: str, text: str, said: str) -> None:
    (line,) = complaints(SPEC, file=write(name, text))
    assert line.startswith(name)
    assert said in line


def test_a_preset_that_a_word_chooses_is_held_to_the_same_limits(complaints: Complaints, write: Write) -> None:
    write("configs/experiment/bomb.yaml", BOMB)
    (line,) = complaints(SPEC, words=["+experiment=bomb"])  # Defect 7
    assert "aliases counted" in line
    write("configs/experiment/outer.yaml", "defaults: [/network@network.actor: wide, _self_]")
    write("configs/network/wide.yaml", f"defaults: [deep, _self_]\n{BOMB}")
    (line,) = complaints(SPEC, words=["+experiment=outer"])
    assert line.startswith(str(Path("configs/network/wide.yaml").resolve()))
    assert "aliases counted" in line


def test_a_link_to_ones_own_file_will_do_and_one_to_a_device_will_not(write: Write, complaints: Complaints) -> None:
    write("real.yaml", "algorithm: {gamma: 0.5}")
    os.symlink("real.yaml", "link.yaml")
    assert compose(SPEC, file=Path("link.yaml")).config.algorithm.gamma == 0.5
    os.symlink("/dev/zero", "zero.yaml")
    assert complaints(SPEC, file=Path("zero.yaml")) == ["zero.yaml: can't be read: not a regular file"]


@pytest.mark.parametrize(
    ("word", "said"),
    [  # Defect 36
        (f"experiment.seed={2**63}", "too large: whole numbers here have 64 bits"),
        ("experiment.seed=1e30", "too large: whole numbers here have 64 bits"),
        (f"experiment.seed={'9' * 5_000}", "can't be read"),
        (f"environment.kwargs.x={'[' * 100}{']' * 100}", "is nested too deeply"),
        (f"algorithm.gamma={10**400}", "must be a finite number"),
        (f"algorithm.learning_rate={10**400}", "must be finite"),
        (f"algorithm.learning_rate={{start:{10**400}}}", "its start is not a number"),
        (f"training.phases=[{{name:a,duration_steps:{10**400}}}]", "must be a whole number"),
        ("training.phases=[{name:a,hooks:[{update:{ratio:'1e999999999'}}]}]", "must be a number such as 0.5"),
        (f"training.phases=[{{name:a,until:{{metric:env_steps,above:{10**400}}}}}]", "must be a number"),
        ("training.phases=[{repeat:1000000000,phases:[{name:a,duration_cycles:1}]}]", "makes more than 100,000 phases"),
    ],
    ids=lambda value: value[:40],
)
def test_numbers_and_lists_beyond_reason_are_one_line(complaints: Complaints, word: str, said: str) -> None:
    (line,) = complaints(SPEC, words=[word])
    assert said in line
    assert len(line) < 600


@pytest.mark.parametrize("text", ["[" * 100_000, '{"width": ' + "9" * 400 + "}", "{"])
def test_hostile_render_options_are_one_line(text: str) -> None:
    from etude.cli.render_options import read_render_options

    with pytest.raises(UserError, match="--render-options") as caught:
        read_render_options(text)  # Defect 7
    assert len(str(caught.value).splitlines()) == 1


def test_hostile_events_scripts_and_robots_are_one_line(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    from etude.cli.driving_choice import choose_source
    from etude.robots.models.description import load_robot

    file = write("bomb.yaml", BOMB)
    with pytest.raises(UserError, match=r"--events bomb.yaml: can't be read: .*aliases counted"):
        choose_source("auto", file, None)  # Defect 7
    with pytest.raises(UserError, match=r"bomb.yaml: is no YAML: .*aliases counted"):
        load_robot(str(file.resolve()))
    assert etude(["train", "--config", "bomb.yaml"]) == 2
    assert "aliases counted" in capsys.readouterr().err
