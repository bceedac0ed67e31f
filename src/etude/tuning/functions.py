"""Searches over plain Python functions, by the same study as sweeps of runs: no process, no run directory.

best = optimise(lambda x, y: (x - 1) ** 2 + y**2, {"x": {"low": -5.0, "high": 5.0}, "y": [0, 1, 2]}, direction="min", trials=50)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from etude.errors import EtudeError, UserError
from etude.tuning.searchers import make_searcher
from etude.tuning.spec import build_sweep
from etude.tuning.study import Direction, Study, Trial

Method = Literal["grid", "random", "bayes"]


def make_study(
    space: Mapping[str, Any],
    *,
    method: Method = "bayes",
    sampler: str = "tpe",
    pruner: str = "off",
    directions: Sequence[Direction] = ("max",),
    seed: int = 0,
    state: Path | str | None = None,
) -> Study:
    """Return a study of a space that is written as in a sweep's file; with `state`, a file, it goes on where it was."""
    sweep = build_sweep(
        {
            "sweep": dict(space),
            "method": method,
            "sampler": sampler,
            "pruner": pruner,
            "seed": seed,
            "objective": [{"direction": direction} for direction in directions],
            "n_trials": 1,  # asked for one at a time
        }
    )
    identity = {key: value for key, value in sweep.identity().items() if key not in ("base", "words", "seeds")}
    journal = None if state is None else Path(state)
    searcher, directions = make_searcher(sweep, sweep.space), sweep.directions
    # A function's trial may take microseconds, and to wait for the disk each time milliseconds.
    return Study(sweep.space, searcher, directions, seed=seed, journal=journal, identity=identity, durable=False)


def optimise(
    function: Callable[..., float | Sequence[float]],
    space: Mapping[str, Any],
    *,
    trials: int,
    direction: Direction | Sequence[Direction] = "max",
    **options: Any,
) -> Study:
    """Call `function(**settings)` for each of `trials` trials, and return the study; `study.best(1)[0]` is the best trial.

    An error of the function is that trial's, and the search goes on. The options are those of `make_study`. Dots of keys become
    underscores in the function's arguments.
    """
    directions: Sequence[Direction] = [direction] if isinstance(direction, str) else direction  # type: ignore[list-item] # narrowed to one word
    study = make_study(space, directions=directions, **options)
    for trial in [trial for trial in study.trials if not trial.ended]:
        _try(study, trial, function)
    while len(study.trials) < trials and (trial := study.ask()) is not None:
        _try(study, trial, function)
    return study


def _try(study: Study, trial: Trial, function: Callable[..., float | Sequence[float]]) -> None:
    try:
        found = function(**{key.replace(".", "_"): value for key, value in trial.settings.items()})
    except (ArithmeticError, ValueError, RuntimeError, LookupError, TypeError, EtudeError) as error:
        study.fail(trial, f"{type(error).__name__}: {error}")
    else:
        study.complete(trial, [found] if isinstance(found, int | float) else list(found))


class AutoTuner:
    """Proposes configs and learns from results, in the rhythm of whoever calls it; with `state`, a file, across processes."""

    def __init__(self, space: Mapping[str, Any], *, direction: Direction = "max", **options: Any) -> None:
        self.study = make_study(space, directions=[direction], **options)

    def suggest_next_config(self, history: Sequence[tuple[Mapping[str, Any], float]] = ()) -> dict[str, Any]:
        """Return settings to try next. `history` is what is known from elsewhere: pairs of settings and performance."""
        for config, performance in history[self._from_elsewhere :]:
            values = {key: config[key] for key in self.study.space.searched}
            trial = self.study.ask(values)
            assert trial is not None
            self.study.complete(trial, [performance], elsewhere=True)
        trial = self.study.ask()
        if trial is None:
            raise UserError("every point of the grid has been tried")
        return dict(trial.settings)

    def update_with_result(self, config: Mapping[str, Any], performance: float) -> None:
        """Say what a suggested config came to."""
        waiting = [trial for trial in self.study.trials if not trial.ended and trial.settings == dict(config)]
        if not waiting:
            raise UserError(f"{dict(config)}: not a config that was suggested and waits for its result")
        self.study.complete(waiting[0], [performance])

    @property
    def best_config(self) -> dict[str, Any] | None:
        """The best settings so far."""
        best = self.study.best(1)
        return dict(best[0].settings) if best else None

    @property
    def _from_elsewhere(self) -> int:
        """How much of a history has been taken in already."""
        return sum(bool(trial.facts.get("elsewhere")) for trial in self.study.trials)
