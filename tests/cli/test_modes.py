"""`etude run local`, `debug`, `dry` and `cluster`, and `launch_gce` and `launch_ec2`: other names, the same deeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from etude.cli import app
from etude.cli import run as etude
from etude.cli.launch import app as launch_app
from etude.runs.run import Run
from tests.launching.conftest import Stubs, stubs

TINY = ("CartPole-v1:ppo", "training.total_steps=600", "algorithm.epochs=1", "evaluation.episodes=1")
__all__ = ["stubs"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize("mode", ["local", "debug", "dry", "cluster"])
def test_every_mode_has_help(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["run", mode, "--help"]) == 0
    assert "etude " in capsys.readouterr().out


def test_local_trains() -> None:
    assert etude(["run", "local", *TINY, "--seed", "3", "-q"]) == 0
    assert Run.resolve("@last", Path("runs")).status == "finished"


def test_local_takes_the_environment_in_parts_as_users_of_softlearning_write_it() -> None:
    words = ["--algorithm", "ppo", "--universe", "gym", "--domain", "CartPole", "--task", "v1"]
    assert etude(["run", "local", *words, *TINY[1:], "-q"]) == 0


def test_debug_is_trains_own() -> None:
    assert etude(["run", "debug", *TINY, "-q"]) == 0
    assert not Path("runs").exists()
    assert Run.resolve("@last", Path("debug")).status == "finished"


def test_dry_prints_the_config_and_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["run", "dry", *TINY, "--seed", "4"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["experiment"]["seed"] == 4
    assert not list(Path().iterdir())


def test_cluster_submits_to_ray(stubs: Stubs) -> None:
    stubs.add("ray", "submitted\n")
    assert etude(["run", "cluster", "--cpus", "2", *TINY, "--seed", "1,2"]) == 0
    (call,) = stubs.calls("ray")
    assert call[:2] == ["job", "submit"]
    tasks = json.loads(json.loads(call[call.index("--runtime-env-json") + 1])["env_vars"]["ETUDE_TASKS"])
    assert (tasks["cpus"], len(tasks["tasks"])) == (2, 2)


@pytest.mark.parametrize(
    "words", [["launch_gce", "--project", "my-lab-42", "--upload", "gs://b/x"], ["launch_ec2", "--upload", "s3://b/x"]]
)
def test_the_names_of_softlearning_launch(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert etude([*words, "--dry", "--unchecked", "train", *TINY]) == 0
    aliased = capsys.readouterr().out
    assert etude(["launch", words[0].removeprefix("launch_"), *words[1:], "--dry", "--unchecked", "train", *TINY]) == 0
    assert capsys.readouterr().out == aliased


def _options(verb: object) -> set[str]:
    found = verb.assemble_argument_collection()  # type: ignore[attr-defined]
    return {name for argument in found for name in argument.names if name.startswith("-")}


def test_no_option_of_a_launcher_has_the_name_of_one_of_what_is_launched() -> None:
    """Options may stand anywhere: one that both had would go to the launcher, and never arrive."""
    launched = {name for verb in ("train", "resume", "sweep") if verb in set(app) for name in _options(app[verb])}
    for backend in ("slurm", "ssh", "ray", "gce", "ec2", "modal", "docker"):
        both = _options(launch_app[backend]) & launched
        # These mean the same to both: what is asked for is the job's, and a sweep counts what its job has.
        assert {"--runs"} <= both <= {"--runs", "--cpus", "--gpus", "--dry", "--no-dry"}, f"{backend}: {sorted(both)}"
