"""Updates in NumPy, for plain MLPs on a CPU: losses come with their gradient written out, down to the networks' outputs.

There is nothing to compile, and a step of a small network takes a third or less of the time that torch's dispatch takes for it.
Weights, moments and rates are those of the modules and their optimiser, so that a run may go on in any other way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from etude.components.networks.written_mlp import Array
from etude.components.written_critics import can_be_written, written_twin
from etude.compute.noise import Noise
from etude.compute.trees import at
from etude.learning.execute import Before, Due, Eager, Table, draws
from etude.learning.rules import rule_of
from etude.learning.sources import Source
from etude.learning.update import Batch, Out, Stage, Update


class Written(Eager):
    """The same updates, one after the other; whatever is not a step of `run` is eager, on the same memory."""

    mode = "numpy"

    def __init__(self, update: Update, modules: Mapping[str, nn.Module], generator: Generator | None) -> None:
        super().__init__(update, modules, generator)
        self._stages = [_WrittenStage(stage) for stage in update.stages]

    @classmethod
    def can_run(cls, update: Update) -> bool:
        """Whether all that an update does is written out."""
        return all(map(_is_written, update.stages))

    def run(self, source: Source, count: int, before: Before | None = None) -> dict[str, Table]:
        """Take `count` updates on a source's batches, and return the metrics of each stage that took part."""
        for stage in self._stages:
            stage.begin()
        with np.errstate(all="ignore"), torch.no_grad():  # what is not finite is looked for where torch's is
            for drawn in draws(source, count, 1, before):
                if self.is_over():
                    break
                (due,), batch = self.due(1), source.gather(source.columns, at(drawn, 0))
                said = self._once(batch, due)
                self.taken.value += 1
                source.learned(drawn, {name: torch.from_numpy(values)[None] for name, values in said.items()})
        tables = {stage.name: stage.table() for stage in self._stages}
        return {name: table for name, table in tables.items() if table is not None}

    def _once(self, batch: Batch, due: Due) -> dict[str, Array]:
        update, per_row, noise = self.update, dict[str, Array](), Noise(self.generator)
        for stage, is_due in zip(self._stages, due, strict=False):
            if is_due:
                per_row |= stage.step(batch, noise, update.skip, skips_non_finite=update.skip_non_finite)
        if update.after is not None and due[-1]:
            update.after()
        return per_row


def _is_written(stage: Stage) -> bool:
    written = stage.written
    if written is None or stage.accumulate != 1 or stage.state or stage.after_step:
        return False
    known = {parameter for network in written.networks.values() for parameter in network.parameters()} | {*written.parameters}
    owned = [p for group in stage.optimizer.param_groups for p in group["params"]]
    on_host = all(p.device.type == "cpu" and p.dtype == torch.float32 and p.is_contiguous() for p in owned)
    return (
        on_host
        and known.issuperset(owned)
        and all(map(can_be_written, written.networks.values()))
        and _rule_of(stage.optimizer) is not None
    )


class _WrittenStage:
    """One loss, and the memory that its gradients and moments have in common."""

    def __init__(self, stage: Stage) -> None:
        assert stage.written is not None
        self._stage, self.name = stage, stage.name
        rule = _rule_of(stage.optimizer)
        assert rule is not None
        self._memory = _Memory(stage.optimizer, rule)
        gradients = self._memory.gradients
        networks = {name: written_twin(network, gradients) for name, network in stage.written.networks.items()}
        self._loss, self._takes_noise = stage.written.make(networks, gradients), "noise" in stage.takes()
        self._lines: list[list[float]] = []
        self._keys: tuple[str, ...] = ()

    def begin(self) -> None:
        """Before updates: have the optimiser's moments in one piece, wherever it got them from."""
        self._memory.adopt()
        self._lines = []

    def table(self) -> Table | None:
        """Return the metrics of all updates since they began."""
        return Table(self._keys, torch.tensor(self._lines)) if self._lines else None

    def step(self, batch: Batch, noise: Noise, skip: Tensor | None, *, skips_non_finite: bool) -> dict[str, Array]:
        """Take part in an update; returns what the loss says of each row."""
        stage, memory = self._stage, self._memory
        batch = batch if stage.prepare is None else stage.prepare(batch)
        said = self._loss(batch, noise) if self._takes_noise else self._loss(batch)
        if stage.decide is not None:
            stage.decide({name: torch.tensor(value) for name, value in said.metrics.items()})
        norms = memory.norms()
        is_broken = not np.isfinite(norms[""])
        if not (skip is not None and bool(skip)) and not (skips_non_finite and is_broken):
            if stage.max_grad_norm is not None:
                memory.clip(stage.max_grad_norm, norms if stage.clips_groups else None, norms[""])
            memory.step()
        metrics: Any = stage.named(Out(*said[:2]), norms)  # type: ignore[arg-type] # numbers here, tensors elsewhere
        if skips_non_finite:
            metrics[f"train/{stage.name}_skipped" if stage.name else "train/skipped"] = float(is_broken)
        self._keys = tuple(metrics)
        self._lines.append([*metrics.values()])
        return dict(said.per_row)


