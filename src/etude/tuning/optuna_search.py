"""Optuna as the searcher: its samplers propose, its pruners end trials early. What is known lies in our journal.

A trial's proposal follows from the seed, its number and what was known then; a study that is opened again is put back together
from the journal, event by event.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from etude.errors import MissingPackageError, UserError
from etude.tuning.space import Choices, Dimension, Range, Space, Values
from etude.tuning.spec import PrunerConfig, SamplerConfig
from etude.tuning.study import Direction, Searcher, State


def require_optuna() -> Any:
    """Return Optuna, quiet; an error with the way out where it is missing."""
    try:
        import optuna
    except ImportError:
        raise MissingPackageError("method bayes and pruners need Optuna: pip install 'etude[sweep]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextmanager
def _quietly() -> Iterator[None]:
    """Optuna warns of what it calls experimental; what is used here is tested here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class OptunaSearch:
    """An Optuna study in memory. `proposing` proposes in the sampler's place, where only the pruner is wanted."""

    def __init__(
        self,
        space: Space,
        directions: Sequence[Direction],
        *,
        seed: int = 0,
        sampler: SamplerConfig = SamplerConfig(),  # noqa: B008 - frozen
        pruner: PrunerConfig = PrunerConfig(),  # noqa: B008 - frozen
        name: str = "sweep",
        proposing: Searcher | None = None,
    ) -> None:
        self._optuna = require_optuna()
        self._seed, self._sampler, self._proposing, self._space = seed, sampler, proposing, space
        self._choices: dict[str, dict[str, Any]] = {
            key: {_label(value): value for value in dimension.values}
            for key, dimension in space.searched.items()
            if isinstance(dimension, Choices)
        }
        if proposing is None and sampler.type == "cmaes" and self._choices:
            raise UserError(f"sweep.{next(iter(self._choices))}: cmaes takes ranges of numbers only; use tpe or gp for choices")
        self._distributions = {key: self._distribution(dimension) for key, dimension in space.searched.items()}
        with _quietly():
            self._study = self._optuna.create_study(
                study_name=name,  # which hyperband's brackets go by
                directions=["maximize" if direction == "max" else "minimize" for direction in directions],
                sampler=self._make_sampler(0),
                pruner=self._make_pruner(pruner),
            )
        self._theirs: dict[int, int] = {}
        """Optuna's numbers of our trials."""
        self._handles: dict[int, Any] = {}

    def suggest(self, number: int) -> Values | None:
        """Let the sampler propose."""
        if self._proposing is not None:
            values = self._proposing.suggest(number)
            if values is not None:
                self.put_back(number, values)
            return values
        with _quietly():
            if self._sampler.type != "cmaes":  # whose state is in its sampler
                self._study.sampler = self._make_sampler(number)
            trial = self._study.ask(self._distributions)
        self._theirs[number], self._handles[number] = trial.number, trial
        return {key: self._ours(key, trial.params[key]) for key in self._space.searched}

    def put_back(self, number: int, values: Values) -> None:
        """Put a trial that was asked for earlier into the study, as one that runs."""
        if self._sampler.type == "cmaes" and self._proposing is None and self._replayed(number, values):
            return
        params = {key: _label(values[key]) if key in self._choices else values[key] for key in self._distributions}
        running = self._optuna.trial.TrialState.RUNNING
        with _quietly():
            trial = self._optuna.create_trial(state=running, params=params, distributions=self._distributions)
            self._study.add_trial(trial)
        self._theirs[number] = len(self._study.get_trials(deepcopy=False)) - 1

    def report(self, number: int, step: int, value: float) -> bool:
        """Tell the pruner, and ask it."""
        handle = self._handles.get(number)
        if handle is None:
            found = self._study.get_trials(deepcopy=False)[self._theirs[number]]
            handle = self._handles[number] = self._optuna.trial.Trial(self._study, found._trial_id)
        with _quietly():
            handle.report(value, step)
            return handle.should_prune()

    def end(self, number: int, state: State, objective: Sequence[float] | None) -> None:
        """Tell the sampler how it ended."""
        states = self._optuna.trial.TrialState
        theirs = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[state]
        self._handles.pop(number, None)
        with _quietly():
            self._study.tell(self._theirs[number], objective, state=theirs)

    def _replayed(self, number: int, values: Values) -> bool:
        """Ask an evolution again for what it proposed: its state follows from its seed and from what it was told."""
        with _quietly():
            trial = self._study.ask(self._distributions)
        found = {key: self._ours(key, trial.params[key]) for key in self._space.searched}
        if all(math.isclose(found[key], values[key], rel_tol=1e-9, abs_tol=1e-12) for key in found):
            self._theirs[number], self._handles[number] = trial.number, trial
            return True
        # Another version of Optuna, say: what was measured still counts, and the evolution begins anew from it.
        self._study.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)
        return False

    def _make_sampler(self, number: int) -> Any:
        samplers, startup = self._optuna.samplers, self._sampler.startup_trials
        seed = (self._seed * 1_000_003 + number) % 2**32
        with _quietly():
            if self._sampler.type == "gp":
                return samplers.GPSampler(seed=seed, n_startup_trials=startup)
            if self._sampler.type == "cmaes":
                return samplers.CmaEsSampler(seed=seed, n_startup_trials=startup, warn_independent_sampling=False)
            sampler = samplers.TPESampler(seed=seed, n_startup_trials=startup, multivariate=True, constant_liar=True)
        # Which keys there are is known; to find it in every trial that was would cost as much as all the rest.
        known = {key: found for key, found in self._distributions.items() if not found.single()}
        sampler.infer_relative_search_space = lambda study, trial: known  # type: ignore[method-assign] # as a subclass would
        return sampler

    def _make_pruner(self, pruner: PrunerConfig) -> Any:
        pruners = self._optuna.pruners
        if pruner.type == "median":
            return pruners.MedianPruner(n_startup_trials=pruner.startup_trials, n_warmup_steps=pruner.warmup)
        if pruner.type == "asha":
            return pruners.SuccessiveHalvingPruner(min_resource=pruner.least, reduction_factor=pruner.reduction)
        if pruner.type == "hyperband":
            return pruners.HyperbandPruner(min_resource=pruner.least, reduction_factor=pruner.reduction)
        return pruners.NopPruner()

    def _distribution(self, dimension: Dimension) -> Any:
        distributions = self._optuna.distributions
        if isinstance(dimension, Choices):
            return distributions.CategoricalDistribution([_label(value) for value in dimension.values])
        if dimension.integer:
            low, high, step = int(dimension.low), int(dimension.high), int(dimension.step or 1)
            return distributions.IntDistribution(low, high - (high - low) % step, log=dimension.log, step=step)
        with _quietly():  # of an end that no step meets
            return distributions.FloatDistribution(dimension.low, dimension.high, log=dimension.log, step=dimension.step)

    def _ours(self, key: str, value: Any) -> Any:
        if key in self._choices:
            return self._choices[key][value]
        dimension = self._space.searched[key]
        assert isinstance(dimension, Range)
        # To the last bit: a study that is put back together must know what it proposed.
        return int(value) if dimension.integer else float(value)


def _label(value: Any) -> str:
    """A choice as text, for Optuna's categories take no lists."""
    return json.dumps(value, sort_keys=True, default=str)


def importances(space: Space, direction: Direction, trials: Sequence[tuple[Mapping[str, Any], float]]) -> dict[str, float]:
    """Return how much of the difference between good and other trials each key explains, by PED-ANOVA; they add up to 1."""
    optuna = require_optuna()
    search = OptunaSearch(space, [direction])
    for number, (values, objective) in enumerate(trials):
        search.put_back(number, dict(values))
        search.end(number, "complete", [objective])
    with _quietly():
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        return dict(optuna.importance.get_param_importances(search._study, evaluator=evaluator))
