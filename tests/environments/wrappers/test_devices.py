"""Transforms around an environment on an accelerator: nothing is read from it, and nothing goes there and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from etude.compute.trees import map_tree
from etude.environments.gymnasium import GymnasiumVector
from etude.environments.vector import Observation, Step, VectorEnvironment
from etude.environments.wrappers.build import Wrappers
from tests.device_double import DEVICE, DeviceTensor, pretend_device
from tests.environments.wrappers.tasks import actions, around, config_of, make_task, parts
from tests.environments.wrappers.test_transforms import CASES, IDS, SEEDS


class OnDevice(VectorEnvironment):
    """An environment whose tensors lie on a device, and in two places whether something ended or not."""

    device = DEVICE

    def __init__(self, inner: VectorEnvironment) -> None:
        self.inner, self.num_envs = inner, inner.num_envs
        self.single_observation_space, self.single_action_space = inner.single_observation_space, inner.single_action_space
        self.compute_reward = None

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, torch.Tensor]]:
        return map_tree(_there, self.inner.reset(seeds)[0]), {}

    def step(self, action: torch.Tensor) -> Step:
        step = self.inner.step(action.to("cpu"))
        seen, final = (map_tree(_there, part) for part in (step.observation, step.final_observation))
        return Step(seen, _there(step.reward), _there(step.terminated), _there(step.truncated), final, {})


def _there(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(DEVICE)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_device_is_never_read_and_gives_what_the_host_gives(
    case: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, wrapper = case
    host = around(task, wrapper)
    first = parts(host.reset(SEEDS)[0])
    acts = actions(host, 25)
    seen: list[Any] = [{name: value.clone() for name, value in first.items()}]
    for action in acts:
        step = host.step(action)
        seen.append([*(value.clone() for value in (*parts(step.observation).values(), step.reward))])
    with pretend_device(monkeypatch) as device:
        wrappers = Wrappers(config_of(wrapper).wrappers, training=True)
        bare = OnDevice(GymnasiumVector(lambda: make_task(task), 3))
        there = wrappers.wrap_vector(bare)
        observation, _ = there.reset(SEEDS)
        found: list[Any] = [{name: value.to("cpu") for name, value in parts(observation).items()}]
        moved: list[int] = []
        for action in acts:
            chosen = action.to(DEVICE)
            before = device.transfers
            step = there.step(chosen)
            moved.append(device.transfers - before)
            values = (*parts(step.observation).values(), step.reward)
            assert all(isinstance(value, DeviceTensor) for value in values)
            found.append([value.to("cpu") for value in values])
        before = device.transfers
        bare.step(_there(bare_action(task)))
        plain = device.transfers - before - 1
    extra = 2 if wrapper["id"] == "noise" else 0  # its numbers are drawn on the host
    assert set(moved) == {plain + extra}
    if wrapper["id"] == "noise":
        return  # copies that did not end draw numbers too
    assert all(torch.equal(one, found[0][name].as_subclass(torch.Tensor)) for name, one in seen[0].items())
    for one, other in zip(seen[1:], found[1:], strict=True):
        assert all(torch.equal(left, right.as_subclass(torch.Tensor)) for left, right in zip(one, other, strict=True))


def bare_action(task: str) -> torch.Tensor:
    """An action of the task itself, in every copy."""
    return actions(around(task), 1)[0]