class _Group(NamedTuple):
    name: str
    place: slice
    options: dict[str, Any]


class _Memory:
    """The gradients and moments of an optimiser, each kind in one piece: a step is a few operations on all of them.

    The parameters stay where they are, in the modules; their `grad` and the optimiser's moments are parts of the pieces.
    """

    def __init__(self, optimizer: Optimizer, rule: _Rule) -> None:
        self._optimizer, self._rule = optimizer, rule
        self._learnt: list[tuple[nn.Parameter, slice]] = []
        self._groups: list[_Group] = []
        end = 0
        for index, group in enumerate(optimizer.param_groups):
            begin = end
            for parameter in group["params"]:
                if parameter.requires_grad:
                    self._learnt.append((parameter, slice(end, end + parameter.numel())))
                    end += parameter.numel()
            if end > begin:
                self._groups.append(_Group(str(group.get("name", index)), slice(begin, end), group))
        self._gradient = torch.zeros(end)
        for parameter, place in self._learnt:
            parameter.grad = self._gradient[place].view_as(parameter)
        self.gradients: dict[Tensor, Array] = {p: self._gradient[place].view_as(p).numpy() for p, place in self._learnt}
        self._parts = self._in_common()
        self._moments: dict[str, Tensor] = {}
        self._steps = torch.zeros(len(self._learnt))
        self._given: list[list[Tensor]] = []
        """What the optimiser was given of each parameter: while it has that still, nothing was loaded."""

    def _in_common(self) -> list[_Part]:
        joined: list[tuple[slice, dict[str, Any]]] = []
        for _, place, options in self._groups:
            if joined and _alike(joined[-1][1], options):
                joined[-1] = (slice(joined[-1][0].start, place.stop), options)
            else:
                joined.append((place, options))
        return [
            _Part(
                place,
                options,
                [
                    (parameter.detach().view(-1).numpy(), slice(own.start - place.start, own.stop - place.start))
                    for parameter, own in self._learnt
                    if place.start <= own.start < place.stop
                ],
            )
            for place, options in joined
        ]

    def adopt(self) -> None:
        """Take over the optimiser's moments; where it has none it has taken no step, and they are zero."""
        state, names = self._optimizer.state, self._rule.moments
        has = [[state[p].get(name) for name in ("step", *names)] if p in state else [] for p, _ in self._learnt]
        if self._given and all(
            len(mine) == len(its) and all(one is other for one, other in zip(mine, its, strict=True))
            for mine, its in zip(self._given, has, strict=True)
        ):
            return
        self._moments = {name: torch.zeros_like(self._gradient) for name in names}
        self._given = []
        for index, ((parameter, place), its) in enumerate(zip(self._learnt, has, strict=True)):
            mine = [self._steps[index], *(moment[place].view_as(parameter) for moment in self._moments.values())]
            if its:
                for part, value in zip(mine, its, strict=True):
                    part.copy_(value)
            else:
                mine[0].zero_()
            state[parameter] = dict(zip(("step", *names), mine, strict=True))
            self._given.append(mine)

    def norms(self) -> dict[str, float]:
        """Return the norm of the whole gradient, under no name, and that of each group if there are several."""
        gradient = self._gradient.numpy()
        squares = {group.name: float(gradient[group.place] @ gradient[group.place]) for group in self._groups}
        norms = {name: square**0.5 for name, square in squares.items()}
        return {"": sum(squares.values()) ** 0.5, **(norms if len(norms) > 1 else {})}

    def clip(self, most: float, norms: Mapping[str, float] | None, norm: float) -> None:
        """Scale the gradient down to a norm, or each group's by itself."""
        gradient = self._gradient.numpy()
        parts = [(slice(None), norm)] if norms is None else [(g.place, norms.get(g.name, norm)) for g in self._groups]
        for place, its in parts:
            if (scale := most / (its + 1e-6)) < 1 or its != its:
                gradient[place] *= scale

    def step(self) -> None:
        """Take a step, at once for groups that have their settings in common."""
        self._steps += 1
        gradient, moments = self._gradient.numpy(), [moment.numpy() for moment in self._moments.values()]
        for place, options, values in self._parts:
            rate = float(options.get("rate", options["lr"]))
            change = self._rule.change(float(self._steps[0]), options, gradient[place], *[moment[place] for moment in moments])
            change *= rate
            decay = 1 - rate * options.get("weight_decay", 0.0)
            for own, part in values:
                if decay != 1:
                    own *= decay
                own -= change[part]


