"""How updates run: eager, in NumPy, compiled, captured as a CUDA graph, or both. It is chosen here and nowhere else.

All ways take the same steps from the same state, but for the last bits of a number. Parameters, moments, rates and targets
are changed in place, so a run may go on in another way than it began.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from etude.components.networks.modes import changing, mode_dependent
from etude.components.networks.shared_statistics import share_statistics
from etude.compute.accelerate import Mode, is_captured, is_compiled
from etude.compute.counter import Counter
from etude.compute.noise import Noise
from etude.compute.regions import compiled_regions
from etude.compute.trees import Tree, at
from etude.compute.world import ALONE, World
from etude.errors import UserError
from etude.learning.optimizers import clipped_step, gradient_norms, or_non_finite
from etude.learning.rules import rule_of
from etude.learning.sources import Source
from etude.learning.update import Batch, Metrics, Out, Stage, Update, as_out, detached, mean_of

Due = tuple[bool, ...]
"""Which stages take part in an update; the last entry says whether `after` does."""
Before = Callable[[int], None]
STEPS_PER_CALL = 4
"""How many updates are worth putting into one compiled or captured call: fewer trips through Python, for a longer start."""


class Table(NamedTuple):
    """The metrics of a stage, a line for each update that it took part in."""

    keys: tuple[str, ...]
    values: Tensor
    """(updates, len(keys))"""


class Report(NamedTuple):
    """What one stage says of one update."""

    metrics: Metrics
    per_row: Metrics


def make_executor(
    update: Update,
    modules: Mapping[str, nn.Module],
    *,
    mode: Mode = "eager",
    generator: Generator | None = None,
    world: World = ALONE,
    keeping: Any = None,
) -> Executor:
    """Return what takes updates in the wanted mode, or in the nearest one that their optimisers allow.

    `modules` are the networks that the losses read; `generator` is where their noise comes from; `keeping` (an
    `etude.learning.compiled.Keeping`) says where compiled code is kept, if it may be.
    """
    if world.size > 1:
        if mode != "eager":  # what the ranks say to each other stands between gradient and step, amid what would be one call
            raise UserError(
                f"experiment.compile: {mode} updates don't run in several processes yet; set experiment.compile=off"
            )
        return Eager(update, modules, generator, world)
    from etude.learning.captured import Captured  # these build on what is here
    from etude.learning.compiled import Compiled
    from etude.learning.written import Written

    # Optimisers without tensor rates have theirs written by the host before every step, which a captured step would miss.
    on_host = any("rate" in group for stage in update.stages for group in stage.optimizer.param_groups)
    if update.is_eager or (is_captured(mode) and on_host):
        return Eager(update, modules, generator)
    if mode == "numpy":
        return Written(update, modules, generator) if Written.can_run(update) else Eager(update, modules, generator)
    known = all(rule_of(stage.optimizer) is not None for stage in update.stages)
    if is_compiled(mode) and update.is_compilable and known:
        plain: Executor = Compiled(update, modules, generator, keeping)
    else:
        plain = Eager(update, modules, generator, compiles_regions=is_compiled(mode) and not update.is_compilable)
    return Captured(plain) if is_captured(mode) else plain


class Executor(ABC):
    """Takes the updates of one algorithm, and counts them."""

    mode: Mode
    steps_per_call: int = STEPS_PER_CALL

    def __init__(
        self, update: Update, modules: Mapping[str, nn.Module], generator: Generator | None, world: World = ALONE
    ) -> None:
        self.update, self.generator, self.world = update, generator, world
        self.modules = nn.ModuleDict(dict(modules.items()))
        self.taken = Counter()
        """Updates so far: which stages are due depends on it."""
        self.takes = [stage.takes() for stage in update.stages]
        self._paces = (*(stage.every for stage in update.stages), update.after_every)
        self._patterns: dict[tuple[int, int], tuple[Due, ...]] = {}
        networks = list(self.modules.values())
        if world.size > 1:
            share_statistics(self.modules.modules(), world)
            world.broadcast_([*self.modules.parameters(), *self.modules.buffers()])
        # What a forward pass changes, if anything: a batch norm's statistics.
        self.statistics = [buffer for module in mode_dependent(*networks) for buffer in module.buffers(recurse=False)]
        if changing(*networks) and any(stage.accumulate > 1 for stage in update.stages):
            raise UserError(
                "algorithm.accumulate: networks that take statistics of batches (batch norm) need them whole; set it to 1"
            )

    @abstractmethod
    def run(self, source: Source, count: int, before: Before | None = None) -> dict[str, Table]:
        """Take `count` updates on a source's batches, and return the metrics of each stage that took part.

        `before` is called with the number of each update, from 0, before anything of it is drawn or computed.
        """

    @abstractmethod
    def steps(self, source: Source, columns: Mapping[str, Any], drawn: Tree, pattern: tuple[Due, ...]) -> Packed:
        """Take as many updates as the pattern has, on batches gathered from `columns`."""

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """Update once on a batch as it is, every stage taking part; returns the metrics by name."""
        reports = self.once(batch, (True,) * len(self._paces), Noise(self.generator))
        return {key: value for report in reports if report is not None for key, value in report.metrics.items()}

    def once(self, batch: Batch, due: Due, noise: Noise) -> list[Report | None]:
        """Update once, one operation after the other, and return what each stage says that takes part."""
        update, reports = self.update, list[Report | None]()
        carry: dict[str, Any] = {}
        for position, stage in enumerate(update.stages):
            if not due[position]:
                reports.append(None)
                continue
            inputs = [p for group in stage.optimizer.param_groups for p in group["params"] if p.requires_grad]
            before = [statistic.clone() for statistic in self.statistics] if self._may_skip else []
            stage.optimizer.zero_grad(set_to_none=False)
            parts, state = list[tuple[float, Out]](), stage.state
            for number, (share, piece, carried) in enumerate(stage.pieces(batch, carry)):
                own_noise = noise if share == 1 else noise.of_piece(number)
                out = as_out(stage.loss(piece, **self.given(position, carried, state, own_noise)))
                (out.loss if share == 1 else share * out.loss).backward(inputs=inputs)
                parts.append((share, detached(out)))
                state = {**state, **parts[-1][1].state} if out.state else state
            out = mean_of(parts) if self.world.size == 1 else self._of_all_ranks(stage, mean_of(parts))
            with torch.no_grad():
                if stage.decide is not None:
                    stage.decide(out.metrics)
                norms = gradient_norms(stage.optimizer)
                skip = self.skipped(norms[""])
                groups = norms if stage.clips_groups and len(norms) > 1 else None
                clipped_step(stage.optimizer, stage.max_grad_norm, skip, norm=norms[""], norms=groups)
                if skip is not None:
                    for statistic, value in zip(self.statistics, before, strict=True):
                        statistic.copy_(torch.where(skip > 0, value, statistic))
                self.settle(stage, out, skip, inputs)
            carry |= out.carry
            reports.append(self.reported(stage, out, norms, batch, skip))
        if update.after is not None and due[-1]:
            with torch.no_grad():
                update.after()
        return reports

    @torch.no_grad()
    def _of_all_ranks(self, stage: Stage, out: Out) -> Out:
        """Average over the ranks, in one bucket: gradients, what is said and decided by, own tensors, and whether to skip."""
        gradients = [p.grad for group in stage.optimizer.param_groups for p in group["params"] if p.grad is not None]
        flags = [] if self.update.skip is None else [self.update.skip]
        own = {name: value for name, value in out.state.items() if value.is_floating_point()}
        said = [*gradients, *flags, *own.values(), out.loss, *out.metrics.values()]
        means = iter(self.world.mean(said))
        for gradient in gradients:
            gradient.copy_(next(means))
        for flag in flags:
            flag.copy_(next(means) > 0)  # one rank is enough
        state = {**out.state, **{name: next(means).to(value.dtype) for name, value in own.items()}}
        return out._replace(state=state, loss=next(means), metrics={name: next(means) for name in out.metrics})

    def given(self, position: int, carry: Mapping[str, Any], state: Mapping[str, Tensor], noise: Noise) -> dict[str, Any]:
        """Return what a stage's loss takes besides the batch."""
        takes = self.takes[position]
        return {name: what for name, what in (("carry", carry), ("state", state), ("noise", noise)) if name in takes}

    def settle(self, stage: Stage, out: Out, skip: Tensor | None, parameters: Sequence[Tensor]) -> None:
        """Write back the stage's own tensors and let what follows its step follow, unless that was skipped."""
        for name, value in out.state.items():
            own = stage.state[name]
            own.copy_(value if skip is None else torch.where(skip > 0, own, value))
        before = [] if skip is None or not stage.after_step else [parameter.clone() for parameter in parameters]
        for follow in stage.after_step:
            follow()
        for parameter, value in zip(parameters, before, strict=False):
            assert skip is not None
            parameter.copy_(torch.where(skip > 0, value, parameter))

    def skipped(self, norm: Tensor) -> Tensor | None:
        """Return 1 where a step leaves everything as it is; None where no step ever does."""
        return or_non_finite(self.update.skip, norm) if self.update.skip_non_finite else self.update.skip

    def reported(self, stage: Stage, out: Out, norms: Metrics, batch: Batch, skip: Tensor | None) -> Report:
        """Return what a stage says of its step. Columns that learning rewrites stay as they were where it was skipped."""
        metrics = stage.named(out, norms)
        if self.update.skip_non_finite:
            name = f"train/{stage.name}_skipped" if stage.name else "train/skipped"
            metrics[name] = or_non_finite(None, norms[""])
        rows = out.per_row
        if skip is not None:
            rows = {name: torch.where(skip > 0, batch[name], new) if name in batch else new for name, new in rows.items()}
        return Report(metrics, rows)

    def due(self, count: int) -> tuple[Due, ...]:
        """Return what takes part in each of the next updates."""
        key = (self.taken.value % math.lcm(*self._paces), count)
        if key not in self._patterns:
            self._patterns[key] = tuple(tuple((key[0] + k) % n == n - 1 for n in self._paces) for k in range(count))
        return self._patterns[key]

    def draws_inside(self, source: Source) -> bool:
        """Whether drawing is part of a call."""
        return False

    def is_over(self) -> bool:
        """Whether nothing more of a call need be computed, as far as the host can see for free."""
        skip = self.update.skip
        return self.update.skip_lasts and skip is not None and skip.device.type == "cpu" and bool(skip)

    def touched(self) -> list[Tensor]:
        """Return every tensor that an update may change."""
        update, found = self.update, list[Tensor]()
        for stage in update.stages:
            groups = stage.optimizer.param_groups
            found += [parameter.data for group in groups for parameter in group["params"]]
            found += [value for own in stage.optimizer.state.values() for value in own.values() if isinstance(value, Tensor)]
            found += [group["lr"] for group in groups if isinstance(group["lr"], Tensor)]
            found += stage.state.values()
        found += [*self.statistics, *(() if update.after is None else update.after.tensors)]
        return [*{tensor.data_ptr(): tensor for tensor in found}.values(), *([] if update.skip is None else [update.skip])]

    @property
    def _may_skip(self) -> bool:
        return self.update.skip is not None or self.update.skip_non_finite

    def state_dict(self) -> dict[str, Any]:
        """Return how many updates were taken."""
        return {"taken": self.taken.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting."""
        self.taken.load_state_dict(state["taken"])


class Eager(Executor):
    """One operation after the other, as the losses are written; regions of them may be compiled by themselves."""

    mode = "eager"

    def __init__(
        self,
        update: Update,
        modules: Mapping[str, nn.Module],
        generator: Generator | None,
        world: World = ALONE,
        *,
        compiles_regions: bool = False,
    ) -> None:
        super().__init__(update, modules, generator, world)
        self.compiles_regions = compiles_regions

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """Update once on a batch as it is, every stage taking part; returns the metrics by name."""
        with compiled_regions(self.compiles_regions):
            return super().learn(batch)

    def run(self, source: Source, count: int, before: Before | None = None) -> dict[str, Table]:
        """Take `count` updates on a source's batches, and return the metrics of each stage that took part."""
        reports = []
        with compiled_regions(self.compiles_regions):
            for drawn in draws(source, count, 1, before):
                if self.is_over():
                    break
                (due,), batch = self.due(1), source.gather(source.columns, at(drawn, 0))
                reports.append(self.once(batch, due, Noise(self.generator)))
                self.taken.value += 1
                source.learned(drawn, per_row_of(reports[-1:]))
        return tables_of(self.update.stages, reports)

    def steps(self, source: Source, columns: Mapping[str, Any], drawn: Tree, pattern: tuple[Due, ...]) -> Packed:
        """Take as many updates as the pattern has, on batches gathered from `columns`."""
        batches = (source.gather(columns, at(drawn, k)) for k in range(len(pattern)))
        with compiled_regions(self.compiles_regions):
            reports = [self.once(batch, due, Noise(self.generator)) for batch, due in zip(batches, pattern, strict=True)]
        return packed(self.update.stages, reports)


class Packed(NamedTuple):
    """What several updates say, as tensors that compiled and captured code can return."""

    names: tuple[str, ...]
    """Of the stages that took part."""
    keys: tuple[tuple[str, ...], ...]
    rows: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    """A table for each stage, then what losses said of each row."""

    def tables(self) -> dict[str, Table]:
        """Return the metrics by stage."""
        return {name: Table(keys, values) for name, keys, values in zip(self.names, self.keys, self.tensors, strict=False)}

    def per_row(self) -> dict[str, Tensor]:
        """Return what losses said of each row, (updates, B) each."""
        return dict(zip(self.rows, self.tensors[len(self.names) :], strict=True))


def packed(stages: Sequence[Stage], reports: Sequence[Sequence[Report | None]]) -> Packed:
    """Return what several updates say as a few tensors."""
    tables, rows = tables_of(stages, reports), per_row_of(reports)
    tensors = (*(table.values for table in tables.values()), *rows.values())
    return Packed(tuple(tables), tuple(table.keys for table in tables.values()), tuple(rows), tensors)


def merged(calls: Sequence[Packed]) -> Packed:
    """Return what several calls say, one after the other, as if they had been one."""
    tables: dict[str, tuple[tuple[str, ...], list[Tensor]]] = {}
    rows: dict[str, list[Tensor]] = {}
    for call in calls:
        for name, table in call.tables().items():
            tables.setdefault(name, (table.keys, []))[1].append(table.values)
        for name, values in call.per_row().items():
            rows.setdefault(name, []).append(values)
    tensors = (*(torch.cat(parts) for _, parts in tables.values()), *(torch.cat(parts) for parts in rows.values()))
    return Packed(tuple(tables), tuple(keys for keys, _ in tables.values()), tuple(rows), tensors)


def run_in_calls(executor: Executor, source: Source, count: int, before: Before | None = None) -> dict[str, Table]:
    """Take `count` updates, several in each call of `executor.steps`; one by one where something comes before each."""
    size = size_of_calls(source, count, executor.steps_per_call) if before is None else 1
    found: dict[str, list[Table]] = {}
    for drawn in draws(source, count, size, before, inside=executor.draws_inside(source)):
        if executor.is_over():
            break
        said = executor.steps(source, source.columns, drawn, executor.due(size))
        executor.taken.value += size
        for name, table in said.tables().items():
            found.setdefault(name, []).append(table)
        source.learned(drawn, said.per_row())
    return {name: Table(parts[0].keys, torch.cat([part.values for part in parts])) for name, parts in found.items()}


def draws(source: Source, count: int, size: int, before: Before | None = None, *, inside: bool = False) -> Iterator[Tree]:
    """Yield what tells the batches of `size` updates at a time, drawn for as many together as the source allows.

    Where drawing is part of the call, there is nothing to tell.
    """
    together = size if source.follows_learning or before is not None else max(size, source.at_once // size * size)
    for first in range(0, count, together):
        held = min(together, count - first)
        if before is not None:
            before(first)
        drawn = None if inside else source.draw(held)
        for begin in range(0, held, size):
            yield drawn if inside or held == size else at(drawn, slice(begin, begin + size))


def size_of_calls(source: Source, count: int, most: int = STEPS_PER_CALL) -> int:
    """Return how many updates to take in one call. A run is cut only between a source's units, so no cut changes a bit."""
    size = 1 if source.follows_learning else math.gcd(source.unit, most)
    return size if count % size == 0 else 1


def tables_of(stages: Sequence[Stage], reports: Sequence[Sequence[Report | None]]) -> dict[str, Table]:
    """Return the metrics of each stage over several updates."""
    tables = {}
    for position, stage in enumerate(stages):
        said = [report[position] for report in reports]
        taken = [report for report in said if report is not None]
        if taken:
            values = torch.stack([value for report in taken for value in report.metrics.values()])
            tables[stage.name] = Table(tuple(taken[0].metrics), values.view(len(taken), -1))
    return tables


def per_row_of(reports: Sequence[Sequence[Report | None]]) -> dict[str, Tensor]:
    """Return what losses said of each row, (updates, B) each."""
    found: dict[str, list[Tensor]] = {}
    for report in reports:
        for said in report:
            if said is not None:
                for name, values in said.per_row.items():
                    found.setdefault(name, []).append(values)
    return {name: torch.stack(values) for name, values in found.items()}
