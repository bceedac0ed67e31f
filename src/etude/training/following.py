"""What the other ranks of a training do in a sitting: the same steps as the first, which alone has the run's files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from etude.compute.devices import out_of_memory
from etude.config.schema import Config
from etude.errors import EtudeError, NonFiniteError
from etude.orchestration.attached import Row
from etude.orchestration.orchestrator import Orchestrator
from etude.runs.run import Run
from etude.training.checkpoint_loading import load_checkpoint
from etude.training.sitting import Outcome, Training
from etude.training.stop_signals import stopping_on_signals
from etude.training.together import Together


class Following(Training):
    """One sitting of a rank that is not the first. Its rows are the first's."""

    def __init__(self, run: Run, config: Config, orchestrator: Orchestrator, together: Together) -> None:
        super().__init__(run, config, orchestrator, quiet=True, notes=[], stream=None, together=together)
        orchestrator.attach(sink=_Nowhere(), write_checkpoint=_write_nothing, run_dir=run.path)

    def __iter__(self) -> Iterator[Row]:
        orchestrator = self.orchestrator
        try:
            with stopping_on_signals(partial(orchestrator.interrupt, hurry=True), quiet=True) as received:
                self._generators.put_back()
                yield from self._followed()
            self.signal = received[0] if received else None
        except (MemoryError, RuntimeError) as error:
            told = out_of_memory(error)
            if told is None:
                raise
            raise EtudeError(told) from error
        finally:
            orchestrator.close()
        done = orchestrator.is_complete
        status = "finished" if done else "interrupted" if orchestrator.was_interrupted else "stopped"
        self.outcome = Outcome(self.run, status, orchestrator.stop_reason or "")

    def _followed(self) -> Iterator[Row]:
        while True:
            try:
                yield from self.orchestrator.rows()
                return
            except NonFiniteError:
                if self.config.training.on_nan != "rollback":
                    raise
                self._go_back()

    def _go_back(self) -> None:
        """Go back to the save that the first does, with the same random numbers of another course."""
        world, orchestrator = self._together.world, self.orchestrator
        found = self.run.checkpoints().find(world.from_first(str))
        load_checkpoint(orchestrator, found, self.config, force=True)
        orchestrator.rollbacks = world.from_first(int)
        orchestrator.streams.branch(orchestrator.rollbacks)


class _Nowhere:
    def write(self, rows: Sequence[dict[str, float]]) -> None:
        """The first writes them."""


def _write_nothing(parts: dict[str, Any], counters: dict[str, int], metadata: dict[str, Any], *, best: bool) -> Path:
    raise AssertionError("the first process writes checkpoints")
