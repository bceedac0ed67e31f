"""A sweep's file: every key with its type, its default and what it does. An unknown key is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from etude.config.constraints import Bounds, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from etude.config.source_file import SUFFIXES, SourceFile, read_file
from etude.config.validate import Validator
from etude.errors import ConfigError, UserError
from etude.tuning.space import Space, read_space

# Other systems' words for the same.
_ALIASES = {
    "base_config": "base",
    "parallel_jobs": "parallel",
    "parameters": "sweep",
    "trials": "n_trials",
    "num_samples": "n_trials",
}
_ALIASES |= {"max_failures": "retries", "population": "n_trials"}
# What only the beginning of a run reads, or what has the shape of what it has learnt.
_SHAPING = ("environment", "experiment", "network")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True)
class BaseConfig:
    """What every trial begins as, in the words of `etude train`."""

    spec: str | None = None
    """ENV:ALGO, or an experiment's name."""
    config: str | None = None
    """A config file, looked for beside the sweep's file and then in the current folder."""
    words: tuple[str, ...] = ()
    """Settings of every trial, such as training.total_steps=20000."""


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is wanted of a trial."""

    metric: str = "eval/return_mean"
    """Any metric or fact of a run: its last value counts, for evaluations that of the last one, never the best."""
    direction: Literal["max", "min"] = "max"
    """Whether more is better."""
    statistic: Literal["mean", "median", "iqm", "min", "max"] = "mean"
    """What the seeds of a trial come to."""


@dataclass(frozen=True)
class SamplerConfig:
    """Who proposes the next trial (method bayes)."""

    type: Literal["tpe", "gp", "cmaes"] = "tpe"
    """tpe: any space, cheap; gp: a Gaussian process, for few and costly trials; cmaes: evolution, for numbers only."""
    startup_trials: PositiveInt = 10
    """Random trials before it begins to model."""


@dataclass(frozen=True)
class PrunerConfig:
    """Which trials end early. Steps are evaluations: the first, the second, ..."""

    type: Literal["off", "median", "asha", "hyperband"] = "off"
    """median: worse than half of the others so far; asha: successive halving; hyperband: several of those."""
    startup_trials: NonNegativeInt = 5
    """median: no trial ends early before this many are complete."""
    warmup: NonNegativeInt = 0
    """median: no trial ends before this many evaluations."""
    least: PositiveInt = 1
    """asha, hyperband: evaluations that every trial has."""
    reduction: PositiveInt = 3
    """asha, hyperband: one of this many goes on at each rung."""

    def __post_init__(self) -> None:
        """Halving needs something to halve."""
        if self.reduction < 2:
            raise ValueError(f"reduction={self.reduction}: must be at least 2")


@dataclass(frozen=True)
class ResourcesConfig:
    """What one run takes. What is said is counted, and enforced."""

    cpus: PositiveInt | None = None
    """CPU threads of each run; as many run at once as there are CPUs for. Default: one thread each, not counted."""
    gpus: NonNegativeFloat | None = None
    """GPUs of each run, 0.5 for two runs on one; each sees only its own. Default: they are dealt out in turn; 0 hides them."""


@dataclass(frozen=True)
class TuneConfig:
    """Short runs first: each pauses at the rungs, and the promising ones go on, exactly where they stopped."""

    rungs: tuple[Annotated[float, Bounds(low=0, high=1, low_open=True)], ...] = (1 / 9, 1 / 3, 1.0)
    """Where runs pause, as shares of their budget; the last is 1."""
    reduction: PositiveInt = 3
    """One of this many goes on at each rung."""
    startup_trials: PositiveInt = 8
    """Random trials before results are modelled."""
    finalists: NonNegativeInt = 2
    """How many of the best are trained with the other seeds too, beside the defaults; the best mean wins."""
    total_steps: PositiveInt | None = None
    """Environment steps of the search, all runs together; the finals come on top."""

    def __post_init__(self) -> None:
        """Rungs go upwards, to the whole."""
        if not self.rungs or list(self.rungs) != sorted(set(self.rungs)) or self.rungs[-1] != 1:
            raise ValueError("rungs: shares of the budget that grow, the last of them 1")
        if self.reduction < 2:
            raise ValueError(f"reduction={self.reduction}: must be at least 2")


@dataclass(frozen=True)
class PbtConfig:
    """Population-based training: all trials train side by side, and the worst go on as perturbed copies of the best."""

    interval: PositiveInt | None = None
    """Environment steps between two comparisons. Default: a tenth of the budget."""
    quantile: Annotated[float, Bounds(low=0, high=0.5, low_open=True)] = 0.25
    """The share of the population that is given up at each comparison, and the share that is copied."""
    resample: Annotated[float, Bounds(low=0, high=1)] = 0.25
    """How likely a key of a copy is drawn anew instead of changed a little."""
    factors: tuple[PositiveFloat, ...] = (0.8, 1.2)
    """What a number may be multiplied by; of a list of choices a neighbour is taken."""

    def __post_init__(self) -> None:
        """A change needs a factor."""
        if not self.factors:
            raise ValueError("factors: at least one, such as [0.8, 1.2]")


@dataclass(frozen=True)
class SweepConfig:
    """One sweep, complete."""

    name: str = ""
    """What it is called, and the group of its runs. Default: the file's name."""
    description: str = ""
    """What it is for."""
    base: BaseConfig = BaseConfig()
    """What every trial begins as: ENV:ALGO, a config file, or a mapping of both and of words."""
    after: str | None = None
    """Another sweep, whose best values every trial begins with: a second stage."""
    method: Literal["grid", "random", "bayes", "pbt"] = "grid"
    """grid: every combination; random: drawn anew for each trial; bayes: proposed from what came before (extra: sweep); pbt: a
    population of n_trials, of which the worst go on as copies of the best."""
    sampler: SamplerConfig = SamplerConfig()
    """Who proposes, for bayes."""
    pruner: PrunerConfig = PrunerConfig()
    """Which trials end early (extra: sweep)."""
    pbt: PbtConfig = PbtConfig()
    """How a population is compared and changed, for pbt."""
    sweep: dict[str, Any] = field(default_factory=dict)
    """For each key: a list of values, a range {low, high, log, step, points}, or {sample_from: expression}."""
    words: tuple[str, ...] = ()
    """Settings that win over all others, the sweep's own values too; those of the command line are added to them."""
    seeds: tuple[NonNegativeInt, ...] = (1,)
    """The seeds of every trial, a run each: a list, or 1-5."""
    objective: tuple[ObjectiveConfig, ...] = (ObjectiveConfig(),)
    """What is wanted; of several, a front is searched."""
    n_trials: PositiveInt | None = None
    """How many trials. Default: of a grid all."""
    timeout_s: PositiveFloat | None = None
    """Stop after this many seconds; trials save themselves, and can go on later."""
    parallel: PositiveInt | None = None
    """Runs at once. Default: as many as there are CPUs for."""
    resources: ResourcesConfig = ResourcesConfig()
    """What one run takes."""
    retries: NonNegativeInt = 3
    """How often a run that was killed goes on from its last save, before its trial counts as failed."""
    tune: TuneConfig | None = None
    """Continue short runs instead of training each to its end, and mind what they cost (`etude tune`); the first seed
    searches."""
    seed: NonNegativeInt = 0
    """The root of what is drawn: trials of random and bayes, and of sample_from."""

    def __post_init__(self) -> None:
        """What can't be meant together."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name={self.name!r}: letters, digits, '.', '_' and '-', at most 80")
        if not self.objective:
            raise ValueError("objective: name at least one metric")
        if len(self.objective) > 1 and self.pruner.type != "off":
            raise ValueError("pruner: trials of several objectives can't be compared while they run; leave the pruner out")
        if len(self.objective) > 1 and self.method == "bayes" and self.sampler.type == "cmaes":
            raise ValueError("sampler: cmaes takes one objective; tpe and gp take several")
        if self.tune is not None and (self.method != "bayes" or self.pruner.type != "off" or len(self.objective) > 1):
            raise ValueError("tune: goes with method: bayes, one objective and no pruner; its rungs are its own")
        if self.method == "pbt":
            self._check_population()
        has_end = self.n_trials or self.timeout_s or (self.tune is not None and self.tune.total_steps)
        if self.method != "grid" and not has_end:
            raise ValueError(f"n_trials: say how many trials {self.method} has, or timeout_s")

    def _check_population(self) -> None:
        if self.n_trials is None or self.n_trials < 2:
            raise ValueError("n_trials: method pbt needs a population, at least 2")
        if len(self.objective) > 1 or self.pruner.type != "off":
            raise ValueError("method pbt goes with one objective and no pruner; it compares trials by itself")
        if len(self.seeds) > 1:
            raise ValueError("seeds: a member of a population is one run; give one seed")
        fixed = next((key for key in self.sweep if key.partition(".")[0] in _SHAPING), None)
        if fixed is not None:
            raise ValueError(f"sweep.{fixed}: method pbt changes runs that go on, and this can't be changed in one")

    @property
    def directions(self) -> list[Literal["max", "min"]]:
        """Which way each objective goes."""
        return [objective.direction for objective in self.objective]

    @property
    def space(self) -> Space:
        """What it searches."""
        return read_space(self.sweep)

    def identity(self) -> dict[str, Any]:
        """What makes its trials what they are: everything but how many, how fast, and what they are judged by."""
        from etude.config.validate import to_plain

        plain = to_plain(self)
        kept = ("base", "method", "sampler", "sweep", "words", "seeds", "tune", "seed")
        found = {key: plain[key] for key in kept}
        if self.tune is not None:
            found["tune"] = {key: plain["tune"][key] for key in ("rungs", "reduction", "startup_trials")}
        if self.method == "pbt":
            found |= {"pbt": plain["pbt"], "n_trials": plain["n_trials"], "objective": plain["objective"]}
        return found


def read_sweep(file: Path) -> SweepConfig:
    """Read a sweep's file; what is wrong names the file, the line and the key."""
    source = read_file(file)
    try:
        return build_sweep(source.data, default_name=file.stem, folder=file.parent)
    except ConfigError as error:
        raise ConfigError(*(_located(problem, source) for problem in error.problems)) from None


