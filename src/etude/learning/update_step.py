"""One update of several networks, losses and optimisers together: eager, compiled, or captured as a CUDA graph.

    rows ─→ stage 1: loss, gradient, clip, step ─→ stage 2 (sees stage 1's new weights) ─→ … ─→ after: target networks

All three ways take the same step from the same state. Parameters, moments, rates and targets are changed in place, so a step
can be taken one way now and another way after a resume. Random numbers come in with the rows: nothing is drawn inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call, grad_and_value
from torch.optim import Optimizer

from etude.buffers.rollout import take
from etude.components.networks.modes import changing, mode_dependent
from etude.compute.accelerate import Mode, compile_apart, is_captured, is_compiled
from etude.compute.captured import WARM_UP_CALLS, capture
from etude.errors import UserError
from etude.learning.adam import adam_, adam_scalars, adam_state, is_adam
from etude.learning.optimizers import clipped_step, gradient_norms, or_non_finite

Metrics = Mapping[str, Tensor]
Pattern = tuple[tuple[bool, ...], ...]
"""Which stages run in each of K updates; the last entry of an update says whether `after` does."""
Rows = Callable[[], tuple[Mapping[str, Any], Tensor | None]]
"""A batch, and which of its rows each update reads (K, B), or None if slice k is update k's."""
Steps = Callable[[Mapping[str, Any], Tensor | None], tuple[Tensor, ...]]
"""Takes K updates on a batch, and returns each stage's table of metrics."""
STEPS_PER_CALL = 4
"""How many steps are worth unrolling into one compiled call: fewer trips through Python, for a longer compilation."""
PER_ROW = "per_row"
"""The one metric that may have a value for each row, (B,): such as how wrong it was. It is not logged, but kept apart."""


EACH = "each"
"""The part of a batch that has a slice for each update, where the rest is read through indices."""
LOSS = "loss"


