"""A run in steps: set up, train to the next evaluation, save, load. For loops and tuners of one's own.

experiment = Experiment("CartPole-v1:ppo", "training.total_steps=50000")
while not experiment.is_finished:
    row = experiment.step()
    if row["eval/return_mean"] < 20:
        experiment.save("here")                                       # exact: weights, optimiser, buffers, random streams
        experiment = Experiment.load("here", "algorithm.learning_rate=1e-4")
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

from etude.compute.random_streams import GlobalGenerators, global_generators_kept
from etude.config.compose import compose
from etude.errors import UserError
from etude.runs.clone import clone_run, export_run, exported_run
from etude.runs.places import default_root
from etude.runs.run import Run
from etude.telemetry.names import Row
from etude.training import session
from etude.training.stored_config import load_config


class Experiment:
    """One run, trained a step at a time; in between it holds its environments, networks and the run's lock.

    A step is the training up to the next evaluation, from `every_steps` environment steps on if given (without evaluations: up
    to the next row). However it is cut into steps, saved, loaded or moved, the run is the one that `etude train` gives.
    """

    def __init__(
        self,
        spec: str | None = None,
        *words: str,
        config: Path | str | None = None,
        runs: Path | str | None = None,
        every_steps: int | None = None,
    ) -> None:
        _check(every_steps)
        composition = compose(spec, file=None if config is None else Path(config), words=words)
        self._hold(session.start(composition, root=_root(runs), quiet=True), every_steps)

    @classmethod
    def resume(cls, run: Run, *words: str, every_steps: int | None = None, trust: bool = False) -> Experiment:
        """Go on with a run where it stands; words change settings from here on."""
        _check(every_steps)
        experiment = cls.__new__(cls)
        experiment._hold(session.reopen(Run.open(run.path), words=words, quiet=True, trusted=trust), every_steps)
        return experiment

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *words: str,
        runs: Path | str | None = None,
        group: str | None = None,
        every_steps: int | None = None,
        trust: bool = False,
    ) -> Experiment:
        """Go on from what `save` wrote, in a new run; words change settings from here on. What was saved stays as it is.

        `trust`: settings that name code of one's own are honoured, also of a run from another machine.
        """
        saved = exported_run(Path(folder))
        load_config(saved, trusted=trust)  # refused before there is a copy of it
        run = clone_run(saved, _root(runs), group=group if group is not None else saved.record.get("group"))
        return cls.resume(run, *words, every_steps=every_steps, trust=trust)

    def _hold(self, training: session.Training, every_steps: int | None) -> None:
        self._training, self._every = training, every_steps
        self._rows: Iterator[Row] | None = iter(training)
        self._last: Row = {}
        self._generators: GlobalGenerators | None = None
        self._last_step = training.orchestrator.counters.env_steps

    @property
    def run(self) -> Run:
        """Its run directory."""
        return self._training.run

    @property
    def is_finished(self) -> bool:
        """Whether its budget is spent, or its phases are over."""
        return self._training.orchestrator.scheduler.is_finished

    @property
    def has_ended(self) -> bool:
        """Whether no step follows: it is finished, was closed, or a callback stopped it."""
        return self._rows is None

    def step(self) -> Row:
        """Train to the next evaluation and return its row of metrics."""
        if self._rows is None:
            raise UserError(f"run {self.run.id} has ended; a new one begins by Experiment(...), a saved one by Experiment.load")
        evaluates = self._training.config.evaluation.every_steps != 0
        for row in self._rows:
            self._last, self._generators = row, GlobalGenerators.now()
            measured = not evaluates or any(name.startswith("eval/") for name in row)
            if self.is_finished or (measured and row["env_steps"] >= self._last_step + (self._every or 0)):
                break
        self._last_step = int(self._training.orchestrator.counters.env_steps)
        if self.is_finished or self._training.outcome is not None:
            self._end()
        if self._training.signal is not None:
            # The run has saved itself; now the script's own answer: KeyboardInterrupt, its end, or its handler.
            signal.raise_signal(self._training.signal)
        return self._last

    def save(self, folder: Path | str) -> Path:
        """Write the exact state into `folder`, as a run directory of its own; returns its path. Training can go on."""
        if self._rows is not None and self._generators is not None:
            with global_generators_kept():
                self._generators.put_back()  # whatever the caller has drawn since is no part of the run
                self._training.orchestrator.save()
        elif self._rows is not None and not self.run.checkpoints().list():
            raise UserError(f"run {self.run.id} has not begun; save it after a step")
        return export_run(self.run, Path(folder), held=self._rows is not None)

    def close(self) -> None:
        """Save the run and stop; `Experiment.resume(run)` goes on."""
        self._end()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _end(self) -> None:
        rows, self._rows = self._rows, None
        if rows is None:
            return
        if self._generators is None:
            self._training.abandon()
        elif self.is_finished:
            for _ in rows:  # its last save, and its summary
                pass
        else:
            rows.close()  # type: ignore[attr-defined] # a generator: leaving it saves the run


def _check(every_steps: int | None) -> None:
    if every_steps is not None and every_steps < 1:
        raise UserError(f"every_steps={every_steps}: must be at least 1")


def _root(runs: Path | str | None) -> Path:
    return default_root() if runs is None else Path(runs)
