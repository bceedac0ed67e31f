"""Samplers by name: steps, paths and batches of a policy in an environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import etude
from etude.acting.policy import Policy
from etude.buffers.replay import ReplayBuffer
from etude.config.compose import compose
from etude.config.registry import register_sampler, samplers
from etude.config.schema import EnvironmentConfig
from etude.environments.make import make_environment
from etude.errors import ConfigError, EtudeError, UserError
from etude.training import assembly
from etude.workflows.sampler import SimpleSampler

NAMED = {"class_name": "SimpleSampler", "config": {"max_path_length": 12, "store_last_n_paths": 4}}


@pytest.fixture(scope="module")
def policy() -> Iterator[Policy]:
    run = assembly.build(assembly.resolve(compose("CartPole-v1:ppo").config))
    yield run.workflow.policy()
    run.close()


def test_paths_are_whole_and_as_long_as_asked_for(policy: Policy) -> None:
    sampler = etude.make_sampler(NAMED, "CartPole-v1", policy, seed=3)
    columns = sampler.sample(5)
    assert columns["observation"].shape == (5, 1, 4)
    path = sampler.sample_path()
    assert torch.equal(path["observations"][:5], columns["observation"][:, 0]), "begun before, and whole"
    assert path["length"] <= 12
    rest = sampler.rollouts(6)
    assert max(each["length"] for each in [path, *rest]) == 12
    assert [each["length"] for each in sampler.last_paths()] == [each["length"] for each in rest[-4:]]
    assert len(sampler.last_paths(2)) == 2
    sampler.close()


def test_the_same_seed_samples_the_same_steps(policy: Policy) -> None:
    one, two, other = (etude.make_sampler("SimpleSampler", "CartPole-v1", policy, num_envs=3, seed=s) for s in (1, 1, 2))
    first, second, third = (each.sample(20) for each in (one, two, other))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["observation"], third["observation"])
    best = etude.make_sampler("SimpleSampler", "CartPole-v1", policy, num_envs=3, seed=1, mode="greedy").sample(20)
    assert not torch.equal(best["action"], first["action"])


def test_a_pool_gets_every_step_and_gives_batches(policy: Policy) -> None:
    pool = ReplayBuffer(1000, 2)
    spec = {"class_name": "SimpleSampler", "config": {"min_pool_size": 30, "batch_size": 7}}
    sampler = etude.make_sampler(spec, "CartPole-v1", policy, pool=pool, num_envs=2)
    sampler.sample(10)
    assert not sampler.batch_ready
    with pytest.raises(UserError, match="the pool holds 20 transitions"):
        sampler.random_batch()
    sampler.sample(10)
    assert pool.size == 40
    assert sampler.batch_ready
    assert len(sampler.random_batch()["reward"]) == 7
    assert len(sampler.random_batch(3)["reward"]) == 3
    with pytest.raises(UserError, match="has no pool"):
        etude.make_sampler("SimpleSampler", "CartPole-v1", policy).random_batch()


def test_an_environment_may_be_given_whole(policy: Policy) -> None:
    made = make_environment(EnvironmentConfig(id="CartPole-v1", max_episode_steps=9), num_envs=2)
    assert etude.make_sampler(NAMED, made, policy).sample_path()["length"] <= 9
    by_settings = etude.make_sampler(NAMED, EnvironmentConfig(id="CartPole-v1", max_episode_steps=9), policy)
    assert by_settings.environment.base.max_episode_steps == 12
    long = make_environment(EnvironmentConfig(id="CartPole-v1"), num_envs=1)
    with pytest.raises(UserError, match="max_path_length=12: this environment cuts episodes after 500 steps"):
        etude.make_sampler(NAMED, long, policy)


@pytest.mark.parametrize(
    ("description", "says"),
    [
        ("SimpleSampelr", "unknown sampler 'SimpleSampelr'; did you mean 'SimpleSampler'"),
        ({"class_name": "SimpleSampler", "config": {"max_path_lenght": 3}}, "max_path_lenght: unknown key; did you mean"),
        ({"class_name": "SimpleSampler", "config": {"max_path_length": 0}}, "max_path_length=0: must be at least 1"),
        ({"config": {}}, "a sampler is {class_name: NAME, config: {...}}"),
    ],
)
def test_what_is_no_sampler_is_one_line(description: Any, says: str, policy: Policy) -> None:
    with pytest.raises(EtudeError) as told:
        etude.make_sampler(description, "CartPole-v1", policy)
    assert says in str(told.value)
    assert isinstance(told.value, UserError | ConfigError)


def test_no_steps_are_refused(policy: Policy) -> None:
    with pytest.raises(UserError, match=r"sample\(0\): must be at least 1"):
        etude.make_sampler("SimpleSampler", "CartPole-v1", policy).sample(0)


def test_a_sampler_of_ones_own_is_found_by_its_name(policy: Policy) -> None:
    @register_sampler("CountingSampler")
    class CountingSampler(SimpleSampler):
        """Counts."""

    try:
        assert isinstance(etude.make_sampler("CountingSampler", "CartPole-v1", policy), CountingSampler)
    finally:
        del samplers._registered["CountingSampler"]
