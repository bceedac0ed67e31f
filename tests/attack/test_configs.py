"""Random configs are refused in one clear message, or train, save, resume and evaluate."""

from __future__ import annotations

import pytest

from etude.orchestration.callbacks import Callback, Progress
from tools.attack.config_cases import Case, make_case
from tools.attack.configs import Result, judge, run_all, shrink


class Broken(Callback):
    """A callback that fails as soon as it is called."""

    def on_start(self, progress: Progress) -> None:
        raise ZeroDivisionError


SMALL = ("environment.num_envs=2", "algorithm.rollout_steps=8", "algorithm.batch_size=16", "experiment.compile=off")


def _failures(seed: int, first: int, count: int) -> dict[str, str]:
    cases = {number: make_case(seed, number) for number in range(first, first + count)}
    results = dict(run_all(cases, jobs=1))
    assert results.keys() == cases.keys()
    return {str(cases[number]): result.problem for number, result in results.items() if not result.is_good}


def test_the_same_seed_makes_the_same_cases() -> None:
    assert [make_case(3, number) for number in range(50)] == [make_case(3, number) for number in range(50)]
    assert len({str(make_case(3, number)) for number in range(50)}) == 50


def test_some_random_configs_are_refused_or_work() -> None:
    assert _failures(seed=0, first=0, count=30) == {}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("portion", range(10))
def test_many_random_configs_are_refused_or_work(portion: int) -> None:
    assert _failures(seed=0, first=500 * portion, count=500) == {}


def test_a_sound_case_lives_a_wrong_one_is_refused_and_a_hostile_file_too() -> None:
    cases = {
        0: Case("CartPole-v1:ppo", SMALL),
        1: Case("CartPole-v1:ppo", (*SMALL, "algorithm.gama=1"), is_nonsense=True),
        2: Case("CartPole-v1:ppo", SMALL, "a: " + "[" * 5000),
    }
    assert {number: result.outcome for number, result in run_all(cases, jobs=2)} == {0: "accepted", 1: "refused", 2: "refused"}


def test_what_is_wrong_is_seen_and_shown_with_the_fewest_words() -> None:
    nonsense = Case("CartPole-v1:ppo", SMALL, is_nonsense=True)
    assert judge(nonsense, Result("accepted")).outcome == "failed"
    assert judge(nonsense, Result("refused", "")).outcome == "failed"
    assert judge(nonsense, Result("refused", "Traceback ...")).outcome == "failed"
    # A callback of one's own that breaks is a failure that the words about the network have nothing to do with.
    broken = "training.callbacks=[{type:tests.attack.test_configs.Broken}]"
    case = Case("CartPole-v1:ppo", ("network.actor.hidden_dims=[8]", broken, "experiment.compile=off"))
    ((_, result),) = run_all({0: case}, jobs=1)
    assert (result.outcome, result.place.partition(" at ")[0]) == ("failed", "train: ZeroDivisionError")
    assert broken in (smallest := shrink(case, result)).words
    assert len(smallest.words) < len(case.words)
