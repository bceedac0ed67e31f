"""The command line as a user meets it: verbs, exit codes, clear errors, nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from etude.cli import run as etude
from tests.runs_compared import stopped_after

TINY = ("training.total_steps=600", "algorithm.epochs=1", "evaluation.episodes=2")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_imports_little() -> None:
    code = "import json, sys; from etude.cli import run; run(['--help']); print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    imported = set(json.loads(done.stdout.splitlines()[-1]))
    assert not {"torch", "numpy", "gymnasium", "hydra", "omegaconf", "yaml"} & imported
    # What `--help` costs is its imports, mostly cyclopts and rich.
    assert len(imported) < 400


def test_every_verb_of_the_help_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["--help"]) == 0
    shown = capsys.readouterr().out
    for verb in ("train", "resume", "evaluate", "runs", "config", "envs", "algorithms"):
        assert verb in shown
        assert etude([verb, "--help"]) == 0


def test_train_evaluate_list_and_show(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert etude(["train", "CartPole-v1:ppo", *TINY, "--seed", "3", "--name", "first", "-q"]) == 0
    (run,) = [path for path in (tmp_path / "runs").iterdir() if path.name != "@last"]
    assert run.name.endswith("-first-s3")
    output = capsys.readouterr()
    assert output.out == ""
    assert str(run.relative_to(tmp_path)) in output.err
    assert etude(["evaluate", "@last", "--episodes", "7", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["modes"]["greedy"]["returns"]) == 7
    assert etude(["evaluate", "@best", "--episodes", "3", "--mode", "both", "--checkpoint", "best"]) == 0
    assert "sample" in capsys.readouterr().out
    assert etude(["runs", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["status"] == "finished"
    assert etude(["runs", "show", run.name[:10]]) == 0
    assert "600 environment steps" in capsys.readouterr().out


def test_evaluating_twice_gives_the_same_numbers_and_another_seed_others(capsys: pytest.CaptureFixture[str]) -> None:
    etude(["train", "CartPole-v1:ppo", *TINY, "-q"])
    reports = []
    for seed in ("0", "0", "1"):
        capsys.readouterr()
        assert etude(["evaluate", "@last", "--episodes", "5", "--seed", seed, "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out)["modes"])
    assert reports[0] == reports[1] != reports[2]


def test_changed_defaults_do_not_change_the_evaluation_of_an_old_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    etude(["train", "CartPole-v1:ppo", *TINY, "-q"])
    etude(["evaluate", "@last", "--episodes", "5", "--json"])
    before = capsys.readouterr().out
    from etude.workflows.ppo import PPO

    other = {role: {"type": "mlp", "hidden_dims": [8]} for role in ("actor", "critic")}
    monkeypatch.setattr(PPO, "default_networks", classmethod(lambda cls: other))
    etude(["evaluate", "@last", "--episodes", "5", "--json"])
    assert capsys.readouterr().out == before


def test_resume_continues_and_says_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    with stopped_after(1):
        assert etude(["train", "CartPole-v1:ppo", *TINY]) == 130
    assert etude(["resume", "@last", "algorithm.gamma=0.9"]) == 0
    shown = capsys.readouterr().err
    assert "algorithm.gamma: 0.98 → 0.9" in shown
    assert "etude evaluate" in shown


def test_a_printed_config_trains_the_same_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert etude(["train", "CartPole-v1:ppo", *TINY, "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
    (tmp_path / "printed.yaml").write_text(printed)
    assert etude(["config", "--config", "printed.yaml"]) == 0
    again = yaml.safe_load(capsys.readouterr().out)
    wanted = yaml.safe_load(printed)
    assert again == wanted


def test_an_explained_config_is_data_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Defect 38: --explain took no notice of --json."""
    assert etude(["config", "MiniGrid-Unlock-v0:ppo", "algorithm.gamma=0.5", "--explain", "--json"]) == 0
    settings = {setting["key"]: setting for setting in json.loads(capsys.readouterr().out)}
    assert settings["algorithm.gamma"] | {"meaning": ""} == {
        "key": "algorithm.gamma", "value": 0.5, "origin": "command line", "meaning": "",
    }  # fmt: skip
    assert settings["algorithm.epochs"]["origin"] == "family preset minigrid:ppo"
    assert settings["algorithm.gamma"]["meaning"].startswith("Discount")


def test_from_run_reproduces_an_earlier_run(tmp_path: Path) -> None:
    assert etude(["train", "CartPole-v1:ppo", *TINY, "--seed", "5", "-q"]) == 0
    assert etude(["train", "--from-run", "@last", "-q"]) == 0
    first, second = sorted(path for path in (tmp_path / "runs").iterdir() if path.name != "@last")
    chosen, told = (yaml.safe_load((run / "resolved.yaml").read_text()) for run in (first, second))
    assert chosen["_resolved"].pop("why"), "how updates run was chosen once, and said by that run's config the second time"
    assert chosen == told
    from etude.runs.run import Run
    from tests.runs_compared import assert_same_run

    assert_same_run(Run.open(first), Run.open(second))


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["envs", "cartpole"]) == 0
    assert "CartPole-v1:ppo" in capsys.readouterr().out
    assert etude(["algorithms", "--json"]) == 0
    assert {"ppo", "random"} <= json.loads(capsys.readouterr().out).keys()
    assert etude(["runs", "list"]) == 0
    assert "etude train" in capsys.readouterr().out