class _Rule(ABC):
    """By how much gradients change parameters, at a rate of one."""

    moments: ClassVar[tuple[str, ...]]

    @abstractmethod
    def change(self, count: float, options: Mapping[str, Any], gradient: Array, *moments: Array) -> Array:
        """Bring the moments up to date in place, and return what is taken off the parameters in the step of this number."""


class _Adam(_Rule):
    """Adam and AdamW (Loshchilov and Hutter 2019), but for the decay."""

    moments = ("exp_avg", "exp_avg_sq")

    def change(self, count: float, options: Mapping[str, Any], gradient: Array, *moments: Array) -> Array:
        (mean, square), (beta1, beta2) = moments, options["betas"]
        room = np.subtract(gradient, mean)
        room *= 1 - beta1
        mean += room
        np.multiply(gradient, gradient, out=room)
        room *= 1 - beta2
        square *= beta2
        square += room
        np.sqrt(square, out=room)
        room *= (1 - beta2**count) ** -0.5
        room += options["eps"]
        np.divide(mean, room, out=room)
        room *= 1 / (1 - beta1**count)
        return room


class _RMSprop(_Rule):
    """RMSprop (Hinton 2012) as torch has it, without momentum."""

    moments = ("square_avg",)

    def change(self, count: float, options: Mapping[str, Any], gradient: Array, *moments: Array) -> Array:
        (square,), alpha = moments, options["alpha"]
        room = gradient * gradient
        room *= 1 - alpha
        square *= alpha
        square += room
        np.sqrt(square, out=room)
        room += options["eps"]
        return np.divide(gradient, room, out=room)


def _rule_of(optimizer: Optimizer) -> _Rule | None:
    """Return an optimiser's rule in NumPy; None where it has extras that hardly anybody uses, or is another."""
    if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW) and rule_of(optimizer) is not None:
        return _Adam()
    unusual = ("momentum", "centered", "weight_decay", "maximize")
    if type(optimizer) is torch.optim.RMSprop and not any(g[name] for g in optimizer.param_groups for name in unusual):
        return _RMSprop()
    return None


class _Part(NamedTuple):
    """Groups that have their settings in common."""

    place: slice
    options: dict[str, Any]
    values: list[tuple[Array, slice]]
    """Each parameter's own memory, flat, and where it is within the part."""


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two groups have the very same rate, and the same options."""
    rate = "rate" if "rate" in one else "lr"
    return one[rate] is other[rate] and all(
        one[key] == other[key] for key in one if key not in ("params", "name", "lr", "rate")
    )
