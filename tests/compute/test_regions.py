"""Regions: compiled by themselves, they are the methods that they mark."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from etude.components.latents import Categorical
from etude.components.rssm import RSSM, ModelState
from etude.compute.accelerate import Mode, has_compiler
from etude.compute.regions import are_compiled, compiled_regions, region
from etude.learning.execute import make_executor
from etude.learning.update import Batch, Metrics, Stage, Update

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="compiling for the CPU needs a C++ compiler")


class Cell(nn.Module):
    """A recurrence with a layer that another method reads."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)))
        self.unread = nn.Parameter(torch.ones(3))
        self.calls = 0

    @region
    def step(self, state: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step."""
        state = torch.tanh(state @ self.weight + given)
        return state, state.sum(-1)

    def unroll(self, start: Tensor, given: Tensor) -> Tensor:
        state, total = start, torch.zeros(len(start))
        for each in given:
            state, found = self.step(state, each)
            total = total + found
        return total


def test_elsewhere_a_region_is_the_plain_method() -> None:
    cell = Cell()
    assert "compiled" not in repr(vars(cell))
    cell.unroll(torch.zeros(2, 3), torch.ones(4, 2, 3))
    assert [name for name in vars(cell) if name.endswith("_compiled")] == []
    assert Cell.step.__doc__ == "Take one step."


def test_updates_that_are_not_compiled_whole_have_their_regions_compiled() -> None:
    weight, seen = nn.Parameter(torch.ones(2)), list[bool]()

    def loss(batch: Batch) -> tuple[Tensor, Metrics]:
        seen.append(are_compiled())
        return (weight * batch["x"]).sum(), {}

    update = Update([Stage("", loss, torch.optim.Adam([weight]))], is_compilable=False)
    modes: list[Mode] = ["eager", "compiled"]
    for mode in modes:
        make_executor(update, {}, mode=mode).learn({"x": torch.ones(2)})
    assert seen == [False, True]
    assert not are_compiled()


@needs_compiler
def test_a_compiled_region_has_the_values_and_gradients_of_its_method() -> None:
    cell, start = Cell(), torch.zeros(2, 3)
    given = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(2)).requires_grad_()

    def both() -> tuple[Tensor, ...]:
        total = cell.unroll(start, given)
        return total, *torch.autograd.grad(total.square().sum(), [given, cell.weight])

    plain = both()
    with compiled_regions():
        compiled = both()
        with torch.no_grad():
            torch.testing.assert_close(cell.unroll(start, given), plain[0].detach())
    torch.testing.assert_close(compiled, plain)
    with torch.no_grad():  # as an optimiser does: in place
        cell.weight.mul_(0.5)
    plain = both()
    with compiled_regions():
        torch.testing.assert_close(both(), plain)


@needs_compiler
@pytest.mark.slow
def test_a_world_model_with_compiled_cells_is_the_same_model() -> None:
    generator = torch.Generator().manual_seed(1)
    latents, length, count = Categorical(4, 4), 5, 3
    rssm = RSSM(latents, 2, deter=16, hidden=8, generator=generator)
    start = ModelState(torch.randn(count, 16, generator=generator), torch.randn(count, latents.size, generator=generator))
    actions, tokens = (torch.randn(length, count, size, generator=generator) for size in (2, 8))
    first, noise = (torch.rand(length, count, generator=generator) < 0.2, torch.rand(length, count, 4, generator=generator))

    def everything() -> tuple[Tensor, ...]:
        states, outputs = rssm.observe(start, actions, tokens, first, noise)
        read = [*rssm.posterior_out.parameters(), *rssm.gates.parameters(), *rssm.from_action.parameters()]
        gradients = torch.autograd.grad(states.features.square().sum() + outputs.square().sum(), read)
        with torch.no_grad():
            dreamt, chosen = rssm.imagine(lambda features, _: features[:, :2], start, noise, noise)
        return (*states, outputs, *gradients, *dreamt, chosen)

    plain = everything()
    with compiled_regions():
        torch.testing.assert_close(everything(), plain, rtol=1e-3, atol=1e-4)
