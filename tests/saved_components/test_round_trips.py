"""A component comes back from its file as the same class, with the same weights and the same outputs, bit for bit."""

from __future__ import annotations

import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import etude
from etude.components import value_functions
from etude.components.critics import BatchedMLP, Ensemble, target_of
from etude.components.networks.actor_critic import make_actor_critic
from etude.components.networks.build import build_network
from etude.components.networks.groups import reads_group
from etude.components.networks.keyed_encoder import KeyedEncoder
from etude.components.normalizers import ObservationNormalizer, RewardNormalizer
from etude.config.compose import compose
from etude.config.constraints import Component
from etude.config.registry import algorithms
from etude.config.validate import Part, Validator
from etude.environments.spaces import leaf_spaces
from etude.training import assembly

BOX = spaces.Box(-1, 1, (5,), np.float32)
UNEVEN = spaces.Box(np.array([-4.8, -np.inf, 0], np.float32), np.array([4.8, np.inf, 0.1], np.float32))
PICTURE = spaces.Box(0, 255, (36, 36, 3), np.uint8)
DICT = spaces.Dict(
    picture=PICTURE,
    place=spaces.Discrete(4, start=1),
    state=UNEVEN,
    switches=spaces.MultiBinary(3),
    dials=spaces.MultiDiscrete([2, 3], start=[1, 0]),
)
DICT_64 = spaces.Dict({**DICT.spaces, "picture": spaces.Box(0, 255, (64, 64, 3), np.uint8)})
MASKED = spaces.Dict(state=UNEVEN, action_mask=spaces.Box(0, 1, (4,), np.int8))
FOUR, PUSH = spaces.Discrete(4), spaces.Box(-2, 2, (3,), np.float32)

POLICIES: dict[str, tuple[str, gymnasium.Space[Any], gymnasium.Space[Any], tuple[str, ...]]] = {
    "a2c": ("a2c", UNEVEN, FOUR, ()),
    "cma_es": ("cma_es", UNEVEN, FOUR, ()),
    "cma_es of many parts": ("cma_es", DICT, PUSH, ("algorithm.covariance=diagonal",)),
    "dqn": ("dqn", UNEVEN, FOUR, ()),
    "dqn distributional": ("dqn", UNEVEN, FOUR, ("algorithm.dueling=true", "algorithm.distribution=quantile")),
    "dreamer": ("dreamer", UNEVEN, FOUR, ()),
    "dreamer of many parts": ("dreamer", DICT, PUSH, ("algorithm.latents=off",)),
    "dreamer_v1": ("dreamer_v1", UNEVEN, PUSH, ("algorithm.size=tiny",)),
    "dreamer_v2": ("dreamer_v2", UNEVEN, FOUR, ("algorithm.size=tiny",)),
    "planet": ("planet", UNEVEN, PUSH, ("algorithm.size=tiny", "algorithm.samples=8", "algorithm.elites=4")),
    "ppo": ("ppo", UNEVEN, PUSH, ()),
    "ppo_student": ("ppo_student", UNEVEN, FOUR, ()),
    "q_learning": ("q_learning", spaces.Discrete(6, start=2), FOUR, ()),
    "random": ("random", UNEVEN, spaces.MultiDiscrete([2, 3]), ()),
    "bc": ("bc", DICT, PUSH, ("algorithm.head=mixture",)),
    "bc with memory": ("bc", UNEVEN, FOUR, ("network.actor.type=gru",)),
    "diffusion_policy": ("diffusion_policy", UNEVEN, PUSH, ("network.denoiser.widths=[8]",)),
    "iql": ("iql", UNEVEN, PUSH, ()),
    "td3_bc": ("td3_bc", UNEVEN, PUSH, ()),
    "reinforce": ("reinforce", UNEVEN, FOUR, ()),
    "sac": ("sac", UNEVEN, PUSH, ()),
    "sac discrete": ("sac", UNEVEN, FOUR, ()),
    "flash_sac": ("flash_sac", UNEVEN, PUSH, ()),
    "sql": ("sql", UNEVEN, PUSH, ()),
    "td3": ("td3", UNEVEN, PUSH, ()),
    "tdmpc": ("tdmpc", UNEVEN, PUSH, ("algorithm.size=small",)),
    "tdmpc of many parts": ("tdmpc", DICT, PUSH, ("algorithm.size=small", "algorithm.plan=false")),
    "tqc": ("tqc", UNEVEN, PUSH, ()),
    "world_models": ("world_models", UNEVEN, FOUR, ()),
    "world_models of many parts": ("world_models", DICT_64, PUSH, ("algorithm.memory=off", "algorithm.dream=false")),
    "of many parts": ("ppo", DICT, PUSH, ("network.actor.type=cnn", "network.critic.type=cnn")),
    "off-policy of many parts": ("sac", DICT, PUSH, ()),
    "masked": ("ppo", MASKED, FOUR, ()),
    "masked values": ("dqn", MASKED, FOUR, ()),
    "gru": ("ppo", UNEVEN, FOUR, ("network.actor.type=gru", "network.critic.type=gru")),
    "lstm": ("ppo", DICT, PUSH, ("network.actor.type=lstm", "network.critic.type=lstm")),
    "transformer": ("ppo", UNEVEN, FOUR, ("network.actor.type=transformer", "network.critic.type=transformer")),
    "of groups": ("ppo", spaces.Dict(actor=UNEVEN, critic=BOX), PUSH, ()),
    "rolling": ("ppo", DICT, spaces.MultiBinary(3), ("environment.normalize_observations=rolling",)),
    "static": ("sac", UNEVEN, PUSH, ("environment.normalize_observations=static",)),
    "critic on the actor's features": ("ppo", UNEVEN, FOUR, ("network.critic.type=head",)),
}


