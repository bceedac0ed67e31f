"""A function compiled apart goes on from the tensors it is given, and from those it reads where they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from etude.compute.accelerate import FEW_OUTPUTS, compile_apart, has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")


class Walk:
    def __init__(self) -> None:
        self.place, self.pace = torch.zeros(3), torch.tensor(2.0)

    def step(self, given: dict[str, dict[str, Tensor] | Tensor], index: Tensor | None, times: int) -> tuple[Tensor, ...]:
        way, more = given["way"], given["more"]
        assert isinstance(way, Tensor)
        assert isinstance(more, dict)
        change = self.pace * way + more["push"]
        if index is not None:
            change = change[index]
        for _ in range(times):
            self.place.copy_(self.place + change)
        return change.sum(), self.place * 2


@pytest.mark.parametrize("index", [None, torch.tensor([2, 0, 0])])
def test_later_calls_see_their_own_inputs_and_what_changed_in_place(index: Tensor | None) -> None:
    fast, slow = Walk(), Walk()
    compiled = compile_apart(fast.step, torch.device("cpu"), 2)
    for k in range(4):
        given = {"way": torch.arange(3.0) + k, "more": {"push": torch.full((3,), 0.5 * k)}}
        found = compiled(given, index)
        for one, other in zip(found, slow.step(given, index, 2), strict=True):
            torch.testing.assert_close(one, other)
        torch.testing.assert_close(fast.place, slow.place)
        for walk in (fast, slow):
            walk.pace.fill_(k - 1.0)
            walk.place.mul_(0.5)
        index = None if index is None else index.flip(0)


def test_functions_compiled_apart_keep_to_their_own_tensors() -> None:
    walks = [Walk(), Walk()]
    first, second = (compile_apart(walk.step, torch.device("cpu"), 1) for walk in walks)
    given = {"way": torch.ones(3), "more": {"push": torch.zeros(3)}}
    for _ in range(2):
        first(given, None)
    second(given, None)
    assert walks[0].place.tolist() == [4.0] * 3
    assert walks[1].place.tolist() == [2.0] * 3


class Layers:
    """Gradients of layers with few and with many outputs, with a bias and without."""

    def __init__(self, outputs: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.weights = [torch.randn(16, 4, generator=generator), torch.randn(outputs, 16, generator=generator)]
        self.bias = torch.randn(outputs, generator=generator)

    def step(self, rows: Tensor) -> tuple[Tensor, ...]:
        def loss(weights: list[Tensor], bias: Tensor) -> Tensor:
            hidden = torch.nn.functional.linear(rows, weights[0]).relu()
            return torch.nn.functional.linear(hidden, weights[1], bias).square().sum(-1).mean()

        (first, second), bias = torch.func.grad(loss, argnums=(0, 1))(self.weights, self.bias)
        return first, second, bias


def test_layers_with_few_inputs_or_outputs_have_the_same_gradients() -> None:
    cases = [(Layers(1), (2, 5, 4)), (Layers(FEW_OUTPUTS), (8, 4)), (Layers(FEW_OUTPUTS + 1), (8, 4))]

    def step(several: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(gradient for (layers, _), rows in zip(cases, several, strict=True) for gradient in layers.step(rows))

    compiled = compile_apart(step, torch.device("cpu"))
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        several = [torch.randn(shape, generator=generator) for _, shape in cases]
        for one, other in zip(compiled(several), step(several), strict=True):
            torch.testing.assert_close(one, other)
