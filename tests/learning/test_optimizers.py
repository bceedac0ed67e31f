from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from etude.config.validate import Part
from etude.learning.optimizers import build_optimizer, clipped_step, load_optimizer_state, optimizer_state


class Plain(Optimizer):
    """Somebody else's optimiser: plain rates, no fused kernels, a state of its own."""

    def __init__(self, params: Iterable[Any], lr: float = 0.1, friction: float = 0.5) -> None:
        super().__init__(params, {"lr": lr, "friction": friction})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override] # no closure here
        for group in self.param_groups:
            assert type(group["lr"]) is float
            for p in group["params"]:
                state = self.state[p]
                speed = state.setdefault("speed", torch.zeros_like(p))
                state["count"] = state.get("count", 0) + 1
                speed.mul_(group["friction"]).add_(p.grad)
                p.sub_(group["lr"] * speed)


PARTS = {
    "adam": Part("adam"),
    "adamw": Part("adamw", {"eps": 1e-5, "weight_decay": 0.1}),
    "sgd": Part("sgd"),
    "sgd with momentum": Part("sgd", {"momentum": 0.9, "dampening": 0.3}),
    "laprop": Part("laprop", {"weight_decay": 0.1}),
    "adam, not fused": Part("adam", {"fused": False}),
    "torch.optim.RMSprop": Part("torch.optim.RMSprop"),
    "torch.optim:NAdam": Part("torch.optim:NAdam"),
    "own": Part(f"{__name__}:Plain", {"friction": 0.7}),
}
every_optimizer = pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def build(part: Part, net: nn.Module, rate: float = 0.01) -> tuple[Optimizer, Tensor]:
    lr = torch.tensor(rate)
    return build_optimizer(part, {"all": (net.parameters(), lr)}), lr


