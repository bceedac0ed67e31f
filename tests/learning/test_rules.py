"""What a rule does to parameters and moments, and that it is the same however updates run."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from etude.config.validate import Part
from etude.learning import compiled
from etude.learning.execute import make_executor
from etude.learning.optimizers import build_optimizer
from etude.learning.rules import LaProp, rule_of
from etude.learning.sources import Minibatches
from etude.learning.update import Stage, Update


def reference(
    parameter: Tensor, gradient: Tensor, state: dict[str, Any], rate: float, agc: float | None, decay: float
) -> Tensor:
    """DreamerV3's chain as its paper's code has it: clip, scale by the root of squares, momentum, decay, rate."""
    beta1, beta2, eps, smallest = 0.9, 0.999, 1e-20, 1e-3
    if agc is not None:
        upper = agc * max(smallest, float(parameter.norm()))
        gradient = gradient / max(1.0, float(gradient.norm()) / upper)
    state["t"] = state.get("t", 0) + 1
    state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * gradient**2
    scaled = gradient / ((state["v"] / (1 - beta2 ** state["t"])).sqrt() + eps)
    state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * scaled
    return parameter - rate * (state["m"] / (1 - beta1 ** state["t"]) + decay * parameter)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("agc", [0.3, None])
def test_laprop_is_what_dreamer_does(agc: float | None, decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.randn(shape, generator=generator).double()) for shape in ((3, 4), (5,), ())]
    weights.append(nn.Parameter(torch.zeros(2).double()))  # whose size is taken to be pmin
    plain, states = [weight.detach().clone() for weight in weights], [dict[str, Any]() for _ in weights]
    optimizer = LaProp(weights, lr=0.1, agc=agc, weight_decay=decay)
    for step in range(6):
        gradients = [10.0 ** (step % 3 - 2) * torch.randn(w.shape, generator=generator).double() for w in weights]
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient.clone()
        optimizer.step()
        plain = [reference(*each, 0.1, agc, decay) for each in zip(plain, gradients, states, strict=True)]
        for weight, wanted in zip(weights, plain, strict=True):
            torch.testing.assert_close(weight.detach(), wanted, rtol=1e-4, atol=1e-5)
    assert all(float(own["step"]) == 6 for own in optimizer.state.values())


def test_a_gradient_is_clipped_by_the_size_of_what_it_changes() -> None:
    large, small = nn.Parameter(torch.full((4,), 10.0)), nn.Parameter(torch.full((4,), 0.1))
    optimizer = LaProp([large, small], lr=1e-3)
    for weight in (large, small):
        weight.grad = torch.full((4,), 1.0)
    optimizer.step()
    seen = [math.sqrt(float(optimizer.state[weight]["square"].sum()) / (1 - 0.999)) for weight in (large, small)]
    assert seen == [pytest.approx(2.0), pytest.approx(0.3 * 0.2, rel=1e-4)]


class Fit:
    """A regression in one mode."""

    def __init__(self, part: Part, mode: Any) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
        self.rate = torch.tensor(0.01)
        halves = {"first": (self.net[0].parameters(), self.rate), "last": (self.net[2].parameters(), self.rate)}
        self.optimizer, self.skip = build_optimizer(part, halves), torch.zeros(())
        stage = Stage("", self.loss, self.optimizer, 0.5)
        self.executor = make_executor(Update([stage], skip=self.skip), {"net": self.net}, mode=mode)

    def loss(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        return (self.net(batch["x"]).squeeze(-1) - batch["x"].sum(-1)).square().mean(), {}

    def run(self, count: int) -> None:
        rows = torch.randn(32, 3, generator=torch.Generator().manual_seed(1))
        self.executor.run(Minibatches({"x": rows}, torch.arange(8 * count).view(count, 8) % 32), count)

    def everything(self) -> list[Tensor]:
        moments = [value for own in self.optimizer.state.values() for value in own.values()]
        return [tensor.detach().clone() for tensor in (*self.net.parameters(), *moments)]


RULES = {"adam": Part("adam"), "adamw": Part("adamw", {"weight_decay": 0.1}), "laprop": Part("laprop", {"weight_decay": 0.1})}


@pytest.mark.parametrize("part", RULES.values(), ids=RULES)
def test_the_written_out_step_is_the_eager_one(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is compiled, as it is:
    monkeypatch.setattr(
        compiled,
        "compile_apart",
        lambda function, device, *fixed, kept=None: torch.no_grad()(lambda *given: function(*given, *fixed)),
    )
    assert_alike(part, 8)


def test_laprop_compiled_is_laprop_eager() -> None:
    assert_alike(RULES["laprop"], 1)


def assert_alike(part: Part, count: int) -> None:
    eager, fast = Fit(part, "eager"), Fit(part, "compiled")
    assert fast.executor.mode == "compiled"
    for skipped, rate in ((0, 0.01), (1, 0.01), (0, 0.002)):
        for fit in (eager, fast):
            before = fit.everything()
            fit.skip.fill_(skipped)
            fit.rate.fill_(rate)
            fit.run(count)
            if skipped:
                assert all(torch.equal(one, other) for one, other in zip(before, fit.everything(), strict=True))
        for one, other in zip(eager.everything(), fast.everything(), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_laprop_can_be_captured() -> None:
    net = nn.Linear(3, 1).cuda()
    optimizer = build_optimizer(Part("laprop"), {"all": (net.parameters(), torch.tensor(0.01, device="cuda"))})
    stage = Stage("", lambda batch: (net(batch["x"]).square().mean(), {}), optimizer)
    assert make_executor(Update([stage]), {"net": net}, mode="captured").mode == "captured"


def test_only_optimisers_whose_step_is_known_have_a_rule() -> None:
    weight = [nn.Parameter(torch.zeros(2))]
    assert rule_of(torch.optim.SGD(weight, 0.1)) is None
    assert rule_of(torch.optim.Adam(weight, weight_decay=0.1)) is None
    assert rule_of(torch.optim.AdamW(weight, weight_decay=0.1)) is not None
    assert rule_of(LaProp(weight)) is not None