def observations(space: gymnasium.Space[Any], count: int = 6) -> Any:
    def batch(name: str, part: gymnasium.Space[Any]) -> Tensor:
        part.seed(3)
        if name == "action_mask":
            return torch.tensor([[1, 0, 1, 1]] * count, dtype=torch.int8)
        return torch.stack([torch.as_tensor(part.sample()) for _ in range(count)])

    made = {name: batch(name, part) for name, part in leaf_spaces(space).items()}
    return made.get("", made)


def unlike_new(state: Any) -> Any:
    """What training does to weights: none is as it was made."""
    generator = torch.Generator().manual_seed(11)

    def moved(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: moved(item) for name, item in value.items()}
        if isinstance(value, Tensor) and value.is_floating_point():
            return value + torch.rand(value.shape, generator=generator, dtype=value.dtype)
        return value

    return moved(dict(state))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def taught(component: nn.Module) -> nn.Module:
    component.load_state_dict(unlike_new(component.state_dict()))
    return component


def there_and_back(component: Any, path: Path, kind: str, **options: Any) -> Any:
    loaded = etude.load_component(etude.save_component(component, path), kind, **options)
    assert type(loaded) is type(component)
    assert same(dict(loaded.state_dict()), dict(component.state_dict()))
    return loaded


def walk(policy: Any, space: gymnasium.Space[Any], mode: Any) -> list[Any]:
    """Three steps of acting, an episode beginning anew in between."""
    generator, state, seen = torch.Generator().manual_seed(5), policy.initial_state(6), []
    for begins in (1, 0, 1):
        first = torch.tensor([True, *[bool(begins)] * 5])
        result = policy.act(observations(space), state, first, mode=mode, generator=generator)
        state = result.state
        seen.append([result.action, result.extras, state])
    return seen


def policy_of(algorithm: str, observation: Any, action: Any, *words: str) -> Any:
    config = compose(f"CartPole-v1:{algorithm}", words=["experiment.device=cpu", "experiment.seed=7", *words]).config
    return assembly.build_workflow(config, observation, action).policy()


def test_every_algorithm_is_among_the_policies() -> None:
    assert {algorithm for algorithm, *_ in POLICIES.values()} == {*algorithms.builtin_names()} - {"ppo_amp"}  # which is PPO's


@pytest.mark.parametrize("case", POLICIES)
def test_a_policy_acts_as_it_did(case: str, tmp_path: Path) -> None:
    algorithm, observation, action, words = POLICIES[case]
    policy = policy_of(algorithm, observation, action, *words)
    policy.load_state_dict(unlike_new(policy.state_dict()))
    loaded = there_and_back(policy, tmp_path / "policy.safetensors", "policy")
    assert loaded.stochastic == policy.stochastic
    for mode in ("greedy", "sample"):
        assert same(walk(loaded, observation, mode), walk(policy, observation, mode))


