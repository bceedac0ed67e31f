"""Updates compiled whole: gathering, losses, gradients, clipping, steps and targets as one function of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call, grad_and_value

from etude.compute.accelerate import CompiledApart, compile_apart
from etude.compute.kept_code import KeptCode
from etude.compute.noise import Noise, Request
from etude.compute.random_streams import GlobalGenerators
from etude.compute.trees import Tree, at, first_leaf, joined, leaves
from etude.compute.weak_methods import weakly
from etude.learning.execute import Before, Due, Executor, Packed, Report, Table, per_row_of, run_in_calls, tables_of
from etude.learning.rules import NamedRule
from etude.learning.sources import Source
from etude.learning.update import Batch, Metrics, Out, Update, as_out, mean_of

Layout = tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[str, ...]]
"""What the tensors are that a compiled call returns: `Packed` without them."""


class Keeping(NamedTuple):
    """Under which key an algorithm's compiled updates are kept on this machine."""

    key: str
    tensors: Callable[[], Mapping[str, Tensor]]
    """What its losses read besides networks and optimisers, such as scheduled values, by name."""


class Compiled(Executor):
    """The same update in a pure form: the gradient by `torch.func`, the step by its rule, several updates a call."""

    mode = "compiled"

    def __init__(
        self, update: Update, modules: Mapping[str, nn.Module], generator: Generator | None, keeping: Keeping | None = None
    ) -> None:
        super().__init__(update, modules, generator)
        self._keeping = keeping
        self._networks = _Networks(self.modules)
        changed = {id(statistic) for statistic in self.statistics}
        self._statistics = {name: value for name, value in self._networks.named_buffers() if id(value) in changed}
        self._compiled: dict[str, CompiledApart] = {}
        self._layouts: dict[str, Layout] = {}
        self._rules: list[NamedRule] = []
        self._requests: list[dict[str, Request]] | None = None

    def run(self, source: Source, count: int, before: Before | None = None) -> dict[str, Table]:
        """Take `count` updates on a source's batches, and return the metrics of each stage that took part."""
        return run_in_calls(self, source, count, before)

    def steps(self, source: Source, columns: Mapping[str, Any], drawn: Tree, pattern: tuple[Due, ...]) -> Packed:
        """Take as many updates as the pattern has, on batches gathered from `columns`."""
        if self._requests is None:
            self._requests = self._asked_for(source.gather(columns, at(drawn, 0)))
        numbers = [self._numbers(due) for due in pattern]
        key = str((pattern, source.identity, *(leaf.shape for leaf in leaves([columns, drawn]))))
        if key not in self._compiled:
            self._rules = [NamedRule(self._networks, stage.optimizer) for stage in self.update.stages]
            kept = None
            if self._keeping is not None:
                kept = KeptCode(self._keeping.key, key, weakly(self, self._named), partial(self._layouts.get, key))
            self._compiled[key] = compile_apart(self._pure, first_leaf(drawn).device, key, pattern, source.gather, kept=kept)
        code = self._compiled[key]
        tensors = code(columns, drawn, numbers)
        if key not in self._layouts:  # the code was loaded
            names, keys, rows = code.note
            self._layouts[key] = (tuple(names), tuple(map(tuple, keys)), tuple(rows))
        return Packed(*self._layouts[key], tensors)

    def _named(self) -> dict[str, Tensor]:
        """Return what compiled code may read besides what it is given, each under a name that another run has it under too."""
        found: dict[str, Tensor] = {**dict(self._networks.named_parameters()), **dict(self._networks.named_buffers())}
        for stage in self.update.stages:
            found |= {f"{stage.name}.state.{name}": value for name, value in stage.state.items()}
            for index, group in enumerate(stage.optimizer.param_groups):
                where = f"{stage.name}.{index}"
                found |= {f"{where}.{key}": group[key] for key in ("lr", "rate") if isinstance(group.get(key), Tensor)}
                for number, parameter in enumerate(group["params"]):
                    own = stage.optimizer.state.get(parameter, {})
                    found |= {f"{where}.{number}.{key}": part for key, part in own.items() if isinstance(part, Tensor)}
        if self.update.skip is not None:
            found["skip"] = self.update.skip
        return {**found, **({} if self._keeping is None else self._keeping.tensors())}

    def _pure(
        self,
        columns: Mapping[str, Any],
        drawn: Tree,
        numbers: Sequence[Mapping[str, Tensor]],
        key: str,
        pattern: tuple[Due, ...],
        gather: Callable[[Mapping[str, Any], Tree], Batch],
    ) -> tuple[Tensor, ...]:
        stages, reports = self.update.stages, []
        for begin, end in self._stretches(pattern):
            batches = self._beforehand([gather(columns, at(drawn, k)) for k in range(begin, end)])
            reports += [self._pure_update(batch, pattern[k], Noise(drawn=numbers[k])) for k, batch in enumerate(batches, begin)]
        tables, rows = tables_of(stages, reports), per_row_of(reports)
        self._layouts[key] = (tuple(tables), tuple([table.keys for table in tables.values()]), tuple(rows))
        return (*[table.values for table in tables.values()], *rows.values())

    def _pure_update(self, batch: Batch, due: Due, noise: Noise) -> list[Report | None]:
        reports: list[Report | None] = []
        carry: dict[str, Any] = {}
        for position, stage in enumerate(self.update.stages):
            if not due[position]:
                reports.append(None)
                continue
            rule, state, statistics = self._rules[position], stage.state, self._statistics
            gradients: dict[str, Tensor] = {}
            parts: list[tuple[float, Out]] = []
            for number, (share, piece, carried) in enumerate(stage.pieces(batch, carry)):
                more = self.given(position, carried, state, noise if share == 1 else noise.of_piece(number))

                loss_of = partial(self._loss, loss=stage.loss, piece=piece, more=more)
                found, (_, (out, statistics)) = grad_and_value(loss_of, has_aux=True)(rule.parameters, statistics)
                gradients = {name: g if share == 1 else share * g + gradients.get(name, 0) for name, g in found.items()}
                parts.append((share, out._replace(carry=_nothing_as(None, out.carry))))
                state = {**state, **out.state}
            out = mean_of(parts)
            if stage.decide is not None:
                stage.decide(out.metrics)
            norms = _norms(gradients, rule.groups)
            skip = self.skipped(norms[""])
            scale = 1.0 if stage.max_grad_norm is None else (stage.max_grad_norm / (norms[""] + 1e-6)).clamp(max=1.0)
            rule.step_(gradients, scale, skip)
            for name, value in statistics.items():
                own = self._statistics[name]
                own.copy_(value if skip is None else torch.where(skip > 0, own, value))
            self.settle(stage, out, skip, [*rule.parameters.values()])
            carry |= out.carry
            reports.append(self.reported(stage, out, norms, batch, skip))
        if self.update.after is not None and due[-1]:
            self.update.after()
        return reports

    def _loss(
        self,
        weights: dict[str, Tensor],
        before: dict[str, Tensor],
        loss: Callable[..., Any],
        piece: Batch,
        more: dict[str, Any],
    ) -> tuple[Tensor, tuple[Out, dict[str, Tensor]]]:
        """Return a loss with these weights, what else it says, and the statistics of batches as they become.

        What a forward pass writes to must come in and go out: copies, in the place of the networks' own.
        """
        after = {name: value.clone() for name, value in before.items()}
        out = as_out(functional_call(self._networks, {**weights, **after}, (loss, piece), more))
        return out.loss, (out._replace(carry=_nothing_as((), out.carry)), after)

    def _stretches(self, pattern: tuple[Due, ...]) -> list[tuple[int, int]]:
        """Cut the updates where `after` runs: what only it changes stays the same within each stretch."""
        cuts = [k + 1 for k, due in enumerate(pattern) if due[-1] and self.update.after is not None]
        return [(begin, end) for begin, end in pairwise([0, *cuts, len(pattern)]) if begin < end]

    def _beforehand(self, batches: list[Batch]) -> list[Batch]:
        """Add what losses can have for several updates in one pass."""
        for stage in self.update.stages if len(batches) > 1 else ():
            if stage.beforehand is not None:
                reads, compute = stage.beforehand
                more = compute(joined([{name: batch[name] for name in reads} for batch in batches]))
                parts = {name: column.tensor_split(len(batches)) for name, column in more.items()}
                batches = [{**batch, **{name: part[k] for name, part in parts.items()}} for k, batch in enumerate(batches)]
        return batches

    @torch.no_grad()
    def _asked_for(self, batch: Batch) -> list[dict[str, Request]]:
        """Return the noise that each stage asks for, after one look at its loss; nothing is changed by it."""
        asked, carry, device = list[dict[str, Request]](), dict[str, Any](), first_leaf(batch).device
        before = [statistic.clone() for statistic in self.statistics]
        streams = GlobalGenerators.now()  # which dropout reads
        seen = Noise(torch.Generator(device=device).manual_seed(0))
        for position, stage in enumerate(self.update.stages):
            known = set(seen.requests)
            if any("noise" in takes for takes in self.takes):
                parts = []
                for number, (share, piece, carried) in enumerate(stage.pieces(batch, carry)):
                    noise = seen if share == 1 else seen.of_piece(number)
                    parts.append((share, as_out(stage.loss(piece, **self.given(position, carried, stage.state, noise)))))
                carry |= mean_of(parts).carry
            asked.append({name: request for name, request in seen.requests.items() if name not in known})
        for statistic, value in zip(self.statistics, before, strict=True):
            statistic.copy_(value)
        streams.put_back()
        return asked

    def _numbers(self, due: Due) -> dict[str, Tensor]:
        """Draw the noise of one update: that of the stages which take part, in order."""
        assert self._requests is not None
        wanted = [requests for requests, is_due in zip(self._requests, due, strict=False) if is_due]
        if not any(wanted):
            return {}
        assert self.generator is not None, "a loss that asks for noise needs a generator"
        return {name: request.draw(self.generator) for requests in wanted for name, request in requests.items()}


