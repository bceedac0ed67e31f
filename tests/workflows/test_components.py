"""A workflow says what it needs of its parts; what is missing is one error, at the start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from gymnasium import spaces

from etude.components.networks.mlp import MLPConfig
from etude.compute.random_streams import RandomStreams
from etude.errors import UserError
from etude.training import assembly
from etude.workflows.base import Components, Context, NetworkSpec
from etude.workflows.ppo import PPO
from tests.workflows.tiny_runs import ppo_config

BOX = spaces.Box(-1, 1, (3,))


def initialize(components: Components) -> None:
    context = Context(ppo_config(), torch.device("cpu"), BOX, spaces.Discrete(2), 4, RandomStreams(1), components)
    PPO().initialize(context)


def test_parts_are_looked_up_by_role() -> None:
    parts = Components(actor="a", critic="c")
    assert (parts.actor, parts.critic) == ("a", "c")
    with pytest.raises(UserError, match="there is no component 'planner'; there are: actor, critic"):
        _ = parts.planner
    with pytest.raises(UserError, match="there is no component 'actor'; there are: none"):
        _ = Components().actor


def test_a_missing_role_names_those_there_are() -> None:
    with pytest.raises(UserError, match="there is no component 'critic'; there are: actor"):
        initialize(Components(actor=torch.nn.Linear(3, 2)))


def test_a_missing_method_names_network_method_and_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Planning(PPO):
        @classmethod
        def roles(cls, config: Any, observation_space: Any, action_space: Any) -> dict[str, NetworkSpec]:
            roles = super().roles(config, observation_space, action_space)
            return {**roles, "critic": replace(roles["critic"], methods=("forward", "plan"))}

    monkeypatch.setattr(assembly, "_workflow_class", lambda config: Planning)
    with pytest.raises(UserError, match=r"network.critic.type=mlp: ppo needs its method 'plan', and it has none"):
        assembly.build_workflow(ppo_config(), BOX, spaces.Discrete(2))


def test_roles_go_into_the_state_and_come_back() -> None:
    config = ppo_config()
    one: Any = assembly.build_workflow(config, BOX, spaces.Discrete(2))
    other: Any = assembly.build_workflow(
        replace(config, experiment=replace(config.experiment, seed=9)), BOX, spaces.Discrete(2)
    )
    assert not torch.equal(one.actor.layers[0].weight, other.actor.layers[0].weight)
    other.load_state_dict(one.state_dict())
    for role in ("actor", "critic"):
        ours, theirs = getattr(one, role).state_dict(), getattr(other, role).state_dict()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_another_shape_is_refused() -> None:
    config = ppo_config()
    one = assembly.build_workflow(config, BOX, spaces.Discrete(2))
    wide = replace(config, network={**config.network, "critic": MLPConfig(hidden_dims=(99,))})
    with pytest.raises(RuntimeError, match="size mismatch"):
        assembly.build_workflow(wide, BOX, spaces.Discrete(2)).load_state_dict(one.state_dict())
