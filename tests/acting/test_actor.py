"""Acting runs in one place: in the way that is due, eager or captured, with whatever state is carried."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Generator, Tensor

from etude.acting.actor import Actor
from etude.acting.policy import ActResult, Acts, Mode, State
from etude.environments.vector import Observation
from tests.capture_double import pretend_capture


class Trail(NamedTuple):
    age: Tensor
    places: list[Any]


class Wanderer(Acts):
    """Sums up what it sees, in a state of every kind of container, and adds noise whose size changes with time."""

    warm_up = 0

    def __init__(self) -> None:
        self.size = torch.zeros(())

    def initial_state(self, n: int) -> State:
        return Trail(torch.zeros(n), [torch.zeros(n, 2), {"last": torch.zeros(n), "nothing": None}])

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        assert isinstance(observation, Tensor)
        age = torch.where(is_first, 0.0, state.age) + 1
        total = torch.where(is_first[:, None], 0.0, state.places[0]) + observation
        action = total.sum(-1) + age + state.places[1]["last"]
        if mode != "greedy":
            action = action + self.size * torch.empty_like(action).normal_(generator=generator)
        return ActResult(action, Trail(age, [total, {"last": action, "nothing": None}]), {"age": age})

    def act_randomly(self, observation: Observation, state: State, is_first: Tensor, *, generator: Generator) -> ActResult:
        return ActResult(torch.empty(len(is_first)).uniform_(generator=generator), state, {"age": state.age})

    def is_warming_up(self) -> bool:
        return self.warm_up > 0

    def advance(self, rows: int) -> None:
        self.warm_up -= 1
        self.size += 0.1 * rows

    @property
    def capturable(self) -> bool:
        return True


def acted(mode: Mode, steps: int, n: int = 3, *, captured: bool = False, warm_up: int = 0) -> list[Any]:
    who, seen = Wanderer(), Generator().manual_seed(1)
    who.warm_up = warm_up
    actor = Actor(who, mode, Generator().manual_seed(2), captured=captured)
    assert actor.captured == captured
    state, said = actor.initial_state(n), []
    for _ in range(steps):
        actor.until_change()
        observation, is_first = torch.randn(n, 2, generator=seen), torch.rand(n, generator=seen) < 0.3
        result = actor(observation, state, is_first)
        state = result.state
        assert type(state) is Trail
        said.append([actor.way, result.action.clone(), result.extras["age"].clone()])
    return [*said, state.age, state.places[0], state.places[1]["last"], actor.generator.get_state()]


@pytest.mark.parametrize("mode", ["explore", "sample", "greedy"])
def test_captured_it_acts_as_it_does_eager_state_and_randomness_included(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = pretend_capture(monkeypatch)
    eager, captured = (acted(mode, 12, captured=captured, warm_up=5) for captured in (False, True))
    assert len(graphs) == (2 if mode == "explore" else 1), "one for each way"
    for one, other in zip(eager, captured, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0) if isinstance(one, Tensor) else _assert_same(one, other)


def _assert_same(one: list[Any], other: list[Any]) -> None:
    assert one[0] == other[0]
    torch.testing.assert_close(one[1:], other[1:], rtol=0, atol=0)


def test_a_warm_up_is_random_and_then_it_explores() -> None:
    ways = [each[0] for each in acted("explore", 6, warm_up=4)[:6]]
    assert ways == ["random"] * 4 + ["explore"] * 2
    assert {each[0] for each in acted("greedy", 3, warm_up=4)[:3]} == {"greedy"}


def test_each_number_of_environments_has_a_graph_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = pretend_capture(monkeypatch)
    actor = Actor(Wanderer(), "greedy", Generator(), captured=True)
    for n in (2, 5):
        state = actor.initial_state(n)
        for _ in range(6):
            action, state, extras = actor(torch.ones(n, 2), state, torch.zeros(n, dtype=torch.bool))
            assert action.shape == extras["age"].shape == (n,)
    assert len(graphs) == 2


class Own(Wanderer):
    """Acts in a way of its own, which nothing that was said of its parent's holds for."""

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        return ActResult(torch.full((len(is_first),), float(is_first.any())), state)


def test_an_act_of_ones_own_is_neither_captured_nor_replaced_by_the_parents_warm_up() -> None:
    who = Own()
    who.warm_up = 10
    actor = Actor(who, "explore", Generator(), captured=True)
    assert not actor.captured
    actor.until_change()
    assert actor.way == "random"
    assert actor(torch.ones(2, 2), None, torch.tensor([True, False])).action.tolist() == [1, 1]