class _Networks(nn.Module):
    """The networks of all losses, to be called with other weights than their own."""

    def __init__(self, modules: nn.ModuleDict) -> None:
        super().__init__()
        self.parts = modules

    def forward(self, loss: Callable[..., Any], batch: Batch, **more: Any) -> Any:
        """Return what a loss says, which reads these networks."""
        return loss(batch, **more)


def _nothing_as(new: tuple[()] | None, tree: Tree) -> Tree:
    """Return a tree in which None is the empty tuple, or that None again: `torch.func` passes on tensors, and trees of them."""
    if isinstance(tree, Mapping):
        return {key: _nothing_as(new, value) for key, value in tree.items()}
    if isinstance(tree, tuple | list) and len(tree) > 0:
        items = [_nothing_as(new, value) for value in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return tree if isinstance(tree, Tensor) else new


def _norms(gradients: Mapping[str, Tensor], groups: Mapping[str, Sequence[str]]) -> Metrics:
    """Return the norm of the whole gradient, under no name, and that of each group if there are several."""
    squares = {name: gradient.square().sum() for name, gradient in gradients.items()}
    parts = {group: torch.stack([squares[name] for name in names]).sum().sqrt() for group, names in groups.items()}
    return {"": torch.stack([*squares.values()]).sum().sqrt(), **(parts if len(parts) > 1 else {})}