def test_a_trained_policy_needs_nothing_of_its_run(tmp_path: Path) -> None:
    words = ("training.total_steps=600", "evaluation.every_steps=0", "environment.normalize_observations=rolling")
    etude.train("CartPole-v1:ppo", *words, runs=tmp_path / "runs")
    policy, environment = etude.load_policy("@last", runs=tmp_path / "runs")
    etude.save_component(policy, tmp_path / "policy.safetensors")
    shutil.rmtree(tmp_path / "runs")
    loaded = etude.load_component(tmp_path / "policy.safetensors", "policy")
    space = environment.single_observation_space
    assert same(walk(loaded, space, "sample"), walk(policy, space, "sample"))
    assert float(loaded.state_dict()["normalizer.parts.0.count"]) == 512  # the rollouts that training learnt from


def test_a_saved_policy_can_be_saved_again(tmp_path: Path) -> None:
    first = etude.save_component(policy_of("sac", UNEVEN, PUSH), tmp_path / "first.safetensors")
    second = etude.save_component(etude.load_component(first), tmp_path / "second.safetensors")
    assert first.read_bytes() == second.read_bytes()


NETWORKS = {
    "mlp": (BOX, {"type": "mlp", "hidden_dims": [8, 7], "activation": "elu"}),
    "mlp of many parts": (DICT, {"type": "mlp", "encoders": {"state": {"type": "mlp", "hidden_dims": [5]}}}),
    "cnn": (DICT, {"type": "cnn", "hidden_dims": [9]}),
    "normed_mlp": (DICT, {"type": "normed_mlp", "hidden_dims": [9], "simplex": 3}),
    "identity": (spaces.Box(-1, 1, (3,)), {"type": "identity"}),
    "gru": (BOX, {"type": "gru"}),
    "lstm": (DICT, {"type": "lstm"}),
    "transformer": (BOX, {"type": "transformer", "window": 4, "width": 8, "heads": 2}),
}


def network(space: Any, options: Any, seed: int = 1) -> Any:
    return build_network(Validator().choose(Component("network"), options, "network"), space, 3, seed=seed)


@pytest.mark.parametrize("case", NETWORKS)
def test_a_network_answers_as_it_did(case: str, tmp_path: Path) -> None:
    space, options = NETWORKS[case]
    made = taught(network(space, options))
    loaded = there_and_back(made, tmp_path / "network.safetensors", "network")
    seen, first = observations(space), torch.ones(6, dtype=torch.bool)
    inputs = [seen, made.initial_state(6), first] if hasattr(made, "initial_state") else [seen]
    assert same(loaded(*inputs), made(*inputs))


@pytest.mark.parametrize("case", ["mlp", "mlp of many parts"])
def test_an_ensemble_answers_as_it_did(case: str, tmp_path: Path) -> None:
    space, options = NETWORKS[case]
    made = taught(Ensemble.of([network(space, options, seed) for seed in (1, 2, 3)]))
    assert isinstance(made, BatchedMLP if case == "mlp" else Ensemble)
    loaded = there_and_back(made, tmp_path / "critics.safetensors", "network")
    assert same(loaded(observations(space)), made(observations(space)))


def test_a_network_that_sees_a_group_is_saved_with_it(tmp_path: Path) -> None:
    made = taught(reads_group(network(UNEVEN, {"type": "mlp"}), "actor"))
    seen = observations(spaces.Dict(actor=UNEVEN, critic=BOX))
    assert same(there_and_back(made, tmp_path / "actor.safetensors", "network")(seen), made(seen))


def test_a_head_is_saved_with_the_network_it_stands_on(tmp_path: Path) -> None:
    trunk = taught(network(BOX, {"type": "mlp", "hidden_dims": [8]}))
    head: Any = taught(network(trunk, {"type": "head", "hidden_dims": [4]}))
    loaded = there_and_back(head, tmp_path / "head.safetensors", "network")
    assert same(dict(loaded.trunk.state_dict()), dict(trunk.state_dict()))
    assert same(loaded(observations(BOX)), head(observations(BOX)))


def test_networks_within_a_workflow_can_be_saved(tmp_path: Path) -> None:
    config = compose("CartPole-v1:sac", words=["experiment.device=cpu"]).config
    workflow: Any = assembly.build_workflow(config, UNEVEN, PUSH)
    seen = {"observation": observations(UNEVEN), "action": observations(PUSH)}
    for part in (workflow.critic, target_of(workflow.critic)):
        assert same(there_and_back(part, tmp_path / "critic.safetensors", "network")(seen), part(seen))
    there_and_back(workflow.actor, tmp_path / "actor.safetensors", "network")
    there_and_back(workflow.normalizer, tmp_path / "normalizer.safetensors", "observation_normalizer")


def test_weights_in_another_precision_stay_in_it(tmp_path: Path) -> None:
    made = network(BOX, {"type": "mlp"}).double()
    made.load_state_dict(unlike_new(made.state_dict()))
    there_and_back(made, tmp_path / "network.safetensors", "network")


