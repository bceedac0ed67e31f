"""Phases as users write them: what they leave out is the algorithm's own, what can't end them is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etude.cli import run as etude
from etude.config.compose import compose
from etude.errors import ConfigError, UserError
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from etude.training import assembly
from etude.workflows.base import HookResult, Phase, hook
from etude.workflows.dqn import DQN
from tests.runs_compared import assert_same_run, resume, stopped_after, train

PPO = ("environment.num_envs=4", "algorithm.rollout_steps=8", "algorithm.batch_size=16", "algorithm.epochs=1")
QUICK = (*PPO, "evaluation.episodes=1", "experiment.compile=off")


def _phases(spec: str, *words: str) -> list[list[tuple[str, int]]]:
    orchestrator = assembly.build(assembly.resolve(compose(spec, words=words).config))
    orchestrator.close()
    return [[(hook.name, hook.count) for hook in phase.hooks] for phase in orchestrator.scheduler.phases]


def test_a_phase_without_hooks_keeps_the_algorithms_own_pace() -> None:
    # Defect 35: train_every and gradient_steps were ignored.
    pace = ("algorithm.train_every=3", "algorithm.gradient_steps=5", "experiment.compile=off")
    phases = "training.phases=[{name:a,duration_steps:100},{name:b,type:offline,duration_updates:10},{name:c,type:eval_only}]"
    assert _phases("CartPole-v1:dqn", *pace, phases) == [[("collect", 3), ("update", 5)], [("update", 5)], [("evaluate", 1)]]
    assert _phases("CartPole-v1:ppo", *QUICK, "training.phases=[{name:a}]") == [[("collect", 8), ("update", 1)]]


@pytest.mark.parametrize(
    ("metric", "more", "said"),
    [  # Defect 35
        ("eval/retrun_mean", (), "no evaluation says so; did you mean 'eval/return_mean'?"),
        ("return_mean", (), "no metric is called so; did you mean 'eval/return_mean'?"),
        ("env_step", (), "no metric is called so; did you mean 'env_steps'?"),
        ("eval/return_mean", ("evaluation.every_steps=0",), "evaluations are off"),
    ],
)
def test_a_metric_that_will_never_be_logged_is_refused(metric: str, more: tuple[str, ...], said: str) -> None:
    phases = f"training.phases=[{{name:a,until:{{metric:'{metric}',above:1}}}},{{name:b}}]"
    with pytest.raises(ConfigError, match=f"phase 'a': until.metric={metric}: ") as caught:
        compose("CartPole-v1:ppo", words=[*QUICK, *more, phases])
    assert said in str(caught.value)


def test_a_typo_in_a_metric_of_the_algorithms_own_ends_the_run_early_and_keeps_the_budget(tmp_path: Path) -> None:
    # Defect 35: it ate the whole budget.
    words = (*QUICK, "training.total_steps=3200", "logging.every_steps=32", "evaluation.every_steps=0")
    wrong, right = (f"training.phases=[{{name:a,until:{{metric:'train/{m}',below:1e9}}}},{{name:b}}]" for m in ("los", "loss"))
    with pytest.raises(UserError, match=r"waits for until\.metric=train/los, which is not logged; did you mean 'train/loss'"):
        train("CartPole-v1:ppo", tmp_path, *words, wrong)
    (run,) = Run.list(tmp_path)
    rows = read_rows(run.metrics_path)
    assert (run.status, len(rows)) == ("failed", 3)
    resume(run, right)
    assert run.status == "finished"
    assert [row["env_steps"] for row in read_rows(run.metrics_path)][:4] == [32, 64, 96, 128]


def test_a_metric_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    words = (*QUICK, "training.total_steps=640", "logging.every_steps=32", "evaluation.every_steps=320")
    phases = "training.phases=[{name:a,until:{metric:'eval/return_mean',above:0}},{name:b}]"
    assert train("CartPole-v1:ppo", tmp_path, *words, phases).status == "finished"


def test_a_phase_that_evaluates_does_so_where_evaluations_are_off(tmp_path: Path) -> None:
    # Defect 35: eval_only did nothing.
    words = (*QUICK, "training.total_steps=320", "evaluation.every_steps=0")
    phases = "training.phases=[{name:a,duration_steps:96},{name:look,type:eval_only},{name:b}]"
    run = train("CartPole-v1:ppo", tmp_path, *words, phases)
    assert [row["env_steps"] for row in read_rows(run.metrics_path) if "eval/return_mean" in row] == [96]


class ByEpisode(DQN):
    """A user's algorithm: it collects whole episodes, and has a hook of its own that learns."""

    @hook(collects=True)
    def collect_episode(self, phase: Phase, count: int) -> HookResult:
        assert self.context.collector is not None
        episodes, decisions = self.context.collector.episodes, 0
        goal = episodes.finished + count
        while episodes.finished < goal:
            decisions += self.collect(phase, 1).decisions
        return HookResult(decisions=decisions, env_steps=decisions)

    @hook
    def fit(self, phase: Phase, count: int) -> HookResult:
        return self.update(phase, count)

    def noise(self, phase: Phase, count: int) -> HookResult:
        return HookResult()

    def _private(self, phase: Phase, count: int) -> HookResult:
        return HookResult()


BY_EPISODE = "CartPole-v1:tests.orchestration.test_curricula_of_users.ByEpisode"
SMALL_DQN = ("network.q.hidden_dims=[8]", "algorithm.learning_starts=20", "algorithm.batch_size=8", "environment.num_envs=1",
             "experiment.compile=off", "evaluation.every_steps=0", "environment.max_episode_steps=30")  # fmt: skip


def test_a_hook_that_collects_under_a_name_of_its_own_keeps_to_the_budget(tmp_path: Path) -> None:
    # It ran 40 times past its budget.
    words = (*SMALL_DQN, "training.total_steps=300", "logging.every_steps=30",
             "training.phases=[{name: a, hooks: [{collect_episode: {count: 40}}, {fit: {ratio: 0.1}}]}]")  # fmt: skip
    run = train(BY_EPISODE, tmp_path / "whole", *words)
    assert 300 <= run.summary["counters"]["env_steps"] < 330, "no more than the rest of an episode"
    more = ("training.phases=[{name: a, hooks: [{collect_episode: {count: 2}}, {fit: {ratio: 0.1}}]}]",)
    whole = train(BY_EPISODE, tmp_path / "more", *words[:-1], *more)
    assert whole.summary["counters"]["updates"] > 10
    assert {"time/share/collect_episode", "time/share/fit"} <= read_rows(whole.metrics_path)[-1].keys(), "times by hook"
    with stopped_after(4):
        stopped = train(BY_EPISODE, tmp_path / "stopped", *words[:-1], *more)
    resume(stopped)
    assert_same_run(whole, stopped)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("noise", "ByEpisode has no hook 'noise'; if phases may call noise(phase, count), put @hook above it"),
        ("_private", "ByEpisode has no hook '_private'"),
        ("metrics", "ByEpisode has no hook 'metrics' (known: collect, collect_episode, fit, update, evaluate)"),
        ("collect_episod", "ByEpisode has no hook 'collect_episod'; did you mean 'collect_episode'?"),
    ],
)
def test_a_phase_that_names_no_hook_is_one_line_before_anything_runs(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert etude(["train", BY_EPISODE, f"training.phases=[{{name: a, hooks: [collect, {name}]}}]"]) == 2
    error = capsys.readouterr().err
    assert f"training.phases: phase 'a': {said}" in error
    assert "Traceback" not in error
    assert not [*tmp_path.iterdir()]
