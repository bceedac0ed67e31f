"""From a sweep to what each of its trials is started with, in the words of `etude train`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from etude.config import aliases, overrides
from etude.config.compose import Composition, compose
from etude.config.layers import put
from etude.config.schema import Config
from etude.config.validate import to_plain
from etude.errors import ConfigError, EtudeError, UserError, did_you_mean
from etude.tuning.backend import Job, Needs
from etude.tuning.space import Space, Values
from etude.tuning.spec import SweepConfig

TRIED_AT_FIRST = 8
"""Trials that are composed before anything runs: if all of them are wrong, the request is."""


class Plan:
    """What the trials of a sweep are."""

    def __init__(self, sweep: SweepConfig) -> None:
        self.sweep = sweep
        fixed = {canonical(key) for key in flat(overrides.parse(sweep.words).values)}
        given = sweep.space
        self.overruled = tuple(key for key in (*given.searched, *given.derived) if canonical(key) in fixed)
        """Keys of the sweep that words have fixed."""
        self.space: Space = given.without(dict.fromkeys(self.overruled))
        repeated = [canonical(key) for key in (*given.searched, *given.derived)]
        twice = next((key for key in repeated if repeated.count(key) > 1), None)
        if twice is not None:
            raise ConfigError(f"sweep.{twice}: is there twice, by two names")

    @property
    def needs(self) -> Needs:
        """What each run takes."""
        return Needs(self.sweep.resources.cpus, self.sweep.resources.gpus)

    def words(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the words of a trial; later ones win."""
        sweep = self.sweep
        words = [*self._cadence, *sweep.base.words, *swept_words(settings)]
        threads = sweep.resources.cpus
        if threads is not None and not any(each.startswith("experiment.threads=") for each in (*words, *sweep.words)):
            words.append(f"experiment.threads={threads}")
        return [*words, *sweep.words]

    def group(self, number: int) -> str:
        """Return the group of a trial's runs."""
        return f"{self.sweep.name}/{number:04d}"

    def job(self, number: int, seed: int, settings: Mapping[str, Any], pause_at: int | None = None) -> Job:
        """Return one run of a trial."""
        base = self.sweep.base
        arguments = [*([] if base.spec is None else [base.spec]), *self.words(settings)]
        arguments += [] if base.config is None else [f"--config={base.config}"]
        return Job(self.group(number), seed, tuple(arguments), self.needs, pause_at)

    def compose(self, settings: Mapping[str, Any], *more: str) -> Composition:
        """Return the checked config of a trial."""
        base = self.sweep.base
        file = None if base.config is None else Path(base.config)
        words = [*self.words(settings), *more]
        if base.spec is None and file is None and not any(word.startswith("environment.id=") for word in words):
            raise UserError("base: a sweep says what every trial begins as, such as base: CartPole-v1:ppo, or a config file")
        return compose(base.spec, file=file, words=words)

    def look_up(self, key: str) -> Any:
        """Return the value of a key that is not searched, as every trial has it."""
        name = canonical(key)
        if name in self._said:
            return self._said[name]
        node: Any = self._base
        for part in name.split("."):
            if not isinstance(node, Mapping) or part not in node:
                known = sorted(flat(self._base))
                raise UserError(f"there is no setting {key}{did_you_mean(key, known)}")
            node = node[part]
        return node

    def check(self, first: list[Values]) -> None:
        """Refuse a sweep none of whose first trials can be started; single ones that can't are recorded when they fail."""
        from etude.environments.make import require_known  # which loads torch, and not all that make plans check them

        problem: EtudeError | None = None
        for settings in first[:TRIED_AT_FIRST]:
            try:
                config = self.compose(settings).config
                require_known(config.environment)
            except EtudeError as error:
                problem = problem or error
            else:
                self._check_objective(config)
                return
        if problem is not None:
            raise problem

    def _check_objective(self, config: Config) -> None:
        from etude.tuning.objectives import objective_problems  # as above

        if problems := [*objective_problems(self.sweep, config)]:
            raise ConfigError(*problems)

    @cached_property
    def interval(self) -> int:
        """Environment steps between two comparisons of a population."""
        return self.sweep.pbt.interval or max(1, self._population_config.training.total_steps // 10)

    @cached_property
    def _cadence(self) -> list[str]:
        """A population is compared by its evaluations: where nobody says when they come, they come at the comparisons."""
        if self.sweep.method != "pbt":
            return []
        every = self._population_config.evaluation.every_steps
        if every is not None and not 0 < every <= self.interval:
            raise ConfigError(
                f"evaluation.every_steps={every}: a population is compared every {self.interval} steps (pbt.interval), by "
                "evaluations; they must come as often"
            )
        return [f"evaluation.every_steps={self.interval}"] if every is None else []

    @cached_property
    def _population_config(self) -> Config:
        base = self.sweep.base
        file = None if base.config is None else Path(base.config)
        return compose(base.spec, file=file, words=[*base.words, *self.sweep.words]).config

    @cached_property
    def _said(self) -> dict[str, Any]:
        """What words say of settings, by key; those that win last."""
        values = overrides.parse([*self.sweep.base.words, *self.sweep.words]).values
        return {canonical(key): value for key, value in flat(values).items()}

    @cached_property
    def _base(self) -> dict[str, Any]:
        base = self.sweep.base
        file = None if base.config is None else Path(base.config)
        try:
            # Without the words: with them alone, and without what follows from them, it may not fit together.
            return to_plain(compose(base.spec, file=file).config)
        except EtudeError:
            return to_plain(self.compose({}).config)


def canonical(key: str) -> str:
    """Return our own spelling of a key: algorithm.lr is algorithm.learning_rate."""
    data: dict[str, Any] = {}
    put(data, key.lstrip("+"), 0)
    try:
        names = list(flat(aliases.normalize(data)[0]))
    except (ConfigError, TypeError, AttributeError, ValueError):
        return key
    return names[0] if len(names) == 1 else key


def swept_words(settings: Mapping[str, Any]) -> list[str]:
    """Return the words of a trial's own settings; names of the sweep's own are none."""
    return [word(key, value) for key, value in settings.items() if not key.startswith("_")]


def word(key: str, value: Any) -> str:
    """Return `key=value` in the grammar of words."""
    return f"{key}={literal(value)}"


def literal(value: Any) -> str:
    """Return a value in the grammar of words, which reads back as the same."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return overrides.quote(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(literal, value)) + "]"
    return repr(value)


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
