"""Population-based training: the worst go on as exact copies of the best, also in a search that was killed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from etude.errors import ConfigError
from etude.runs.clone import clone_run
from etude.runs.index import find_runs
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from etude.tuning import runner as runner_module
from etude.tuning.places import SweepFolder
from etude.tuning.plan import Plan
from etude.tuning.population import PopulationRunner, perturbed
from etude.tuning.space import read_space
from etude.tuning.spec import PbtConfig, SweepConfig, build_sweep
from etude.tuning.study import Study, Trial
from tests.runs_compared import assert_same_run, rows
from tests.tuning.in_process import InProcessBackend

WORDS = ["training.total_steps=768", "algorithm.epochs=1", "evaluation.episodes=2", "algorithm.rollout_steps=32"]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "POLL_S", 0)


def sweep(**settings: Any) -> SweepConfig:
    data = {"name": "s", "base": {"spec": "CartPole-v1:ppo", "words": WORDS}, "method": "pbt", "n_trials": 4}
    space = {"algorithm.learning_rate": {"low": 1e-4, "high": 1e-1, "log": True}}
    return build_sweep({**data, "pbt": {"interval": 256}, "sweep": space, **settings})


def opened(root: Path, asked: SweepConfig, backend: InProcessBackend) -> PopulationRunner:
    plan = Plan(asked)
    study = SweepFolder(root, asked.name).open(asked, plan)
    return PopulationRunner(plan, study, backend, n_trials=asked.n_trials, timeout_s=None)


def run_of(root: Path, number: int) -> Run:
    (found,) = find_runs(root, group=f"s/{number:04d}")
    return Run.open(found.path)


def copies(study: Study) -> list[Trial]:
    return [trial for trial in study.trials if "copy_of" in trial.facts]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Study]:
    root = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner_module, "POLL_S", 0)
        runner = opened(root, sweep(), InProcessBackend(root))
        assert runner.run() == "done"
    return root, runner.study


def test_the_worst_go_on_as_changed_copies_of_the_best(whole: tuple[Path, Study]) -> None:
    root, study = whole
    found = copies(study)
    assert found
    assert sum(trial.state == "complete" for trial in study.trials) == 4
    assert len(study.trials) == 4 + len(found)
    for trial in found:
        source, loser = study.trials[trial.facts["copy_of"]], study.trials[trial.facts["replaces"]]
        rounds = trial.facts["rounds"]
        assert loser.state == "pruned"
        assert loser.reports[rounds] < source.reports[rounds]
        assert trial.values != source.values
        # Up to the copy its history is the other's, and from there its own.
        steps = 256 * rounds
        mine, theirs = rows(run_of(root, trial.number)), rows(run_of(root, source.number))
        before = [row for row in mine if row in theirs]
        logged = read_rows(run_of(root, trial.number).metrics_path)
        assert len(before) == sum(row["env_steps"] <= steps for row in logged)
        assert run_of(root, trial.number).record["cloned_from"]["run"] == run_of(root, source.number).id


def test_a_copy_without_a_change_is_its_source_to_the_bit(tmp_path: Path) -> None:
    asked = sweep(pbt={"interval": 256, "resample": 0.0, "factors": [1.0]}, n_trials=2, words=["training.total_steps=512"])
    runner = opened(tmp_path, asked, InProcessBackend(tmp_path))
    runner.run()
    (copy,) = copies(runner.study)
    assert copy.settings == runner.study.trials[copy.facts["copy_of"]].settings
    assert_same_run(run_of(tmp_path, copy.number), run_of(tmp_path, copy.facts["copy_of"]))


def test_a_search_that_was_killed_again_and_again_ends_as_one_that_was_not(
    tmp_path: Path, whole: tuple[Path, Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = random.Random(1)
    kills = 0
    while True:
        # At a random moment: between two looks, two lines of the journal, or before a run is copied.
        left = [draws.randint(1, 9)]

        def killed_sometimes(original: Any, left: list[int] = left) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    raise KeyError("killed")
                return original(*arguments, **options)

            return call

        with monkeypatch.context() as patch:
            for name in ("ask", "prune", "note", "report", "complete"):
                patch.setattr(Study, name, killed_sometimes(getattr(Study, name)))
            patch.setattr("etude.tuning.population.clone_run", killed_sometimes(clone_run))
            try:
                runner = opened(tmp_path, sweep(), InProcessBackend(tmp_path))
                assert runner.run() == "done"
                break
            except KeyError:
                kills += 1
    assert kills > 3
    root, study = whole
    assert [(t.values, t.state, t.objective, t.reports) for t in runner.study.trials] == [
        (t.values, t.state, t.objective, t.reports) for t in study.trials
    ]
    for trial in study.trials:
        assert_same_run(run_of(tmp_path, trial.number), run_of(root, trial.number))


def test_changes_stay_within_the_space_and_move_whole_numbers() -> None:
    space = read_space(
        {
            "a": {"low": 1e-4, "high": 1e-2, "log": True},
            "b": {"low": 1, "high": 4},
            "c": ["x", "y", "z"],
            "d": {"low": 0, "high": 10, "step": 5},
        }
    )
    pbt = PbtConfig(resample=0.0)
    seen = [perturbed(space, {"a": 1e-2, "b": 2, "c": "y", "d": 5}, pbt, random.Random(n)) for n in range(40)]
    assert {each["a"] for each in seen} == {0.008, 0.01}
    assert {each["b"] for each in seen} == {1, 3}
    assert {each["c"] for each in seen} == {"x", "z"}
    assert {each["d"] for each in seen} == {0, 10}
    anew = [
        perturbed(space, {"a": 1e-2, "b": 2, "c": "y", "d": 5}, PbtConfig(resample=1.0), random.Random(n)) for n in range(40)
    ]
    assert len({each["a"] for each in anew}) == 40


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"n_trials": 1}, "needs a population"),
        ({"seeds": [1, 2]}, "give one seed"),
        ({"pruner": "median"}, "no pruner"),
        ({"sweep": {"network.actor.hidden_dims": [[32], [64]]}}, "can't be changed"),
        ({"pbt": {"factors": []}}, "factors"),
    ],
)
def test_what_no_population_can_be_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        sweep(**settings)


def test_evaluations_come_at_least_as_often_as_comparisons() -> None:
    assert "evaluation.every_steps=256" in Plan(sweep()).words({})
    with pytest.raises(ConfigError, match=r"evaluation\.every_steps=1000"):
        Plan(sweep(words=["evaluation.every_steps=1000"])).words({})