class Stage(NamedTuple):
    """One loss and the optimiser of the parameters that it changes."""

    objective: nn.Module
    """`objective(rows) -> (loss, metrics)`; whatever else it holds than the optimiser's parameters stays as it is.

    What it needs of networks that only `after` changes, it may say for several updates at once in a method
    `beforehand(rows) -> more rows`, given the columns that it lists as `reads_beforehand`.
    """
    optimizer: Optimizer
    max_grad_norm: float | None = None
    name: str = ""
    """Metrics are called after it: train/<name>_loss, train/<name>_grad_norm."""
    every: int = 1
    """Take part in every so many updates only."""
    accumulate: int = 1
    """Compute the gradient in so many pieces of the batch, one after the other, and take one step: for memory's sake."""

    def named(self, loss: Tensor, metrics: Metrics, norms: Metrics) -> dict[str, Tensor]:
        """Return what is logged of this stage's step; `norms` has the whole gradient's under no name."""
        prefix = f"train/{self.name}_" if self.name else "train/"
        of_groups = {f"{prefix}grad_norm_{group}".removesuffix("_"): norm for group, norm in norms.items()}
        return {f"{prefix}loss": loss, **metrics, **of_groups}

    def pieces(self, rows: Mapping[str, Any]) -> list[tuple[float, Mapping[str, Any]]]:
        """Return the rows in the pieces that a gradient is computed in, each with its share of the whole.

        A loss is a mean over rows, so the shares of its pieces add up to it. What needs the batch as a whole, such as
        statistics of it, an objective does in a method `whole_batch(rows) -> rows`.
        """
        whole_batch = getattr(self.objective, "whole_batch", None)
        rows = rows if whole_batch is None else whole_batch(rows)
        size = len(next(_leaves(rows)))
        if self.accumulate == 1 or size == 1:
            return [(1.0, rows)]
        bounds = [size * k // self.accumulate for k in range(self.accumulate + 1)]
        return [((end - begin) / size, _cut(rows, begin, end)) for begin, end in pairwise(bounds) if end > begin]


class UpdateStep:
    """Takes the steps of its stages in order, one minibatch after another.

    `decide(metrics)` runs between a stage's loss and its step and may write to tensors on the device: to `skip` (1 leaves
    everything as it is), or to a learning rate. `skip_non_finite` leaves out steps whose gradient is NaN or infinite, and
    counts them. `after()` runs at the end of every update, or of each `after_every`-th, and changes tensors in place.
    `complete(rows) -> rows` is the last word on what the objectives are given.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        after: Callable[[], None] | None = None,
        after_every: int = 1,
        changed_after: Sequence[Tensor] = (),
        decide: Callable[[Metrics], None] | None = None,
        complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
        skip: Tensor | None = None,
        skip_non_finite: bool = False,
        mode: Mode = "eager",
    ) -> None:
        self.stages, self._after, self._decide, self._complete = tuple(stages), after, decide, complete
        self._paces = (*(stage.every for stage in self.stages), after_every)
        self._period, self._patterns = math.lcm(*self._paces), dict[tuple[int, int], Pattern]()
        self.skip, self._skip_non_finite, self._changed_after = skip, skip_non_finite, tuple(changed_after)
        objectives = [stage.objective for stage in self.stages]
        # What a forward pass changes, if anything: a batch norm's statistics. Compiled losses are pure and can't.
        self._statistics = [buffer for module in mode_dependent(*objectives) for buffer in module.buffers(recurse=False)]
        compilable = all(is_adam(stage.optimizer) for stage in self.stages) and not changing(*objectives)
        if changing(*objectives) and any(stage.accumulate > 1 for stage in self.stages):
            raise UserError(
                "algorithm.accumulate: networks that take statistics of batches (batch norm) need them whole; set it to 1"
            )
        # Optimisers without tensor rates have theirs written by the host before every step, which a captured step would miss.
        capturable = not any("rate" in group for stage in self.stages for group in stage.optimizer.param_groups)
        self.mode: Mode = _possible(mode, compilable, capturable)
        self.steps_per_call = 1 if self.mode == "eager" else STEPS_PER_CALL
        self.keys: dict[str, tuple[str, ...]] = {}
        self.per_row: dict[str, Tensor] = {}
        """What the objectives of the last call, or calls together, said of each row, by stage: (times it took part, B)."""
        self._compiled_steps: dict[Any, Steps] = {}
        self._graphs: dict[Any, _GraphOfInputs] = {}
        self._drawing: dict[Any, _Graph] = {}

    def __call__(self, batch: Mapping[str, Any], indices: Tensor | None = None, *, first: int = 0) -> dict[str, Tensor]:
        """Take K updates and return the metrics of each stage that took part, (times it did, len(keys[stage])).

        Update k is on the rows of `batch` that `indices[k]` (B,) names, or on slice k of a batch (K, B, ...); with indices,
        what is sliced all the same, such as noise, is in `batch[EACH]`. `first` is the number of updates before these.
        """
        count = len(indices) if indices is not None else len(next(_leaves(batch)))
        return self.in_calls([(batch, indices)], count, first=first)

    def in_calls(
        self, calls: Iterable[tuple[Mapping[str, Any], Tensor | None]], count: int, *, first: int = 0
    ) -> dict[str, Tensor]:
        """Do the same for several batches of one shape, `count` updates each, and return the metrics of all together."""
        patterns, tables, found = [], [], dict[Pattern, Steps]()
        for batch, indices in calls:
            pattern = self._pattern(first, count)
            steps = found.get(pattern)
            if steps is None:
                steps = found[pattern] = self._ready(batch, indices, pattern)
            tables.append(steps(batch, indices))
            patterns.append(pattern)
            first += count
        return self._by_stage(patterns, tables)

    def drawing(self, rows: Rows, generators: Sequence[Generator], count: int, *, first: int = 0) -> dict[str, Tensor]:
        """Take K updates on the batch (K, B, ...) that `rows()` draws from `generators`; inside the capture, if there is one.

        `rows` must be a function of tensors that stay where they are, and the same one every time.
        """
        pattern = self._pattern(first, count)
        if not is_captured(self.mode):
            return self._by_stage([pattern], [self.steps(*rows(), pattern)])
        key = (id(rows), pattern)
        if key not in self._drawing:
            self._drawing[key] = _Graph(self, pattern, rows, generators)
        return self._by_stage([pattern], [self._drawing[key].run()])

    def _pattern(self, first: int, count: int) -> Pattern:
        key = (first % self._period, count)
        if key not in self._patterns:
            self._patterns[key] = tuple(tuple((first + k) % every == every - 1 for every in self._paces) for k in range(count))
        return self._patterns[key]

    def eager(self, rows: Mapping[str, Any], takes_part: Sequence[bool] | None = None) -> list[dict[str, Tensor]]:
        """Update on rows as they are and return each stage's metrics by name; everything takes part unless told."""
        *stages, ends = takes_part or [True] * len(self._paces)
        reports = []
        for stage, on in zip(self.stages, stages, strict=True):
            reports.append(self._eager_stage(stage, rows) if on else {})
        if self._after is not None and ends:
            with torch.no_grad():
                self._after()
        return reports

    def _eager_stage(self, stage: Stage, rows: Mapping[str, Any]) -> dict[str, Tensor]:
        inputs = [p for group in stage.optimizer.param_groups for p in group["params"] if p.requires_grad]
        may_skip = self.skip is not None or self._skip_non_finite
        before = [statistic.clone() for statistic in self._statistics] if may_skip else []
        stage.optimizer.zero_grad(set_to_none=False)
        parts = []
        for share, piece in stage.pieces(rows):
            loss, metrics = stage.objective(piece)
            (loss if share == 1 else share * loss).backward(inputs=inputs)
            parts.append((share, {LOSS: loss.detach(), **{key: value.detach() for key, value in metrics.items()}}))
        metrics = _mean(parts)
        loss = metrics.pop(LOSS)
        if self._decide is not None:
            with torch.no_grad():
                self._decide(metrics)
        norms = gradient_norms(stage.optimizer)
        skip = or_non_finite(self.skip, norms[""]) if self._skip_non_finite else self.skip
        clipped_step(stage.optimizer, stage.max_grad_norm, skip, norm=norms[""])
        if skip is not None:
            for statistic, value in zip(self._statistics, before, strict=True):
                statistic.copy_(torch.where(skip > 0, value, statistic))
        return self._report(stage, loss, metrics, norms)

    def _report(self, stage: Stage, loss: Tensor, metrics: Metrics, norms: Metrics) -> dict[str, Tensor]:
        named = stage.named(loss, metrics, norms)
        if self._skip_non_finite:
            named["train/skipped" if not stage.name else f"train/{stage.name}_skipped"] = or_non_finite(None, norms[""])
        return named

    def _stacked(self, steps: Sequence[Sequence[dict[str, Tensor]]]) -> tuple[Tensor, ...]:
        """One tensor for each stage, (times it took part, len(keys)); what belongs to rows is in the columns after these."""
        tables = []
        for position, stage in enumerate(self.stages):
            taken = [dict(step[position]) for step in steps if step[position]]
            if taken:
                of_rows = [report.pop(PER_ROW) for report in taken if PER_ROW in report]
                self.keys[stage.name] = tuple(taken[0])
                table = torch.stack([value for report in taken for value in report.values()]).view(len(taken), -1)
                tables.append(torch.cat([table, torch.stack(of_rows)], 1) if of_rows else table)
        return tuple(tables)

    def _by_stage(self, patterns: Sequence[Pattern], tables: Sequence[tuple[Tensor, ...]]) -> dict[str, Tensor]:
        """Return the tables of several calls by stage, and keep apart what belongs to rows."""
        found: dict[str, list[Tensor]] = {}
        for pattern, of_call in zip(patterns, tables, strict=True):
            names = [stage.name for position, stage in enumerate(self.stages) if any(step[position] for step in pattern)]
            for name, table in zip(names, of_call, strict=True):
                found.setdefault(name, []).append(table)
        joined = {name: parts[0] if len(parts) == 1 else torch.cat(parts) for name, parts in found.items()}
        self.per_row = {}
        for name, table in joined.items():
            if table.shape[1] > len(self.keys[name]):
                joined[name], self.per_row[name] = table.tensor_split([len(self.keys[name])], 1)
        return joined

    def _ready(self, batch: Mapping[str, Any], indices: Tensor | None, pattern: Pattern) -> Steps:
        """Return what takes a pattern's updates on batches like this one: captured, compiled or as they are."""
        if not is_captured(self.mode):
            return self._ready_uncaptured(batch, indices, pattern)
        key = _key(batch, indices, pattern)
        if key not in self._graphs:
            self._graphs[key] = _GraphOfInputs(self, batch, indices, pattern)
        return self._graphs[key].replay

    def _ready_uncaptured(self, batch: Mapping[str, Any], indices: Tensor | None, pattern: Pattern) -> Steps:
        return self._compiled(batch, indices, pattern) if is_compiled(self.mode) else partial(self._eager, pattern=pattern)

    def steps(self, batch: Mapping[str, Any], indices: Tensor | None, pattern: Pattern) -> tuple[Tensor, ...]:
        """Take a pattern's updates, compiled or as they are, and return each stage's table of metrics."""
        return self._ready_uncaptured(batch, indices, pattern)(batch, indices)

    def _eager(self, batch: Mapping[str, Any], indices: Tensor | None, pattern: Pattern) -> tuple[Tensor, ...]:
        steps = []
        for begin, end in self._stretches(pattern):
            rows = self._rows(batch, indices, begin, end)
            steps += [self.eager(each, takes_part) for each, takes_part in zip(rows, pattern[begin:end], strict=True)]
        return self._stacked(steps)

    def _stretches(self, pattern: Pattern) -> list[tuple[int, int]]:
        """Cut the updates where `after` runs: what only it changes stays the same within each stretch."""
        cuts = [k + 1 for k, step in enumerate(pattern) if step[-1] and self._after is not None]
        return [(begin, end) for begin, end in pairwise([0, *cuts, len(pattern)]) if begin < end]

    def _rows(self, batch: Mapping[str, Any], indices: Tensor | None, begin: int, end: int) -> list[Mapping[str, Any]]:
        """Return what the updates of a stretch are given."""
        found: list[Mapping[str, Any]]
        if indices is None:
            found = [_slice(batch, k) for k in range(begin, end)]
        else:
            stored, each = {key: value for key, value in batch.items() if key != EACH}, batch.get(EACH, {})
            found = [{**take(stored, indices[k]), **_slice(each, k)} for k in range(begin, end)]
        if self._complete is not None:
            found = [self._complete(rows) for rows in found]
        for stage in self.stages if len(found) > 1 else ():
            objective: Any = stage.objective
            names = getattr(objective, "reads_beforehand", ())
            if names:
                with torch.no_grad():
                    more = objective.beforehand(_joined([{name: rows[name] for name in names} for rows in found]))
                parts = {key: column.tensor_split(len(found)) for key, column in more.items()}
                found = [{**rows, **{key: part[k] for key, part in parts.items()}} for k, rows in enumerate(found)]
        return found

    # ---- compiled: losses, gradients, clipping, Adam and targets in one function of tensors ------------------------------

    def _compiled(self, batch: Mapping[str, Any], indices: Tensor | None, pattern: Pattern) -> Steps:
        key = _key(batch, indices, pattern)
        if key not in self._compiled_steps:
            self._states = [adam_state(stage.objective, stage.optimizer) for stage in self.stages]
            self._compiled_steps[key] = compile_apart(self._pure_steps, next(_leaves(batch)).device, pattern)
        return self._compiled_steps[key]

    def _pure_steps(self, batch: Mapping[str, Any], indices: Tensor | None, pattern: Pattern) -> tuple[Tensor, ...]:
        steps = []
        for begin, end in self._stretches(pattern):
            for rows, (*takes_part, ends) in zip(self._rows(batch, indices, begin, end), pattern[begin:end], strict=True):
                steps.append(
                    [
                        self._pure_stage(stage, state, rows) if on else {}
                        for stage, state, on in zip(self.stages, self._states, takes_part, strict=True)
                    ]
                )
                if self._after is not None and ends:
                    self._after()
        return self._stacked(steps)

    def _pure_stage(self, stage: Stage, state: dict[str, Any], rows: Mapping[str, Any]) -> dict[str, Tensor]:
        def loss_of(parameters: dict[str, Tensor], piece: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
            return functional_call(stage.objective, parameters, (piece,))

        gradients: dict[str, Tensor] = {}
        parts = []
        for share, piece in stage.pieces(rows):
            found, (loss, metrics) = grad_and_value(loss_of, has_aux=True)(state["parameters"], piece)
            gradients = {name: g if share == 1 else share * g + gradients.get(name, 0) for name, g in found.items()}
            parts.append((share, {LOSS: loss, **metrics}))
        metrics = _mean(parts)
        loss = metrics.pop(LOSS)
        if self._decide is not None:
            self._decide(metrics)
        squares = {name: gradient.square().sum() for name, gradient in gradients.items()}
        groups = dict.fromkeys(state["group"].values()) if len(set(state["group"].values())) > 1 else {}
        of_groups = {
            group: torch.stack([squares[name] for name, own in state["group"].items() if own == group]).sum().sqrt()
            for group in groups
        }
        norm = torch.stack([*squares.values()]).sum().sqrt()
        skip = or_non_finite(self.skip, norm) if self._skip_non_finite else self.skip
        scale = 1.0 if stage.max_grad_norm is None else (stage.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        scalars: dict[Any, tuple[Tensor, Tensor, Tensor]] = {}
        for name, gradient in gradients.items():
            alike = (state["group"][name], state["options"][name])
            if alike not in scalars:
                scalars[alike] = adam_scalars(state, name)
            adam_(state, name, gradient * scale, skip, scalars[alike])
        return self._report(stage, loss, metrics, {"": norm, **of_groups})

    # ---- captured: the eager or compiled step, once for each pattern ----------------------------------------------------

    def touched(self) -> list[Tensor]:
        """Every tensor that an update may change."""
        tensors: dict[int, Tensor] = {}
        for stage in self.stages:
            own = [p.data for group in stage.optimizer.param_groups for p in group["params"]]
            own += [v for state in stage.optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
            own += [group["lr"] for group in stage.optimizer.param_groups if isinstance(group["lr"], Tensor)]
            tensors |= {tensor.data_ptr(): tensor for tensor in own}
        tensors |= {tensor.data_ptr(): tensor for tensor in (*self._changed_after, *self._statistics)}
        return [*tensors.values(), *([] if self.skip is None else [self.skip])]


class _Graph:
    """K updates, captured as one CUDA graph, on rows that `rows()` finds: memory that stays where it is, or drawn anew."""

    def __init__(self, step: UpdateStep, pattern: Pattern, rows: Rows, generators: Sequence[Generator] = ()) -> None:
        """Warm up and capture; what that touches is put back, so that a captured run is the eager run."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        drawn, drawn_by_others = [generator.get_state() for generator in generators], torch.cuda.get_rng_state()
        with torch.cuda.stream(stream):
            fresh = [stage.optimizer for stage in step.stages if not stage.optimizer.state]
            touched = step.touched()
            before = [tensor.clone() for tensor in touched]
            for _ in range(WARM_UP_CALLS):
                step.steps(*rows(), pattern)
            for tensor, value in zip(touched, before, strict=True):
                tensor.copy_(value)
            for optimizer in fresh:  # moments that the warm-up made: back to nothing, in place
                for state in optimizer.state.values():
                    for value in state.values():
                        value.zero_()
        torch.cuda.current_stream().wait_stream(stream)
        for generator, state in zip(generators, drawn, strict=True):
            generator.set_state(state)
        torch.cuda.set_rng_state(drawn_by_others)  # which dropout reads
        self._graph, self._tables = capture(lambda: step.steps(*rows(), pattern), generators)

    def run(self) -> tuple[Tensor, ...]:
        """Take the updates and return copies of the metrics."""
        self._graph.replay()
        return tuple(table.clone() for table in self._tables)


class _GraphOfInputs(_Graph):
    """K updates on inputs that are copied to where the graph reads them."""

    def __init__(self, step: UpdateStep, batch: Mapping[str, Any], indices: Tensor | None, pattern: Pattern) -> None:
        self._batch, self._source = _clone_tree(batch), batch
        self._indices = None if indices is None else indices.clone()
        super().__init__(step, pattern, lambda: (self._batch, self._indices))

    def replay(self, batch: Mapping[str, Any], indices: Tensor | None) -> tuple[Tensor, ...]:
        """Copy the inputs in, run, and return copies of the metrics."""
        if indices is None or self._source is not batch:
            _copy_tree(self._batch, batch)
            self._source = batch
        if indices is not None:
            assert self._indices is not None
            self._indices.copy_(indices)
        return self.run()


def _possible(mode: Mode, compilable: bool, capturable: bool) -> Mode:
    """Return the wanted mode, or the nearest one that these optimisers allow."""
    if is_compiled(mode) and not compilable:
        mode = "captured" if is_captured(mode) else "eager"
    return mode if capturable or not is_captured(mode) else "eager"


def _mean(parts: Sequence[tuple[float, dict[str, Tensor]]]) -> dict[str, Tensor]:
    """Return the metrics of a batch from those of its pieces: weighed by their shares, or one after the other for rows."""
    if len(parts) == 1:
        return parts[0][1]
    return {
        key: torch.cat([metrics[key] for _, metrics in parts])
        if key == PER_ROW
        else torch.stack([share * metrics[key] for share, metrics in parts]).sum(0)
        for key in parts[0][1]
    }


def _key(batch: Mapping[str, Any], indices: Tensor | None, pattern: Pattern) -> tuple[Any, ...]:
    """Return what a compiled or captured call is made for."""
    return pattern, *(leaf.shape for leaf in _leaves(batch)), None if indices is None else indices.shape


def _cut(tree: Mapping[str, Any], begin: int, end: int) -> dict[str, Any]:
    return {key: _cut(value, begin, end) if isinstance(value, Mapping) else value[begin:end] for key, value in tree.items()}


def _joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows of several updates as those of one."""
    return {
        key: _joined([part[key] for part in parts]) if isinstance(value, Mapping) else torch.cat([part[key] for part in parts])
        for key, value in parts[0].items()
    }


def _slice(tree: Mapping[str, Any], k: int) -> dict[str, Any]:
    return {key: _slice(value, k) if isinstance(value, Mapping) else value[k] for key, value in tree.items()}


def _leaves(tree: Mapping[str, Any]) -> Iterator[Tensor]:
    for value in tree.values():
        if isinstance(value, Mapping):
            yield from _leaves(value)
        else:
            yield value


def _clone_tree(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _clone_tree(value) if isinstance(value, Mapping) else value.clone() for key, value in tree.items()}


def _copy_tree(target: Mapping[str, Any], source: Mapping[str, Any]) -> None:
    for key, value in target.items():
        if isinstance(value, Mapping):
            _copy_tree(value, source[key])
        else:
            value.copy_(source[key])
