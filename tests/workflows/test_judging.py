"""Candidates are dealt out to copies in turns, and earn what their own episodes earn, whatever the numbers of both."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from etude.workflows.judging import Judging

CPU = torch.device("cpu")


def judge(population: int, episodes: int, copies: int) -> tuple[Judging, list[list[int]]]:
    """Judge candidate c, whose episodes last c + 1 steps at a reward of 10 · c, by an end or a limit; returns seeds too."""
    judging = Judging(population, 1, episodes, copies, CPU)
    judging.begin(torch.arange(population).view(-1, 1).double())
    seeds = []
    while not judging.is_complete:
        assert judging.begins_turn(0)
        seeds.append(judging.begin_turn(7, 0, common=True))
        number, age = judging.dealt()[:, 0], 0
        while True:
            age += 1
            judging.add(step(10 * number.float(), age % (number + 1) == 0, even=number % 2 == 0))
            if judging.is_complete or judging.begins_turn(0):
                break
    return judging, seeds


def step(reward: Tensor, ended: Tensor, even: Tensor) -> dict[str, Tensor]:
    return {"reward": reward, "terminated": ended & even, "truncated": ended & ~even}


@pytest.mark.parametrize("copies", [1, 2, 3, 5, 7, 10, 16])
@pytest.mark.parametrize("episodes", [1, 2])
def test_each_candidate_earns_what_its_own_episodes_earn(episodes: int, copies: int) -> None:
    population = 5
    judging, seeds = judge(population, episodes, copies)
    assert judging.fitness().tolist() == [10.0 * c * (c + 1) for c in range(population)], (
        "neither more nor less than an episode"
    )
    assert len(seeds) == judging.turns == -(-population * episodes // copies)
    used = [seed for turn in seeds for seed in turn][: population * episodes]
    assert [len(set(used[e * population : (e + 1) * population])) for e in range(episodes)] == [1] * episodes, "common chances"
    assert len(set(used)) == episodes, "and others in each episode"


def test_chances_differ_from_generation_to_generation_and_may_from_candidate_to_candidate() -> None:
    judging = Judging(4, 1, 1, 4, CPU)
    judging.begin(torch.zeros(4, 1))
    first, own = judging.begin_turn(7, 0, common=True), judging.begin_turn(7, 0, common=False)
    assert len(set(first)) == 1
    assert len(set(own)) == 4
    judging.begin(torch.zeros(4, 1))
    assert not {*judging.begin_turn(7, 0, common=True), *judging.begin_turn(7, 0, common=False)} & {*first, *own}
    assert judging.begin_turn(8, 0, common=True) != judging.begin_turn(7, 0, common=True), "and by the run's seed"


def test_what_a_copy_does_after_its_episode_counts_for_nothing() -> None:
    judging = Judging(2, 1, 1, 3, CPU)
    judging.begin(torch.zeros(2, 1))
    judging.begin_turn(7, 0, common=True)
    no = torch.zeros(3, dtype=torch.bool)
    judging.add({"reward": torch.ones(3), "terminated": torch.tensor([True, False, False]), "truncated": no})
    assert judging.counted().tolist() == [True, True, False], "the third copy has nobody to judge"
    judging.add({"reward": torch.tensor([torch.nan, 1, 1]), "terminated": no, "truncated": no})
    assert judging.counted().tolist() == [False, True, False]
    judging.add({"reward": torch.ones(3), "terminated": no, "truncated": ~no})
    assert judging.is_complete
    assert judging.fitness().tolist() == [1, 3]


def test_a_turn_whose_episodes_were_lost_begins_again() -> None:
    judging = Judging(2, 1, 1, 2, CPU)
    judging.begin(torch.zeros(2, 1))
    seeds = judging.begin_turn(7, 0, common=True)
    no = torch.zeros(2, dtype=torch.bool)
    judging.add({"reward": torch.ones(2), "terminated": torch.tensor([True, False]), "truncated": no})
    assert not judging.begins_turn(0)
    assert judging.begins_turn(1), "as a resume that can't bring an environment back has it"
    assert judging.begin_turn(7, 1, common=True) == seeds
    judging.add({"reward": torch.ones(2), "terminated": ~no, "truncated": no})
    assert judging.fitness().tolist() == [1, 1]
