"""Rules of optimisation as functions of tensors, in place: how gradients change parameters and moments.

Compiled updates take their steps by them. Torch's own optimisers have kernels for eager steps, and Adam here is their
arithmetic written out; `LaProp` has one form for all modes: an optimiser whose step is its rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

lists: Any = torch  # whose operations on lists of tensors have no public names


class Group(NamedTuple):
    """Parameters with one rate and the same options, in the memory that they share with their optimiser."""

    name: str
    parameters: Sequence[Tensor]
    state: Mapping[str, Sequence[Tensor]]
    """Of each parameter: `step`, how many it has taken, and the rule's moments."""
    rate: Tensor | float
    options: Mapping[str, Any]

    def write_(
        self, count: Tensor, parameters: Sequence[Tensor], moments: Mapping[str, Sequence[Tensor]], skip: Tensor | None
    ) -> None:
        """Write what a step has made of parameters and moments, and its number, unless `skip` is 1."""
        made = [(self.parameters, parameters), *[(self.state[name], moments[name]) for name in moments]]
        for places, values in (*made, (self.state["step"], [count] * len(parameters))):
            if skip is None and not torch.compiler.is_compiling():  # one launch for all
                lists._foreach_copy_(places, values)
                continue
            for old, new in zip(places, values, strict=True):
                old.copy_(new if skip is None else torch.where(skip > 0, old, new))


class Rule(ABC):
    """How gradients change a group of parameters."""

    moments: tuple[str, ...]
    """What it remembers of each parameter, in its shape."""
    options: tuple[str, ...]
    """What it reads of an optimiser's group, the rate aside."""

    @abstractmethod
    def fits(self, optimizer: Optimizer) -> bool:
        """Whether this optimiser's step is the one that the rule takes."""

    @abstractmethod
    def step_(self, group: Group, gradients: Sequence[Tensor], skip: Tensor | None = None) -> None:
        """Take a step in place; where `skip` is 1, nothing changes."""

    def group(self, optimizer: Optimizer, index: int, parameters: Sequence[Tensor]) -> Group:
        """Return parameters of an optimiser's group, with what it has of them."""
        group, own = optimizer.param_groups[index], [optimizer.state[parameter] for parameter in parameters]
        for parameter, state in zip(parameters, own, strict=True):
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                state |= {name: torch.zeros_like(parameter, memory_format=torch.preserve_format) for name in self.moments}
        return Group(
            name=str(group.get("name", index)),
            parameters=[parameter.detach() for parameter in parameters],
            state={name: [state[name] for state in own] for name in ("step", *self.moments)},
            rate=group.get("rate", group["lr"]),  # where `lr` is a number, the tensor it is written from
            options={name: group[name] for name in self.options},
        )


class AdamRule(Rule):
    """AdamW (Loshchilov and Hutter 2019); the arithmetic of torch's own, in its order."""

    moments = ("exp_avg", "exp_avg_sq")
    options = ("betas", "eps", "weight_decay")

    def fits(self, optimizer: Optimizer) -> bool:
        """Adam and AdamW without the extras that hardly anybody uses."""
        return type(optimizer) in (Adam, AdamW) and not any(
            group["amsgrad"] or group["maximize"] or (group["weight_decay"] and type(optimizer) is Adam)
            for group in optimizer.param_groups
        )

    def step_(self, group: Group, gradients: Sequence[Tensor], skip: Tensor | None = None) -> None:
        """Take a step in place."""
        (beta1, beta2), eps, decay = [group.options[name] for name in self.options]
        count, first, second = group.state["step"][0] + 1, group.state["exp_avg"], group.state["exp_avg_sq"]
        size, correction = group.rate / (1 - beta1**count), (1 - beta2**count).sqrt()
        means = [old + (new - old) * (1 - beta1) for old, new in zip(first, gradients, strict=True)]
        squares = [old * beta2 + new * new * (1 - beta2) for old, new in zip(second, gradients, strict=True)]
        kept = [old * (1 - group.rate * decay) if decay else old for old in group.parameters]
        pairs = zip(kept, means, squares, strict=True)
        moved = [old - size * (mean / (square.sqrt() / correction + eps)) for old, mean, square in pairs]
        group.write_(count, moved, {"exp_avg": means, "exp_avg_sq": squares}, skip)


