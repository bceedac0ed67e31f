"""Options that are out of range, contradict each other or would do nothing are refused, before anything is loaded."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from etude.cli import run as etude
from tests.runs.run_trees import make_run

TRAIN = "train CartPole-v1:ppo"


@pytest.fixture(autouse=True)
def a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs", "a")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        # Defect 23: each of these was accepted, and ignored.
        ("play @last --fps 0", "--fps 0: must be above 0"),
        ("play @last --fps 30 --render none", "--fps 30 is of pictures"),
        ("play @last --video x.avi", "the name must end in .mp4 or .gif"),
        ("play @last --episodes 2 --record-length 9", "--episodes 2 and --record-length 9: choose one"),
        ("play @last --step-by-step --json", "--step-by-step and --json: choose one"),
        ("evaluate @last --timeout -1", "--timeout -1: must be above 0"),
        ("evaluate @last --timeout nan", "--timeout nan: must be above 0"),
        ("evaluate @last --ladder --checkpoint best", "--ladder and --checkpoint best: choose one"),
        (f"{TRAIN} --parallel 2", "--parallel 2 is of several seeds"),
        (f"{TRAIN} --seed 3 --parallel 2", "--parallel 2 is of several seeds"),
        (f"{TRAIN} --seed 1,2 --parallel 0", "--parallel 0: must be at least 1"),
        (f"{TRAIN} --total-steps 1e5 --iterations 9", "--total-steps 100000.0 and --iterations 9: choose one"),
        (f"{TRAIN} training.total_steps=9 training.iterations=1", "choose one budget"),
        (f"{TRAIN} --total-steps 5 training.iterations=1", "choose one budget"),
        (f"{TRAIN} --total-steps 5 training.total_steps=6", "--total-steps and training.total_steps=6: choose one"),
        (f"{TRAIN} --seed 5 experiment.seed=6", "--seed and experiment.seed=6: choose one"),
        (f"{TRAIN} --profile -1", "--profile -1: must be at least 1"),
        (f"{TRAIN} --debug --compile", "--debug and --compile: choose one"),
        (f"{TRAIN} --debug environment.workers=4", "leave out environment.workers=4"),
        (f"{TRAIN} --auto-resume --profile 3", "--auto-resume and --profile 3: choose one"),
        (f"{TRAIN} --trust", "goes with --from-run or --auto-resume"),
        ("verify @last --seed 3", "--seed 3 is of --resume-at random"),
        ("verify @last --current-code --repo .", "--current-code and --repo .: choose one"),
        ("trials @last --only ,", "--only names no trial"),
        ("trials @last --robots 0", "--robots 0: must be at least 1"),
        ("doctor --steps 0", "--steps 0: must be at least 1"),
        ("doctor --timeout -1", "--timeout -1: must be above 0"),
        ("smoke envs --jobs 0", "--jobs 0: must be at least 1"),
        ("smoke presets --limit -2", "--limit -2: must be at least 0"),
        ("robots go1 --yaml --json", "--yaml and --json: choose one"),
        ("runs list --limit -1", "--limit -1: must be at least 0"),
        ("runs compare @last --smooth 0.1", "--smooth 0.1 is of curves"),
        ("runs compare @last --aggregate iqm", "--aggregate iqm is of curves"),
        ("runs export @last --aggregate iqm", "--aggregate iqm is of curves"),
        ("runs cleanup --keep-recent 3 --metric last", "add --keep-best N"),
        ("runs tag @last good --remove good", "to be added and removed"),
    ],
)
def test_what_would_be_ignored_is_refused_in_one_line(
    words: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert etude(shlex.split(words)) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("etude: ")]
    assert said in line
    assert len(list((tmp_path / "runs").glob("*-*"))) == 1


def test_the_config_of_several_seeds_is_that_of_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["train", "CartPole-v1:ppo", "--seed", "7,8", "--print-config"]) == 0
    shown = capsys.readouterr()
    assert "seed: 7" in shown.out
    assert "the others differ in experiment.seed alone" in shown.err
