"""A search remembers everything, goes on after a kill, and finds better points than chance."""

from __future__ import annotations

import math
import multiprocessing
import statistics
from pathlib import Path
from typing import Any

import pytest

from etude.errors import EtudeError, UserError
from etude.tuning.functions import AutoTuner, make_study, optimise
from etude.tuning.study import ChangedError

SPACE = {"x": {"low": -5.0, "high": 10.0}, "y": {"low": 0.0, "high": 15.0}}


def branin(x: float, y: float) -> float:
    """Branin's function (Dixon and Szegő 1978); its minimum is 0.397887."""
    b, c = 5.1 / (4 * math.pi**2), 5 / math.pi
    return (y - b * x * x + c * x - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def test_bayes_beats_random_on_branin_in_30_trials() -> None:
    found = {
        method: [optimise(branin, SPACE, trials=30, direction="min", method=method, seed=seed).best(1)[0] for seed in range(5)]
        for method in ("random", "bayes")
    }
    middle = {method: statistics.median(trial.objective[0] for trial in best) for method, best in found.items()}
    assert middle["bayes"] < middle["random"]


SEARCHERS = [("random", "tpe"), ("bayes", "tpe"), ("bayes", "cmaes"), pytest.param("bayes", "gp", marks=pytest.mark.slow)]


@pytest.mark.parametrize(("method", "sampler"), SEARCHERS)
def test_a_search_that_was_killed_goes_on_as_if_it_never_was(tmp_path: Path, method: Any, sampler: str) -> None:
    options = {"direction": "min", "method": method, "sampler": sampler, "seed": 3}
    whole = optimise(branin, SPACE, trials=16, **options)
    state = tmp_path / "journal.jsonl"
    optimise(branin, SPACE, trials=7, state=state, **options)
    optimise(branin, SPACE, trials=12, state=state, **options)
    with state.open("ab") as file:
        file.write(b'{"event":"asked","trial":12,"val')  # killed amid a line
    resumed = optimise(branin, SPACE, trials=16, state=state, **options)
    assert [trial.values for trial in resumed.trials] == [trial.values for trial in whole.trials]
    assert [trial.objective for trial in resumed.trials] == [trial.objective for trial in whole.trials]


def test_a_trial_that_was_running_is_run_again_with_the_same_values(tmp_path: Path) -> None:
    state = tmp_path / "journal.jsonl"
    study = make_study(SPACE, state=state)
    asked = [study.ask() for _ in range(3)]
    seen: list[float] = []
    again = optimise(lambda x, y: seen.append(x) or 0.0, SPACE, trials=3, state=state)
    assert seen == [trial.values["x"] for trial in asked if trial is not None]
    assert [trial.state for trial in again.trials] == ["complete"] * 3


def test_a_failing_trial_is_recorded_and_the_search_goes_on(tmp_path: Path) -> None:
    def picky(x: int) -> float:
        if x == 2:
            raise ValueError("not two")
        return math.nan if x == 3 else float(x)

    study = optimise(picky, {"x": [1, 2, 3, 4]}, trials=10, method="grid", state=tmp_path / "j.jsonl")
    assert [trial.state for trial in study.trials] == ["complete", "failed", "failed", "complete"]
    assert [trial.error for trial in study.trials][1:3] == ["ValueError: not two", "its objective is nan"]
    assert [trial.error for trial in make_study({"x": [1, 2, 3, 4]}, method="grid", state=tmp_path / "j.jsonl").trials][1]


def test_another_search_is_not_continued_by_mistake(tmp_path: Path) -> None:
    optimise(branin, SPACE, trials=2, state=tmp_path / "j.jsonl")
    with pytest.raises(ChangedError, match="seed"):
        make_study(SPACE, state=tmp_path / "j.jsonl", seed=1)


def test_a_damaged_journal_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    state = tmp_path / "j.jsonl"
    optimise(branin, SPACE, trials=2, method="random", state=state)
    lines = state.read_text().splitlines()
    state.write_text("\n".join([lines[0], "garbage", *lines[1:]]) + "\n")
    with pytest.raises(EtudeError, match="line 2"):
        make_study(SPACE, method="random", state=state)


def test_of_several_objectives_the_front_is_best() -> None:
    study = optimise(lambda x: (x, abs(x - 2)), {"x": [0, 1, 2, 3, 4]}, trials=5, direction=["max", "min"], method="grid")
    assert [trial.values["x"] for trial in study.best()] == [4, 3, 2]


def test_the_tuner_proposes_learns_and_remembers(tmp_path: Path) -> None:
    space = {"x": {"low": -5.0, "high": 10.0}, "y": {"low": 0.0, "high": 15.0}}
    tuner = AutoTuner(space, direction="min", state=tmp_path / "t.jsonl")
    history = [({"x": 3.0, "y": 2.0}, branin(3.0, 2.0)), ({"x": 9.0, "y": 14.0}, branin(9.0, 14.0))]
    for _ in range(3):
        config = tuner.suggest_next_config(history)
        tuner.update_with_result(config, branin(**config))
    assert len(tuner.study.trials) == 5
    with pytest.raises(UserError, match="not a config that was suggested"):
        tuner.update_with_result({"x": 0.0, "y": 0.0}, 1.0)
    again = AutoTuner(space, direction="min", state=tmp_path / "t.jsonl")
    assert again.best_config == tuner.best_config
    assert len(again.study.trials) == 5


def test_the_pruner_ends_what_is_worse_and_its_memory_survives(tmp_path: Path) -> None:
    space = {"x": {"low": 0.0, "high": 1.0}}
    study = make_study(space, method="random", pruner="median", state=tmp_path / "j.jsonl")
    for number in range(6):
        trial = study.ask()
        assert trial is not None
        assert not any(study.report(trial, step, float(number + step)) for step in (1, 2))
        study.complete(trial, [float(number)])
    again = make_study(space, method="random", pruner="median", state=tmp_path / "j.jsonl")
    bad, good = again.ask(), again.ask()
    assert bad is not None
    assert good is not None
    assert again.report(bad, 1, -1.0)
    assert not again.report(good, 1, 100.0)
    again.prune(bad)
    assert bad.state == "pruned"


def test_a_choice_may_be_a_list_for_every_sampler_that_takes_choices() -> None:
    space = {"dims": [[8, 8], [16]], "rate": {"low": 1e-4, "high": 1e-1, "log": True}, "n": {"low": 1, "high": 9, "step": 2}}
    for sampler in ("tpe", "gp"):
        study = optimise(lambda dims, rate, n: len(dims) + rate, space, trials=13, sampler=sampler)
        assert all(trial.state == "complete" for trial in study.trials)
        assert all(trial.values["dims"] in ([8, 8], [16]) and trial.values["n"] % 2 == 1 for trial in study.trials)
    with pytest.raises(UserError, match="cmaes takes ranges"):
        make_study(space, sampler="cmaes")


def _work(state: Path, count: int) -> None:
    tuner = AutoTuner({"x": {"low": 0.0, "high": 1.0}}, method="random", state=state)
    for _ in range(count):
        config = tuner.suggest_next_config()
        tuner.update_with_result(config, config["x"])


def test_many_processes_share_one_journal(tmp_path: Path) -> None:
    state = tmp_path / "shared.jsonl"
    workers = [multiprocessing.get_context("spawn").Process(target=_work, args=(state, 25)) for _ in range(3)]
    for worker in workers:
        worker.start()
    _work(state, 25)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    study = make_study({"x": {"low": 0.0, "high": 1.0}}, method="random", state=state)
    assert [trial.number for trial in study.trials] == list(range(100))
    assert all(trial.objective == (trial.values["x"],) for trial in study.trials)
    assert len({trial.values["x"] for trial in study.trials}) == 100  # nobody was given what another had


def test_what_others_have_found_is_taken_in(tmp_path: Path) -> None:
    space, state = {"x": [1, 2, 3]}, tmp_path / "shared.jsonl"
    one, other = (AutoTuner(space, method="grid", state=state) for _ in range(2))
    assert [one.suggest_next_config(), other.suggest_next_config()] == [{"x": 1}, {"x": 2}]
    other.update_with_result({"x": 2}, 7.0)
    one.suggest_next_config()
    assert one.best_config == {"x": 2}
    with pytest.raises(UserError, match="every point"):
        other.suggest_next_config()
