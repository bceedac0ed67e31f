"""Critics of continuous actions read the whole observation and the action, whatever the observation's parts are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.critics import space_with, with_action, with_part
from etude.config.compose import compose
from etude.training import assembly

ACTIONS = spaces.Box(-1, 1, (2,), np.float32)
ALGORITHMS = ("sac", "td3", "tqc", "sql")


def box(size: int) -> spaces.Box:
    return spaces.Box(-1, 1, (size,), np.float32)


def workflow(algorithm: str, observation_space: spaces.Space[Any]) -> Any:
    config = assembly.resolve(compose(f"Pendulum-v1:{algorithm}", words=("experiment.compile=off",)).config)
    return assembly.build_workflow(config, observation_space, ACTIONS)


def observed(space: spaces.Dict) -> dict[str, torch.Tensor]:
    return {name: torch.rand(3, *part.shape, requires_grad=True) for name, part in space.spaces.items()}  # type: ignore[misc] # boxes


def is_read(network: Any, inputs: dict[str, torch.Tensor]) -> dict[str, bool]:
    network(inputs).sum().backward()
    return {name: value.grad is not None and bool((value.grad != 0).any()) for name, value in inputs.items()}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("names", [("seen", "action"), ("action", "action_"), ("noise", "seen")])
def test_a_part_called_as_what_is_added_is_not_lost(algorithm: str, names: tuple[str, str]) -> None:
    # Defect 28: the observation's own `action`, or `noise` in SQL, was overwritten by what the network is given beside it.
    space = spaces.Dict({name: box(3 + i) for i, name in enumerate(names)})
    built, seen = workflow(algorithm, space), observed(space)
    rows = with_action(seen, torch.rand(3, 2, requires_grad=True))
    assert len(rows) == 3
    assert all(is_read(built.critic, rows).values())
    if algorithm == "sql":
        noise = with_part(observed(space), "noise", torch.rand(3, 2, requires_grad=True))
        assert len(noise) == 3
        assert all(is_read(built.sampler, noise).values())


def test_a_tuple_is_joined_as_it_is_observed() -> None:
    space = spaces.Tuple([box(2), box(3)])
    assert set(space_with(space, "action", ACTIONS).spaces) == {"0", "1", "action"}
    seen = {"0": torch.rand(3, 2, requires_grad=True), "1": torch.rand(3, 3, requires_grad=True)}
    rows = with_action(seen, torch.rand(3, 2, requires_grad=True))
    assert all(is_read(workflow("sac", space).critic, rows).values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_critic_with_a_group_of_its_own_reads_the_action_too(algorithm: str) -> None:
    # Defect 28, the same loss elsewhere: a robot's critic saw its group of the observation and no action.
    space = spaces.Dict({"actor": box(3), "critic": box(5)})
    rows = with_action(observed(space), torch.rand(3, 2, requires_grad=True))
    assert is_read(workflow(algorithm, space).critic, rows) == {"actor": False, "critic": True, "action": True}