def step(net: nn.Module, optimizer: Optimizer, *, seed: int, **options: Any) -> Tensor:
    data = torch.randn(16, 3, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad(set_to_none=False)
    net(data).square().mean().backward()
    return clipped_step(optimizer, options.pop("max_grad_norm", 0.5), **options)


def everything(net: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    moments = [torch.as_tensor(v) for state in optimizer.state.values() for v in state.values()]
    return [t.detach().clone() for t in (*net.parameters(), *moments)]


def assert_same(one: list[Tensor], other: list[Tensor]) -> None:
    assert len(one) == len(other)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@every_optimizer
def test_a_skipped_step_leaves_parameters_and_moments_as_they_were(part: Part) -> None:
    net = network()
    optimizer, _ = build(part, net)
    for seed in range(3):
        step(net, optimizer, seed=seed, skip=torch.zeros(()))
    before = everything(net, optimizer)
    for seed in range(3, 6):
        step(net, optimizer, seed=seed, skip=torch.ones(()))
    assert_same(everything(net, optimizer), before)


@every_optimizer
def test_skipped_steps_leave_no_trace_in_later_ones(part: Part) -> None:
    nets = [network(), network()]
    straight, skipping = (build(part, net)[0] for net in nets)
    step(nets[1], skipping, seed=99, skip=torch.ones(()))  # even the very first one
    for seed in range(4):
        step(nets[0], straight, seed=seed)
        step(nets[1], skipping, seed=seed, skip=torch.zeros(()))
        step(nets[1], skipping, seed=50 + seed, skip=torch.ones(()))
    step(nets[0], straight, seed=9)
    step(nets[1], skipping, seed=9)  # without `skip` at all: the one before must not linger
    assert_same([p.detach() for p in nets[0].parameters()], [p.detach() for p in nets[1].parameters()])


@every_optimizer
def test_the_rate_is_a_tensor_that_can_be_changed_in_place(part: Part) -> None:
    net = network()
    optimizer, rate = build(part, net, 0.01)
    step(net, optimizer, seed=0)
    before = [p.detach().clone() for p in net.parameters()]
    rate.fill_(0.0)
    step(net, optimizer, seed=1)
    assert float(optimizer.param_groups[0]["lr"]) == 0.0
    assert_same([p.detach() for p in net.parameters()], before)
    rate.fill_(0.02)
    step(net, optimizer, seed=2)
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.02)
    assert not torch.equal(next(net.parameters()), before[0])


def test_each_group_has_its_own_rate_and_name() -> None:
    actor, critic = network(1), network(2)
    rates = {"actor": torch.tensor(0.0), "critic": torch.tensor(0.1)}
    optimizer = build_optimizer(
        Part("adamw"), {"actor": (actor.parameters(), rates["actor"]), "critic": (critic.parameters(), rates["critic"])}
    )
    assert [group["name"] for group in optimizer.param_groups] == ["actor", "critic"]
    before = everything(actor, optimizer)
    data = torch.randn(8, 3)
    (actor(data).mean() + critic(data).mean()).backward()
    clipped_step(optimizer, None)
    assert_same([p.detach() for p in actor.parameters()], before)
    assert not torch.equal(next(critic.parameters()), next(network(2).parameters()))


def test_sgd_takes_exactly_the_clipped_gradient_and_reports_the_norm_before() -> None:
    net = network()
    optimizer, _ = build(Part("sgd"), net, 1.0)
    before = [p.detach().clone() for p in net.parameters()]
    norm = step(net, optimizer, seed=0, max_grad_norm=0.01)
    reference = network()
    data = torch.randn(16, 3, generator=torch.Generator().manual_seed(0))
    reference(data).square().mean().backward()
    gradients = [p.grad for p in reference.parameters() if p.grad is not None]
    expected = torch.cat([g.flatten() for g in gradients]).norm()
    assert expected > 0.01
    torch.testing.assert_close(norm, expected)
    for new, old, gradient in zip(net.parameters(), before, gradients, strict=True):
        torch.testing.assert_close(new.detach(), old - gradient * 0.01 / expected, rtol=1e-4, atol=1e-7)


def test_no_bound_means_no_clipping() -> None:
    net, reference = network(), network()
    optimizer, _ = build(Part("sgd"), net, 1.0)
    norm = step(net, optimizer, seed=0, max_grad_norm=None)
    data = torch.randn(16, 3, generator=torch.Generator().manual_seed(0))
    reference(data).square().mean().backward()
    for new, old in zip(net.parameters(), reference.parameters(), strict=True):
        assert old.grad is not None
        torch.testing.assert_close(new.detach(), old.detach() - old.grad)
    assert norm > 0


@every_optimizer
def test_a_restored_optimiser_takes_the_same_next_step(part: Part) -> None:
    net = network()
    optimizer, rate = build(part, net)
    for seed in range(3):
        step(net, optimizer, seed=seed)
    rate.fill_(0.005)
    fresh_net = network(seed=8)
    fresh_net.load_state_dict(net.state_dict())
    fresh, fresh_rate = build(part, fresh_net)
    load_optimizer_state(fresh, optimizer_state(optimizer))
    assert fresh_rate == rate
    for seed in range(3, 6):
        step(net, optimizer, seed=seed)
        step(fresh_net, fresh, seed=seed)
    assert_same(everything(fresh_net, fresh), everything(net, optimizer))


@every_optimizer
def test_loading_goes_in_place_and_also_back_to_the_very_beginning(part: Part) -> None:
    net = network()
    optimizer, _ = build(part, net)
    beginning = {"weights": {k: v.clone() for k, v in net.state_dict().items()}, "optimizer": optimizer_state(optimizer)}
    step(net, optimizer, seed=0)
    once = everything(net, optimizer)
    step(net, optimizer, seed=1)
    net.load_state_dict(beginning["weights"])
    load_optimizer_state(optimizer, beginning["optimizer"])
    step(net, optimizer, seed=0)
    assert_same(everything(net, optimizer), once)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", True),
        ("step", 3),
        ("step", None),
        ("exp_avg", "text"),
        ("exp_avg", torch.zeros(7)),
        ("exp_avg", torch.zeros(1, 2, 3, 4)),
    ],
)
def test_a_state_that_no_optimiser_could_go_on_with_is_refused(key: str, value: object) -> None:
    net = network()
    optimizer, _ = build(Part("adam"), net)
    step(net, optimizer, seed=0)
    state = optimizer_state(optimizer)
    state["state"] = {index: dict(values) for index, values in state["state"].items()}
    state["state"][0][key] = value
    with pytest.raises(ValueError, match=f"optimiser state '{key}' of parameter 0"):
        load_optimizer_state(build(Part("adam"), network())[0], state)


def test_two_optimisers_only_the_critic_steps() -> None:
    """Manual optimisation: each optimiser moves its own network, when it is told to, and nothing else."""
    actor, critic = network(1), network(2)
    parts = Part("adamw", {"weight_decay": 0.1})
    actor_optimizer, critic_optimizer = build(parts, actor)[0], build(parts, critic)[0]
    frozen, moving = everything(actor, actor_optimizer), everything(critic, critic_optimizer)
    for seed in range(5):
        data = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed))
        for optimizer in (actor_optimizer, critic_optimizer):
            optimizer.zero_grad(set_to_none=False)
        (actor(data).mean() + critic(data).square().mean()).backward()  # gradients reach both
        clipped_step(critic_optimizer, 0.5)
    assert_same(everything(actor, actor_optimizer), frozen)
    assert all(not torch.equal(a, b) for a, b in zip(critic.parameters(), moving, strict=False))


def test_parameters_without_a_gradient_are_left_alone() -> None:
    net = network()
    frozen = net[0].weight.requires_grad_(False)
    optimizer, _ = build(Part("adamw", {"weight_decay": 0.5}), net)
    before = frozen.clone()
    step(net, optimizer, seed=0)
    assert torch.equal(frozen, before)