class LaPropRule(Rule):
    """LaProp (Ziyin et al. 2020) on gradients clipped by what they change (AGC, Brock et al. 2021), as in DreamerV3.

        g ← g / max(1, ‖g‖ / (agc · max(pmin, ‖p‖)))          for each tensor
        v ← β₂·v + (1 - β₂)·g²        u = g / (√(v / (1 - β₂ᵗ)) + ε)
        m ← β₁·m + (1 - β₁)·u         p ← p - rate · (m / (1 - β₁ᵗ) + decay · p)

    Adam normalises the momentum; here what is normalised gathers momentum, so that β₁ and β₂ need not fit each other.
    """

    moments = ("momentum", "square")
    options = ("betas", "eps", "agc", "pmin", "weight_decay")

    def fits(self, optimizer: Optimizer) -> bool:
        """Its own."""
        return isinstance(optimizer, LaProp)

    def step_(self, group: Group, gradients: Sequence[Tensor], skip: Tensor | None = None) -> None:
        """Take a step in place."""
        (beta1, beta2), eps, agc, smallest, decay = [group.options[name] for name in self.options]
        parameters, count = group.parameters, group.state["step"][0] + 1
        if agc is not None:
            of_gradients, of_parameters = [torch.stack(lists._foreach_norm(each)) for each in (gradients, parameters)]
            excess = of_gradients / (agc * of_parameters.clamp(min=smallest))
            gradients = lists._foreach_mul(gradients, (1 / excess.clamp(min=1)).unbind())
        squares = lists._foreach_lerp(group.state["square"], lists._foreach_mul(gradients, gradients), 1 - beta2)
        sizes = lists._foreach_add(lists._foreach_div(lists._foreach_sqrt(squares), (1 - beta2**count).sqrt()), eps)
        means = lists._foreach_lerp(group.state["momentum"], lists._foreach_div(gradients, sizes), 1 - beta1)
        moved = lists._foreach_sub(parameters, lists._foreach_mul(means, group.rate / (1 - beta1**count)))
        if decay:
            moved = lists._foreach_sub(moved, lists._foreach_mul(parameters, group.rate * decay))
        group.write_(count, moved, {"momentum": means, "square": squares}, skip)


class LaProp(Optimizer):
    """The optimiser whose step is `LaPropRule`; its rates may be tensors."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 4e-5,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-20,
        agc: float | None = 0.3,
        pmin: float = 1e-3,
        weight_decay: float = 0.0,
    ) -> None:
        options = {"betas": betas, "eps": eps, "agc": agc, "pmin": pmin, "weight_decay": weight_decay}
        super().__init__(params, {"lr": lr, **options})

    @torch.no_grad()
    def step(self, closure: Any = None, *, skip: Tensor | None = None) -> None:  # type: ignore[override] # nobody has a closure
        """Take a step by the gradients at hand; where `skip` is 1, nothing changes."""
        for index, group in enumerate(self.param_groups):
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                _LAPROP.step_(_LAPROP.group(self, index, parameters), [parameter.grad for parameter in parameters], skip)


_LAPROP = LaPropRule()
_RULES = (AdamRule(), _LAPROP)


def rule_of(optimizer: Optimizer) -> Rule | None:
    """Return the rule that takes an optimiser's steps as a function of tensors, if one does."""
    return next((rule for rule in _RULES if rule.fits(optimizer)), None)


class NamedRule:
    """The steps of an optimiser by gradients that go by name."""

    def __init__(self, network: nn.Module, optimizer: Optimizer) -> None:
        """`network` names the parameters."""
        names, rule = {parameter: name for name, parameter in network.named_parameters()}, rule_of(optimizer)
        assert rule is not None
        self._rule, self.groups = rule, dict[str, list[str]]()
        """The names of each group's parameters."""
        self.parameters: dict[str, Tensor] = {}
        self._groups: list[Group] = []
        for index, options in enumerate(optimizer.param_groups):
            learnt = [parameter for parameter in options["params"] if parameter.requires_grad]
            if learnt:
                group = rule.group(optimizer, index, learnt)
                self._groups.append(group)
                self.groups[group.name] = [names[parameter] for parameter in learnt]
                self.parameters |= zip(self.groups[group.name], group.parameters, strict=True)

    def step_(self, gradients: Mapping[str, Tensor], scale: Tensor | float, skip: Tensor | None) -> None:
        """Take a step by gradients times a scale."""
        for group in self._groups:
            self._rule.step_(group, [gradients[name] * scale for name in self.groups[group.name]], skip)
