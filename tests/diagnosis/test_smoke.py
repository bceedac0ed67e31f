"""`etude smoke`: passed, failed and skipped with the reason, and an exit code to build on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etude.cli import run as etude
from etude.config.compose import compose
from etude.diagnosis import smoke
from etude.diagnosis.isolation import Result


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = etude(["smoke", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_environments_take_random_steps(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = report(capsys, "envs", "--filter", "CartPole", "--limit", "2", "--steps", "30")
    assert code == 0
    assert {key: found[key] for key in ("total", "passed", "failed", "skipped")} == {
        "total": 2, "passed": 2, "failed": 0, "skipped": 0,
    }  # fmt: skip
    assert all("steps/s, exact" in each["detail"] for each in found["results"])


def test_presets_learn_and_leave_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, found = report(capsys, "presets", "--filter", "FrozenLake", "--steps", "64")
    assert code == 0, found
    assert found["results"][0]["detail"].startswith("64 steps, ")
    assert list(tmp_path.iterdir()) == []


def test_every_config_composes_here_and_a_wrong_one_of_ones_own_is_named_with_all_that_is_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, found = report(capsys, "configs")
    assert (code, found["failed"], found["skipped"]) == (0, 0, 0)
    assert {"CartPole-v1:ppo", "+experiment=ppo_cartpole", "network@network.actor=mlp_64"} <= {
        each["name"] for each in found["results"]
    }
    for name, text in {
        "experiment/mine.yaml": "# @package _global_\nenvironment: {id: CartPole-v1}\nalgorithm: {name: ppo, gama: 1}\n",
        "network/odd.yaml": "type: mlp\nhidden_dims: none\n",
        "right.yaml": "environment: {id: CartPole-v1, wrappers: [{id: reward_scale, factor: 0.1}]}\nalgorithm: ppo\n",
        "sub/wrong.json": json.dumps(
            {"environment": {"id": "CartPole-v1", "wrappers": [{"id": "crp"}, {"id": "crop", "lef": 1}]}, "algorithm": "ppo"}
        ),
    }.items():
        (tmp_path / "configs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "configs" / name).write_text(text)
    assert etude(["smoke", "configs"]) == 1
    shown = capsys.readouterr().out
    assert "✓ configs/right.yaml" in shown
    assert "3 failed" in shown
    for said in (
        "gama: unknown key; did you mean 'gamma'?",
        "hidden_dims",
        "unknown wrapper 'crp'; did you mean 'crop'?",
        "lef",
    ):
        assert said in shown, said


STATUSES = [
    (Result("a", "missing", "needs jax: pip install jax"), "skipped", "needs jax: pip install jax"),
    (Result("a", "refused", "observation is a Text space; Etude reads Box"), "skipped", "Text space"),
    (Result("a", "refused", "a: reward is NaN after 3 random steps", {"stage": "step"}), "failed", "in step: a: reward"),
    (Result("a", "raised", "ValueError: x", {"stage": "build"}), "failed", "in build: ValueError: x"),
    (Result("a", "died", "died by SIGSEGV", {"stage": "step"}), "failed", "in step: died by SIGSEGV"),
    (Result("a", "hung", "gave no answer for 60 s"), "failed", "gave no answer"),
]


@pytest.mark.parametrize(("result", "status", "detail"), STATUSES, ids=[result.detail for result, _, _ in STATUSES])
def test_what_is_missing_is_skipped_and_what_is_wrong_fails(result: Result, status: str, detail: str) -> None:
    outcome = smoke._outcome(result, "")
    assert outcome.status == status
    assert detail in outcome.detail


def test_a_failure_is_shown_with_its_output_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = smoke.Outcome("Bad-v0", "failed", "in step: ValueError: x", 0.1, "Traceback ...\nValueError: x\n")
    monkeypatch.setattr(smoke, "environment_ids", lambda _: ["Bad-v0"])
    monkeypatch.setattr(smoke, "try_environments", lambda *_, **__: iter([failed]))
    assert etude(["smoke", "envs"]) == 1
    shown = capsys.readouterr().out
    assert "✗ Bad-v0" in shown
    assert "    ValueError: x" in shown
    assert shown.splitlines()[-1] == "1 environments: 0 passed, 1 failed, 0 skipped"


def test_a_filter_that_finds_nothing_is_a_wrong_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["smoke", "envs", "--filter", "qqqq"]) == 2
    assert etude(["smoke", "presets", "--filter", "qqqq"]) == 2
    assert etude(["smoke", "configs", "--filter", "qqqq"]) == 2
    assert "etude envs" in capsys.readouterr().err


@pytest.mark.parametrize("spec", ["CartPole-v1:ppo", "CartPole-v1:dqn", "HalfCheetah-v5:sac", "CartPole-v1:a2c"])
def test_brief_settings_are_settings_that_exist(spec: str) -> None:
    config = compose(spec).config
    brief = compose(spec, words=smoke.brief_words(config, 128)).config
    assert brief.training.total_steps == 128
    assert (brief.algorithm.learning_starts or 0) < 128
    assert (brief.algorithm.rollout_steps or 0) * brief.environment.num_envs <= 128
