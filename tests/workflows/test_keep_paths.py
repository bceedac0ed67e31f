"""training.keep_paths: the last whole episodes of training, as they were collected, through every stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import etude
from etude.config.compose import compose
from etude.errors import ConfigError, UserError
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from etude.workflows.base import Phase
from tests.runs_compared import assert_same_state, resume, state, stopped_after, train

PHASE = Phase("train", total_steps=1000)
LIMIT = 20
SHORT = ("environment.max_episode_steps=20", "training.keep_paths=5")
REPLAY = ("algorithm.learning_starts=16", "buffers.replay.capacity=4000", "algorithm.batch_size=16")
TASKS = {
    "rollouts": (
        "CartPole-v1:ppo",
        "environment.num_envs=3",
        "algorithm.rollout_steps=64",
        "algorithm.batch_size=32",
        "algorithm.epochs=2",
    ),
    "arrays": ("CartPole-v1:dqn", "environment.num_envs=2", *REPLAY, "algorithm.train_every=8"),
    "continuous": ("Pendulum-v1:sac", "environment.num_envs=1", *REPLAY),
    "more copies than paths": ("CartPole-v1:ppo", "environment.num_envs=8"),
}


def build(*words: str) -> Orchestrator:
    spec, *settings = words
    run = assembly.build(assembly.resolve(compose(spec, words=("experiment.compile=off", *SHORT, *settings)).config))
    assert run.collector is not None
    run.collector.start(run.workflow.initial_state)
    return run


def as_lists(paths: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in path.items()} for path in paths
    ]


@pytest.mark.parametrize("words", TASKS.values(), ids=TASKS)
def test_paths_are_what_was_collected_and_honour_the_limit(words: tuple[str, ...]) -> None:
    run = build(*words)
    seen: list[dict[str, torch.Tensor]] = []
    for buffer in run.buffers.values():
        add = buffer.add

        def noting(row: Any, add: Any = add) -> None:
            seen.append({name: torch.as_tensor(value).clone() for name, value in row.items()})
            add(row)

        buffer.add = noting  # type: ignore[method-assign]
    for _ in range(4):
        run.workflow.collect(PHASE, 30)
        run.workflow.update(PHASE, 2)
    assert run.collector is not None
    paths = run.collector.last_paths()
    assert len(paths) == 5
    watched = min(5, run.collector.environment.num_envs)
    rows = {name: torch.stack([row[name] for row in seen])[:, :watched] for name in ("observation", "action", "reward")}
    ended = torch.stack([row["terminated"] | row["truncated"] for row in seen])[:, :watched]
    last = sorted((int(step), int(copy)) for step, copy in ended.nonzero())[-5:]
    for path, (step, copy) in zip(paths, last, strict=True):
        assert 1 <= path["length"] <= LIMIT
        assert bool(path["truncated"][-1]) == (path["length"] == LIMIT and not path["terminated"][-1])
        when = slice(step + 1 - path["length"], step + 1)
        for name, key in (("observation", "observations"), ("action", "actions"), ("reward", "rewards")):
            assert torch.equal(path[key], rows[name][when, copy]), name
        assert torch.equal(path["observations"][1:], path["next_observations"][:-1])
    run.close()


def test_arrays_keep_the_paths_that_tensors_do() -> None:
    kept = []
    for with_arrays in (True, False):
        run = build(*TASKS["arrays"], "algorithm.epsilon=0.3")
        if not with_arrays:
            run.workflow.array_twin = lambda: None  # type: ignore[method-assign] # of this run alone
        run.workflow.collect(PHASE, 1)  # columns are made at the first step
        run.workflow.collect(PHASE, 119)
        assert run.collector is not None
        kept.append(as_lists(run.collector.last_paths()))
        run.close()
    assert kept[0] == kept[1]


def test_nothing_is_kept_unless_asked_for() -> None:
    run = build("CartPole-v1:ppo", "training.keep_paths=0")
    run.workflow.collect(PHASE, 30)
    assert run.collector is not None
    assert run.collector.last_paths() == []
    assert "paths" not in run.collector.state_dict()
    run.close()


@pytest.mark.parametrize("words", [TASKS["rollouts"], TASKS["arrays"]], ids=["rollouts", "arrays"])
def test_a_resumed_run_has_the_last_paths_of_one_never_stopped(words: tuple[str, ...], tmp_path: Path) -> None:
    settings = (*SHORT, *words[1:], "training.total_steps=900", "evaluation.every_steps=0", "experiment.compile=off")
    whole = train(words[0], tmp_path / "whole", *settings)
    with stopped_after(2):
        cut = train(words[0], tmp_path / "cut", *settings)
    assert cut.status == "interrupted"
    resume(cut)
    wanted, found = (etude.open_run(run.path).last_paths() for run in (whole, cut))
    assert len(wanted) == 5
    assert as_lists(found) == as_lists(wanted)
    assert_same_state(state(whole), state(cut))


def test_paths_are_read_while_it_trains_and_afterwards(tmp_path: Path) -> None:
    words = (*SHORT, *TASKS["rollouts"][1:], "training.total_steps=600", "experiment.compile=off")
    run = etude.start("CartPole-v1:ppo", *words, runs=tmp_path)
    during: list[dict[str, Any]] = []
    for _ in run:
        during = run.last_paths(2)
    assert len(during) == 2
    assert as_lists(run.last_paths(2)) == as_lists(during)
    assert len(run.last_paths()) == 5
    dropped = etude.train("CartPole-v1:random", "training.total_steps=64", runs=tmp_path)
    with pytest.raises(UserError, match=r"training\.keep_paths=0"):
        dropped.last_paths()


def test_keeping_paths_changes_nothing_else(tmp_path: Path) -> None:
    words = (*TASKS["rollouts"][1:], "environment.max_episode_steps=20", "training.total_steps=600", "experiment.compile=off")
    without, with_paths = (state(train("CartPole-v1:ppo", tmp_path, *words, f"training.keep_paths={kept}")) for kept in (0, 5))
    with_paths["rank/0"]["collector"].pop("paths")
    assert_same_state(without, with_paths)


def test_paths_that_would_not_fit_are_refused_before_the_run() -> None:
    config = compose("CartPole-v1:ppo", words=("training.keep_paths=200000",)).config
    with pytest.raises(ConfigError, match=r"training\.keep_paths=200000: paths of up to 500 steps would take"):
        assembly.build(assembly.resolve(config))


def test_robots_keep_paths_of_dicts(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    run = build("quadruped-flat:ppo", "environment.num_envs=4", "training.keep_paths=2", "algorithm.rollout_steps=48")
    run.workflow.collect(PHASE, 48)
    assert run.collector is not None
    paths = run.collector.last_paths()
    assert len(paths) == 2
    assert paths[-1]["observations"].keys() == {"actor", "critic"}
    assert paths[-1]["observations"]["actor"].shape == (paths[-1]["length"], 47)
    run.close()