MODULE = '''
import torch
from torch import nn


class Tied(nn.Module):
    """A network of one's own: options of any plain type, two layers with one weight, numbers that no state has."""

    def __init__(self, observation_space, output_size, *, sizes=(4,), generator=None):
        super().__init__()
        assert isinstance(sizes, tuple), "a tuple came back as something else"
        width = observation_space.shape[0]
        self.noise = torch.rand(width, generator=generator)
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)
        self.two.weight = self.one.weight
        self.last = nn.Linear(width, output_size)

    def forward(self, observation):
        return self.last(self.two(self.one(observation + self.noise)))
'''


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tied_networks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("own_module")
def test_a_network_of_ones_own_comes_back_by_its_import_path(tmp_path: Path) -> None:
    made: Any = build_network(Part("tied_networks:Tied", {"sizes": (3, 2)}), BOX, 3, seed=4)
    made.load_state_dict(made.state_dict())
    loaded = there_and_back(made, tmp_path / "network.safetensors", "network", trust=True)
    assert same(loaded(observations(BOX)), made(observations(BOX)))
    assert loaded.one.weight is loaded.two.weight


@pytest.mark.parametrize(
    "name",
    ["feedforward_V_function", "feedforward_Q_function", "double_feedforward_Q_function", "ensemble_feedforward_Q_function"],
)
def test_a_value_function_answers_as_it_did(name: str, tmp_path: Path) -> None:
    action = None if "_V_" in name else PUSH
    made: Any = taught(value_functions.get({"class_name": name, "config": {"hidden_dims": [9]}}, DICT, action, seed=3))
    loaded = there_and_back(made, tmp_path / "values.safetensors", "value_function")
    inputs = [observations(DICT)] if action is None else [observations(DICT), observations(PUSH)]
    assert same(loaded(*inputs), made(*inputs))
    assert same(loaded.lowest(*inputs), made.lowest(*inputs))


@pytest.mark.parametrize("mode", ["off", "rolling", "static"])
def test_an_observation_normalizer_scales_as_it_did(mode: Any, tmp_path: Path) -> None:
    made = ObservationNormalizer(DICT, mode)
    made.update(observations(DICT))
    loaded = there_and_back(made, tmp_path / "normalizer.safetensors", "observation_normalizer")
    assert same(loaded(observations(DICT)), made(observations(DICT)))
    assert loaded.mode == mode


def test_a_reward_normalizer_goes_on_as_it_would_have(tmp_path: Path) -> None:
    made, rewards, ended = RewardNormalizer(3, 0.97), torch.rand(5, 3), torch.rand(5, 3) > 0.7
    made.update(rewards, ended)
    loaded = there_and_back(made, tmp_path / "normalizer.safetensors", "reward_normalizer")
    for each in (made, loaded):
        each.update(rewards * 3, ended)
    assert same(loaded(rewards), made(rewards))
    assert same(dict(loaded.state_dict()), dict(made.state_dict()))


def test_encoders_are_saved_whole_and_one_by_one(tmp_path: Path) -> None:
    encoder = taught(network(DICT, NETWORKS["cnn"][1])).encoder
    assert isinstance(encoder, KeyedEncoder)
    seen: Any = observations(DICT)
    assert same(there_and_back(encoder, tmp_path / "all.safetensors", "encoder")(seen), encoder(seen))
    for key, part in zip([*DICT.spaces], encoder.parts, strict=True):
        assert same(there_and_back(part, tmp_path / "one.safetensors", "encoder")(seen[key]), part(seen[key]))
    flat: Any = network(BOX, {"type": "mlp"}).encoder
    assert same(there_and_back(flat, tmp_path / "flat.safetensors", "encoder")(observations(BOX)), observations(BOX))


def test_an_actor_critic_answers_as_it_did(tmp_path: Path) -> None:
    made: Any = taught(make_actor_critic(UNEVEN, PUSH, "mlp", hidden_dims=[6], init_noise_std=0.4))
    loaded = there_and_back(made, tmp_path / "both.safetensors", "actor_critic")
    (one, value), (other, other_value) = made(observations(UNEVEN)), loaded(observations(UNEVEN))
    assert same(one.mode(), other.mode())
    assert same(value, other_value)


def test_copies_remember_how_they_were_made(tmp_path: Path) -> None:
    there_and_back(deepcopy(network(BOX, {"type": "mlp"})), tmp_path / "copy.safetensors", "network")