WRONG = [
    (["trian"], "train"),
    (["train"], "which environment"),
    (["train", "CartPole-v1"], "CartPole-v1:ppo"),
    (["train", "CartPole-v1:pppo"], "did you mean 'ppo'"),
    (["train", "CartPol-v1:ppo"], "did you mean 'CartPole-v1'"),
    (["train", "CartPole:ppo"], "which version? write CartPole-v1"),
    (["train", "CartPole-v1:ppo", "algorithm.learning_rat=1"], "did you mean 'learning_rate'"),
    (["train", "CartPole-v1:ppo", "+algorithm.learning_rat=1"], "did you mean 'learning_rate'"),
    (["train", "CartPole-v1:ppo", "algorithm.gamma=high"], "algorithm.gamma=high: must be a number"),
    (["train", "CartPole-v1:ppo", "algorithm.gamma=1.5"], "must be at least 0 and at most 1"),
    (["train", "CartPole-v1:ppo", "algorithm.clip_range=0"], "must be above 0"),
    (["train", "CartPole-v1:ppo", "algorithm.batch_size=100"], "does not divide"),
    (["train", "CartPole-v1:ppo", "environment.num_envs=0"], "environment.num_envs=0: must be at least 1"),
    (["train", "CartPole-v1:ppo", "experiment.device=cuda:9"], "experiment.device=cuda:9"),
    (["train", "CartPole-v1:ppo", "experiment.device=gpu"], "experiment.device=gpu"),
    (["train", "CartPole-v1:ppo", "network.actr.type=mlp"], "did you mean 'actor'"),
    (["train", "CartPole-v1:ppo", "network.actor.type=mpl"], "did you mean 'mlp'"),
    (["train", "CartPole-v1:ppo", "network.actor.activation=rleu"], "did you mean 'relu'"),
    (["train", "CartPole-v1:ppo", "environment.kwargs.gravty=1"], "gravty"),
    (["train", "CartPole-v1:ppo", "--config", "missing.yaml"], "there is no such file"),
    (["train", "CartPole-v1:ppo", "--seed", "abc"], "seed"),
    (["train", "CartPole-v1:ppo", "--sed", "1"], "--seed"),
    (["train", "CartPole-v1:ppo", "gamma"], "key=value"),
    (["train", "CartPole-v1:no_such_module.Thing"], "no module 'no_such_module'"),
    (["train", "--from-run", "@last"], "runs"),
    (["resume", "@last"], "runs"),
    (["evaluate", "nothing"], "runs"),
    (["config", "CartPole-v1:ppo", "training.total_steps=-5"], "must be at least 1"),
]


@pytest.mark.parametrize(("arguments", "expected"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_a_slip_gets_a_few_clear_lines_exit_code_2_no_traceback_and_no_run(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert etude(arguments) == 2
    output = capsys.readouterr()
    assert expected in output.err
    assert len(output.err.splitlines()) <= 6
    assert "Traceback" not in output.err
    assert output.out == ""
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("words", [["brax/inverted_pendulum:ppo"], ["CartPole-v1:ppo", "environment.backend=envpool"]])
def test_a_package_that_is_not_installed_is_a_wrong_request_with_the_line_that_installs_it(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for package in ("brax", "jax", "envpool"):
        monkeypatch.setitem(sys.modules, package, None)
    assert etude(["train", *words]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("etude: ")]
    assert "pip install 'etude[" in line
    assert not (tmp_path / "runs").exists()


def test_a_space_an_algorithm_cannot_act_in_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tmp_path.joinpath("strange_env.py").write_text(
        "import gymnasium\n"
        "class Strange(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(0, 1, (2,))\n"
        "    action_space = gymnasium.spaces.Text(5)\n"
        "gymnasium.register('Strange-v0', Strange)\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        assert etude(["train", "strange_env:Strange-v0:ppo"]) == 2
    finally:
        sys.path.remove(str(tmp_path))
    assert "actions are Text" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_missing_extra_is_one_line_that_names_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.training.run_sinks.find_spec", lambda name: None if name == "wandb" else find_spec(name))
    assert etude(["train", "CartPole-v1:ppo", "logging.wandb.enabled=true"]) == 2
    assert "pip install 'etude[wandb]'" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_quiet_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["train", "CartPole-v1:ppo", *TINY, "-q"]) == 0
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_json_config_files_work(tmp_path: Path) -> None:
    tmp_path.joinpath("mine.json").write_text(json.dumps({"algorithm": {"epochs": 1}, "training": {"total_steps": 300}}))
    assert etude(["train", "CartPole-v1:ppo", "--config", "mine.json", "-q"]) == 0


def test_names_with_quotes_and_names_like_numbers_survive(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ('it\'s "fine" \\ here', "1e5", "null"):
        assert etude(["train", "CartPole-v1:ppo", "--name", name, "--print-config"]) == 0
        printed = capsys.readouterr().out
        (tmp_path / "printed.yaml").write_text(printed)
        assert etude(["config", "--config", "printed.yaml", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["experiment"]["name"] == name


def test_reward_normalisation_that_is_ignored_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("environment.normalize_observations=static", "environment.normalize_rewards=true")
    assert etude(["train", "CartPole-v1:ppo", *TINY, *words]) == 0
    assert "environment.normalize_rewards is ignored" in capsys.readouterr().err
