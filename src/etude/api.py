"""Etude from Python: the command line's verbs, with the same config and the same runs.

run = etude.start("CartPole-v1:ppo", "training.total_steps=50000")
for row in run:
    if row.get("eval/return_mean", 0) > 400:
        break                      # saved and stopped; another `for row in run` goes on
run.evaluate(100)
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from etude.acting.policy import Policy
from etude.buffers.last_paths import whole_paths
from etude.config.compose import compose
from etude.config.schema import Config, EnvironmentConfig
from etude.config.validate import Validator
from etude.environments.make import make_environment as _make
from etude.environments.vector import VectorEnvironment
from etude.errors import UserError
from etude.orchestration.evaluator import EvaluationResult
from etude.runs import run as stored
from etude.runs.places import default_root
from etude.runs.run_selection import select_run
from etude.saved_components.component_file import load_component as load_component
from etude.saved_components.component_file import save_component as save_component
from etude.telemetry.jsonl import read_rows
from etude.telemetry.names import Row
from etude.training import session, stored_config
from etude.training.experiment import Experiment as Experiment
from etude.using.evaluate import measure
from etude.using.play import play as play
from etude.using.stored_policy import open_policy
from etude.workflows.sampler import get as make_sampler  # noqa: F401 # a part of this interface


class Run(stored.Run):
    """A run that can be trained, stopped, continued, measured and read: one object for its whole life."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._prepared: session.Training | None = None
        self._training: session.Training | None = None

    def __iter__(self) -> Iterator[Row]:
        """Train, a row of metrics at a time, from where the run stands; leaving the loop saves it and stops."""
        yield from self._sitting(quiet=True)

    def resume(self, *words: str, quiet: bool = True) -> Run:
        """Train to the end from where the run stands; words change settings from here on."""
        for _ in self._sitting(words, quiet=quiet):
            pass
        return self

    def stop(self) -> None:
        """Ask a run that trains in another thread to save itself and stop; in a loop, `break` does it."""
        if self._training is not None:
            self._training.stop()

    def _sitting(self, words: Sequence[str] = (), *, quiet: bool) -> Iterator[Row]:
        training, self._prepared = self._prepared, None
        if training is None or words:
            training = session.reopen(self, words=words, quiet=quiet)
        self._training = training
        try:
            yield from training
        finally:
            self._training = None
        if training.signal is not None:
            # The run has saved itself; now the script's own answer: KeyboardInterrupt, its end, or its handler.
            signal.raise_signal(training.signal)

    def evaluate(self, episodes: int = 100, *, checkpoint: str = "last", seed: int = 0) -> EvaluationResult:
        """Measure the policy on fresh episodes, as `etude evaluate` does."""
        return _first(measure(open_policy(self, checkpoint), episodes, seed=seed))

    def last_paths(self, count: int | None = None) -> list[dict[str, Any]]:
        """Return the last whole episodes of training, the newest last, while it trains or of its last checkpoint.

        There are as many as training.keep_paths says, each a dict of tensors over its steps, with the keys of `etude.play`.
        """
        if self._training is not None and self._training.orchestrator.collector is not None:
            return self._training.orchestrator.collector.last_paths(count)
        kept = self.config.training.keep_paths
        if not kept:
            raise UserError(f"{self.id}: training.keep_paths=0: its paths were not kept")
        own: Any = self.checkpoints().newest_whole().load(["rank/0"])["rank/0"]
        saved = own["collector"].get("paths", {"rows": {}})
        return whole_paths(saved["rows"], kept if count is None else min(count, kept))

    def policy(self, checkpoint: str = "last", *, num_envs: int | None = None) -> tuple[Policy, VectorEnvironment]:
        """Return the policy and an environment like the one it was trained in."""
        return open_policy(self, checkpoint).with_environment(num_envs)

    @property
    def config(self) -> Config:
        """Every setting of the run."""
        return stored_config.load_config(self)

    @property
    def rows(self) -> list[Row]:
        """Every row of metrics so far."""
        return read_rows(self.metrics_path) if self.metrics_path.exists() else []

    def metric(self, name: str, against: str = "env_steps") -> tuple[list[float], list[float]]:
        """Return (x, y) of one metric, such as eval/return_mean, for a plot."""
        points = [(row[against], row[name]) for row in self.rows if name in row and against in row]
        return [x for x, _ in points], [y for _, y in points]


def start(
    spec: str | None = None, *words: str, config: Path | str | None = None, runs: Path | str | None = None, quiet: bool = True
) -> Run:
    """Begin a run of `ENV:ALGO` with `key=value` words, as `etude train` does; iterate it, or `resume` it, to train."""
    composition = compose(spec, file=None if config is None else Path(config), words=words)
    training = session.start(composition, root=_root(runs), quiet=quiet)
    run = Run(training.run.path)
    run._prepared = training
    return run


def train(
    spec: str | None = None, *words: str, config: Path | str | None = None, runs: Path | str | None = None, quiet: bool = True
) -> Run:
    """Begin a run and train it to its end."""
    return start(spec, *words, config=config, runs=runs, quiet=quiet).resume()


def open_run(run: stored.Run | str | Path, *, runs: Path | str | None = None) -> Run:
    """Return a run by @last, @best, its id, a unique prefix of it, its name, or its path."""
    found = run if isinstance(run, stored.Run) else select_run(run, _root(runs)).run
    return found if isinstance(found, Run) else Run(found.path)


def resume(run: stored.Run | str | Path, *words: str, runs: Path | str | None = None, quiet: bool = True) -> Run:
    """Continue a run exactly where it stopped; words change settings from here on."""
    return open_run(run, runs=runs).resume(*words, quiet=quiet)


def load_policy(
    run: stored.Run | str | Path, checkpoint: str | None = None, *, runs: Path | str | None = None, num_envs: int | None = None
) -> tuple[Policy, VectorEnvironment]:
    """Return a policy and an environment like the one it was trained in; a path may lead to a checkpoint, or a file of one.

    hub:OWNER/NAME is one that was published on Hugging Face, and is trusted no more than any stranger's run.
    """
    return open_policy(run, checkpoint, root=runs).with_environment(num_envs)


def evaluate(
    run: stored.Run | str | Path,
    episodes: int = 100,
    *,
    checkpoint: str | None = None,
    seed: int = 0,
    runs: Path | str | None = None,
) -> EvaluationResult:
    """Measure a policy on fresh episodes, as `etude evaluate` does; a path may lead to a checkpoint, or a file of one."""
    return _first(measure(open_policy(run, checkpoint, root=runs), episodes, seed=seed))


def make_environment(
    name: str,
    num_envs: int = 1,
    *,
    render_mode: str | None = None,
    wrappers: Sequence[Mapping[str, Any]] = (),
    training: bool = True,
    **kwargs: Any,
) -> VectorEnvironment:
    """Return `num_envs` copies of an environment, in the form workflows see it: in training, or else when evaluated."""
    data = {"id": name, "num_envs": num_envs, "wrappers": list(wrappers), "kwargs": kwargs}
    return _make(Validator().build(EnvironmentConfig, data, "environment"), render_mode=render_mode, training=training)


def _first(results: Mapping[str, EvaluationResult]) -> EvaluationResult:
    return next(iter(results.values()))


def _root(runs: Path | str | None) -> Path:
    return default_root() if runs is None else Path(runs)
