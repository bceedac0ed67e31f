"""What every transform promises: the same results around a vector, inside copies, in workers and after a resume."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from etude.config.registry import wrappers as registry
from etude.environments.spaces import action_spec, observation_specs
from etude.environments.vector import VectorEnvironment
from etude.environments.workers.vector import WorkerVector
from etude.environments.wrappers.build import Wrappers
from etude.environments.wrappers.transform import Transform
from tests.environments.wrappers.tasks import actions, around, assert_same, config_of, copied, inside, live, make_task

Case = tuple[str, dict[str, Any]]
CASES: list[Case] = [
    ("pictures", {"id": "grayscale"}),
    ("pictures", {"id": "grayscale", "keep_channel": True}),
    ("chw pictures", {"id": "grayscale", "keep_channel": True}),
    ("mixed", {"id": "grayscale"}),
    ("pictures", {"id": "resize", "size": [8, 12]}),
    ("chw pictures", {"id": "resize", "size": True}),
    ("float pictures", {"id": "resize", "size": 4}),
    ("pictures", {"id": "crop", "top": 3, "right": 2}),
    ("chw pictures", {"id": "crop", "bottom": 3, "left": 2}),
    ("pictures", {"id": "channels_first"}),
    ("pictures", {"id": "stack", "count": 3}),
    ("chw pictures", {"id": "stack", "count": 3}),
    ("float pictures", {"id": "stack", "count": 2, "start": "zeros"}),
    ("sensors", {"id": "stack"}),
    ("mixed", {"id": "stack", "key": "observation"}),
    ("mixed", {"id": "history", "key": "view", "count": 2}),
    ("sensors", {"id": "history", "start": "zeros"}),
    ("sensors", {"id": "reward_clip"}),
    ("sensors", {"id": "reward_clip", "low": -0.5}),
    ("mixed", {"id": "reward_scale", "factor": 2.5, "offset": -1}),
    ("sensors", {"id": "action_rescale", "low": -3, "high": 1}),
    ("sensors", {"id": "action_clip"}),
    ("sensors", {"id": "action_remap", "actions": [[0, 0], [-2, 5], [1.5, 3]]}),
    ("rooms", {"id": "action_remap", "actions": [2, 0]}),
    ("buttons", {"id": "action_remap", "actions": [[0, 2], [1, 0]]}),
    ("pictures", {"id": "action_mask", "allowed": [0, 2]}),
    ("mixed", {"id": "action_mask", "allowed": [1]}),
    ("rooms", {"id": "discrete_encoder"}),
    ("rooms", {"id": "discrete_encoder", "encoding": "binary"}),
    ("rooms", {"id": "DiscreteEncoder", "encoding": "array"}),
    ("buttons", {"id": "discrete_encoder", "encoding": "binary"}),
    ("sensors", {"id": "noise", "std": 0.3}),
    ("mixed", {"id": "noise", "std": 0.3, "distribution": "uniform", "key": "achieved_goal"}),
    ("sensors", {"id": "observation_lag", "steps": 2}),
    ("mixed", {"id": "observation_lag"}),
    ("sensors", {"id": "action_lag", "steps": 2}),
    ("rooms", {"id": "action_lag"}),
    ("sensors", {"id": "time_feature", "limit": 5}),
    ("mixed", {"id": "time_feature", "limit": 50}),
    ("rooms", {"id": "action_reward", "rewards": [0.5, 0, -2]}),
    ("cartpole", {"id": "cartpole_shaping", "scale": 2}),
    ("mountaincar", {"id": "mountaincar_shaping"}),
    ("pong", {"id": "pong_shaping"}),
    ("pong", {"id": "pong_features"}),
    ("still pong", {"id": "pong_features"}),
    ("breakout", {"id": "breakout_features"}),
    ("still breakout", {"id": "breakout_features"}),
    ("sensors", {"id": "state_count_bonus", "bins": 4}),
    ("rooms", {"id": "state_count_bonus"}),
]
IDS = [f"{task}-{'-'.join(str(value) for value in wrapper.values())}" for task, wrapper in CASES]
SEEDS = [5, 6, 7]
ONLY_NAMES = {"normalize_observations", "normalize_rewards"}
SHARED = {"state_count_bonus"}  # copies that it stands around count together: that is what it is for


def started(environment: VectorEnvironment) -> tuple[VectorEnvironment, dict[str, torch.Tensor]]:
    return environment, copied(environment.reset(SEEDS)[0])


def test_every_transform_is_tried() -> None:
    transforms = {name for name in registry.builtin_names() if issubclass(registry.resolve(name), Transform)}
    assert transforms - ONLY_NAMES <= {wrapper["id"] for _, wrapper in CASES}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_around_a_vector_and_inside_copies_are_the_same(case: Case) -> None:
    if case[1]["id"] in SHARED:
        pytest.skip("its copies share what they know")
    (one, first), (other, again) = started(around(*case)), started(inside(*case))
    assert_same(first, again)
    acts = actions(one, 40)
    seen = live(one, acts)
    assert_same(seen, live(other, acts))
    ends = torch.stack([terminated | truncated for *_, terminated, truncated in seen])
    assert ends.any(0).all()
    assert (~ends).any()


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_devices_that_are_not_asked_who_ended_give_the_same(case: Case) -> None:
    if case[1]["id"] == "noise":
        pytest.skip("copies that did not end draw numbers too")
    (one, first), (other, again) = started(around(*case)), started(around(*case))
    other._on_host = False  # type: ignore[attr-defined] # a stand-in for an accelerator
    assert_same(first, again)
    acts = actions(one, 40)
    assert_same(live(one, acts), live(other, acts))
    assert_same(one.state_dict()["transforms"], other.state_dict()["transforms"])


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_observations_and_actions_are_as_declared(case: Case) -> None:
    environment, first = started(around(*case))
    specs = observation_specs(environment.single_observation_space)
    space, acts = environment.single_observation_space, actions(environment, 20)
    assert acts[0].dtype == action_spec(environment.single_action_space).dtype
    for observation in (first, *(item for step in live(environment, acts) for item in step[:2])):
        assert observation.keys() == specs.keys()
        for key, value in observation.items():
            assert value.shape == (3, *specs[key].shape)
            assert value.dtype == specs[key].dtype
        for row in range(3):
            one = {key: value[row].numpy() for key, value in observation.items()}
            part = one if "" not in one else one[""].astype(space.dtype)
            assert space.contains(part), (space, part)


@pytest.mark.parametrize("build", [around, inside])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_saved_state_continues_exactly(case: Case, build: Any) -> None:
    environment, _ = started(build(*case))
    acts = actions(environment, 40)
    live(environment, acts[:13])
    saved = environment.state_dict()
    ahead = live(environment, acts[13:])
    other, _ = started(build(*case))
    live(other, acts[20:27])
    other.load_state_dict(saved)
    assert (environment.snapshot, other.snapshot) == ("exact", "exact")
    assert_same(ahead, live(other, acts[13:]))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_step_stays_valid_while_the_next_one_is_made(case: Case) -> None:
    environment, _ = started(around(*case))
    before, copy = None, None
    for action in actions(environment, 20):
        step = environment.step(action)
        if before is not None:
            assert_same(copied(before.observation), copy)
        before, copy = step, copied(step.observation)


@pytest.mark.usefixtures("nursery_stays")
def test_workers_give_what_this_process_gives() -> None:
    stack = [{"id": "grayscale"}, {"id": "resize", "size": 8}, {"id": "stack", "count": 3}, {"id": "reward_clip"}]
    here, first = started(around("pictures", *stack))
    for chosen in (stack, [*stack, {"id": "tests.environments.wrappers.tasks.Passing"}]):
        wrappers = Wrappers(config_of(*chosen).wrappers, training=True)
        vector = WorkerVector(lambda w=wrappers: w.wrap_copy(make_task("pictures")), 3, workers=2, timeout_s=60)
        there = wrappers.wrap_vector(vector)
        try:
            here.reset(SEEDS)
            assert_same(first, copied(there.reset(SEEDS)[0]))
            acts = actions(here, 40)
            assert_same(live(here, acts[:20]), live(there, acts[:20]))
            state = there.state_dict()
            there.reset(SEEDS)
            there.load_state_dict(state)
            assert_same(live(here, acts[20:]), live(there, acts[20:]))
        finally:
            there.close()


@pytest.mark.parametrize("name", registry.builtin_names())
def test_what_evaluation_leaves_out_changes_no_space(name: str) -> None:
    for task, wrapper in CASES:
        if wrapper["id"] == name and "training_only" in getattr(registry.resolve(name).Config, "__dataclass_fields__", ()):
            plain, changed = around(task), around(task, {**wrapper, "training_only": True})
            assert changed.single_observation_space == plain.single_observation_space
            assert changed.single_action_space == plain.single_action_space
            assert around(task, {**wrapper, "training_only": True}, training=False).base is not None
