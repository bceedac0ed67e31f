"""Who proposes trials: every point of a grid, random points, or Optuna."""

from __future__ import annotations

from collections.abc import Sequence

from etude.tuning.space import Space, Values
from etude.tuning.spec import SweepConfig
from etude.tuning.study import Searcher, State


class GridSearch:
    """Every combination, in order."""

    def __init__(self, space: Space) -> None:
        self._points = space.grid()

    def suggest(self, number: int) -> Values | None:
        """Return the point of that number."""
        return self._points[number] if number < len(self._points) else None

    def put_back(self, number: int, values: Values) -> None:
        """Nothing follows from it."""

    def report(self, number: int, step: int, value: float) -> bool:
        """Let it go on."""
        return False

    def end(self, number: int, state: State, objective: Sequence[float] | None) -> None:
        """Nothing follows from it."""


class RandomSearch(GridSearch):
    """A point for each number, which nothing but the seed decides."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed

    def suggest(self, number: int) -> Values:
        """Return the point of that number."""
        return self._space.draw(self._seed, number)


def make_searcher(sweep: SweepConfig, space: Space) -> Searcher:
    """Return the searcher that a sweep asks for; one that prunes is Optuna's, whoever proposes."""
    if sweep.tune is not None:
        from etude.tuning.cost_search import CostAwareSearch
        from etude.tuning.optuna_search import require_optuna

        require_optuna()
        return CostAwareSearch(space, sweep.directions[0], seed=sweep.seed, startup_trials=sweep.tune.startup_trials)
    proposing: Searcher | None = None
    if sweep.method == "grid":
        proposing = GridSearch(space)
    elif sweep.method in ("random", "pbt"):
        proposing = RandomSearch(space, sweep.seed)
    if proposing is not None and sweep.pruner.type == "off":
        return proposing
    from etude.tuning.optuna_search import OptunaSearch

    parts = {"sampler": sweep.sampler, "pruner": sweep.pruner, "proposing": proposing}
    return OptunaSearch(space, sweep.directions, seed=sweep.seed, name=sweep.name, **parts)