def build_sweep(data: Mapping[str, Any], *, default_name: str = "sweep", folder: Path | None = None) -> SweepConfig:
    """Check plain data as a sweep; a config file in it is looked for in `folder` first."""
    data = _in_our_words(data)
    data.setdefault("name", re.sub(r"[^A-Za-z0-9._-]+", "-", default_name))
    try:
        sweep = Validator().build(SweepConfig, data)
    except ConfigError as error:
        raise ConfigError(*(problem.removeprefix(": ").removeprefix(".") for problem in error.problems)) from None
    space = sweep.space
    if not space.searched and not space.derived:
        raise ConfigError("sweep: name at least one key, such as algorithm.learning_rate: [1e-4, 1e-3]")
    if sweep.method == "grid":
        space.grid_values()
    if sweep.base.config is not None and folder is not None:
        found = _find(sweep.base.config, folder)
        base = {"spec": sweep.base.spec, "config": str(found), "words": list(sweep.base.words)}
        return build_sweep({**data, "base": base})
    return sweep


def _in_our_words(data: Mapping[str, Any]) -> dict[str, Any]:
    ours: dict[str, Any] = {}
    for key, value in data.items():
        name = _ALIASES.get(key, key)
        if name in ours:
            raise ConfigError(f"{key}: is there as '{name}' too; leave one out")
        ours[name] = value
    base = ours.get("base")
    if isinstance(base, str):
        ours["base"] = {"config" if base.lower().endswith(SUFFIXES) else "spec": base}
    for name in ("sampler", "pruner"):
        if isinstance(ours.get(name), str):
            ours[name] = {"type": ours[name]}
        elif ours.get(name) is False:
            ours[name] = {"type": "off"}  # YAML reads a bare `off` as false
    if isinstance(ours.get("objective"), Mapping):
        ours["objective"] = [ours["objective"]]
    elif isinstance(ours.get("objective"), str):
        ours["objective"] = [{"metric": ours["objective"]}]
    if isinstance(ours.get("seeds"), str):
        from etude.training.seed_group import parse_seeds

        try:
            ours["seeds"] = parse_seeds(ours["seeds"])
        except UserError as error:
            raise ConfigError(str(error).replace("--seed", "seeds:")) from None
    elif isinstance(ours.get("seeds"), int):
        raise ConfigError(f"seeds={ours['seeds']}: a list, such as [{ours['seeds']}] for one seed, or 1-5 for five")
    return ours


def _find(name: str, folder: Path) -> Path:
    beside = folder / name
    return (beside if beside.exists() else Path(name)).resolve()


def _located(problem: str, source: SourceFile) -> str:
    key = re.match(r"[^\s:=]+", problem)
    name = re.sub(r"^(objective)\[0\]", r"\1", key.group()) if key else ""
    spellings = [name, *(old + name.removeprefix(new) for old, new in _ALIASES.items() if name.split(".")[0] == new)]
    line = next((line for spelling in spellings if (line := _line(source, spelling)) is not None), None)
    return f"{source.path}:{line}: {problem}" if line is not None else f"{source.path}: {problem}"


def _line(source: SourceFile, key: str) -> int | None:
    while key:
        if (line := source.line_of(key)) is not None:
            return line
        key = key.rpartition(".")[0]
    return None
