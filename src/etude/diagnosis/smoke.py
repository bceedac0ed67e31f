"""Tries everything briefly: random steps in every environment, a short training of every preset, every config composed."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from etude.config.compose import Composition, compose
from etude.config.environment_presets import environment_presets, variants
from etude.config.groups import preset_names
from etude.config.overrides import GROUPS
from etude.config.schema import Config
from etude.diagnosis.isolation import Call, Result, Tell, run_isolated
from etude.environments.catalog import catalog
from etude.environments.families import family_of
from etude.errors import EtudeError

_ENVS = 4
_EXPERIMENT, _NETWORK = "+experiment=", "network@network.actor="
_CONFIGS = Path("configs")
_GIVEN_UP = ("Etude reads", "Etude acts in", "moved", "deprecated", "out of date", "only supported on")


@dataclass(frozen=True)
class Outcome:
    """How one of many tries went."""

    name: str
    status: Literal["passed", "failed", "skipped"]
    detail: str
    """What was measured, what went wrong, or what is missing."""
    seconds: float
    output: str = ""
    """What it printed, where it failed."""


class NothingLearntError(EtudeError):
    """A training ended without a single update."""


def environment_ids(contains: str = "") -> list[str]:
    """Return every id that is known here and has this text in it; those of absent families are known by their example."""
    ids = []
    for listing in catalog():
        ids += [entry.id for entry in listing.entries] or ([listing.family.example] if listing.missing else [])
    return [name for name in dict.fromkeys(ids) if contains.lower() in name.lower()]


def preset_specs(contains: str = "") -> list[str]:
    """Return every tuned variant as ENV:VARIANT, and every experiment as +experiment=NAME."""
    specs = [f"{name}:{variant}" for name, preset in environment_presets().items() for variant in variants(preset)]
    specs += [f"{_EXPERIMENT}{name}" for name in preset_names("experiment")]
    return [spec for spec in specs if contains.lower() in spec.lower()]


def config_names(contains: str = "") -> list[str]:
    """Return all that can be composed: presets, experiments, networks as the word that chooses one, and files of ./configs."""
    names = [*preset_specs(), *(f"{_NETWORK}{name}" for name in preset_names("network"))]
    files = sorted(path for kind in ("yaml", "json") for path in _CONFIGS.rglob(f"*.{kind}"))
    # A folder of presets holds parts of configs; they are chosen by the names above. Sweeps are not of one run.
    names += [str(path) for path in files if path.relative_to(_CONFIGS).parts[0] not in (*GROUPS, "sweeps")]
    return [name for name in names if contains.lower() in name.lower()]


def try_environments(names: Sequence[str], *, steps: int, jobs: int, timeout_s: float) -> Iterator[Outcome]:
    """Take random steps in each environment, in its own process."""
    from etude.environments.check.probe import probe_steps

    calls = [Call(name, probe_steps, (name, steps)) for name in names]
    for result in run_isolated(calls, jobs=jobs, timeout_s=timeout_s, preload=["etude.environments.check.probe"]):
        facts = result.facts
        rate = facts.get("steps_per_s")
        measured = f"{facts.get('episodes', 0)} episodes, {rate:,.0f} steps/s, {facts.get('snapshot')}" if rate else ""
        yield _outcome(result, measured)


def try_presets(specs: Sequence[str], *, steps: int, jobs: int, timeout_s: float) -> Iterator[Outcome]:
    """Train each preset for a few steps and at least one update, in its own process; nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="etude-smoke-") as folder:
        calls = [Call(spec, train_briefly, (spec, steps, folder)) for spec in specs]
        for result in run_isolated(calls, jobs=jobs, timeout_s=timeout_s, preload=["etude.training.session"]):
            facts = result.facts
            yield _outcome(result, f"{facts.get('env_steps', 0)} steps, {facts.get('updates', 0)} updates")


def try_configs(names: Sequence[str]) -> Iterator[Outcome]:
    """Compose each config: every key, value, network, wrapper and option in it is checked, and nothing is built."""
    for name in names:
        began = time.monotonic()
        try:
            config = _composed(name).config
        except EtudeError as error:
            problems = str(error).splitlines()
            yield Outcome(name, "failed", problems[0], time.monotonic() - began, "\n".join(problems[1:]))
        else:
            says = f"{config.environment.id}:{config.algorithm.name}, {config.training.total_steps:,} steps"
            yield Outcome(name, "passed", says, time.monotonic() - began)


def _composed(name: str) -> Composition:
    if name.startswith(_NETWORK):
        return compose("CartPole-v1:ppo", words=[name])
    if name.startswith(_EXPERIMENT):
        return compose(words=[name])
    return compose(file=Path(name)) if Path(name).parts[0] == _CONFIGS.name else compose(name)


def train_briefly(tell: Tell, spec: str, steps: int, folder: str) -> None:
    """Train a preset for `steps` environment steps, its own sizes cut down so that it learns within them."""
    from etude.training import session

    given = [spec] if spec.startswith("+") else []
    name = None if given else spec
    config = compose(name, words=given).config
    family_of(config.environment.id).register()  # says what is missing before anything else is tried
    composition = compose(name, words=[*given, *brief_words(config, steps)])
    outcome = session.train(composition, root=Path(folder), quiet=True)
    counters = outcome.run.summary["counters"]
    tell(**counters)
    if not counters["updates"]:
        raise NothingLearntError(f"{spec}: {counters['env_steps']} steps, and not one update")


def brief_words(config: Config, steps: int) -> list[str]:
    """Return the settings that let an algorithm learn within a few steps; nothing else about it changes."""
    copies = min(config.environment.num_envs, _ENVS)
    rounds = max(1, steps // copies)
    repeat = math.prod(getattr(wrapper, "skip", 1) for wrapper in config.environment.wrappers)  # budgets count what is skipped
    settings: dict[str, Any] = {
        "environment.num_envs": copies,
        "environment.workers": min(config.environment.workers, 1),
        "training.total_steps": steps * repeat,
        "evaluation.every_steps": 0,
        "experiment.compile": "off",
        "experiment.device": "cpu",
        "logging.terminal": False,
    }
    learns_from_rollouts = config.algorithm.rollout_steps is not None
    known = {field.name for field in fields(config.algorithm)}
    shorter: dict[str, Any] = {
        "rollout_steps": min(16, rounds),
        "epochs": 1,
        "batch_size": 0.5 if learns_from_rollouts else min(16, steps // 4),
        "learning_starts": max(1, steps // 4),
        "train_every": max(1, rounds // 16),
        "gradient_steps": 1,
    }
    settings |= {f"algorithm.{key}": value for key, value in shorter.items() if key in known}
    for name, buffer in config.buffers.items():
        if hasattr(buffer, "capacity"):
            settings[f"buffers.{name}.capacity"] = min(buffer.capacity, max(1_000, 2 * steps))
    return [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()]


def _outcome(result: Result, measured: str) -> Outcome:
    if result.status == "done":
        return Outcome(result.name, "passed", measured, result.seconds)
    if result.status == "missing" or (result.status == "refused" and _is_not_for_us(result)):
        return Outcome(result.name, "skipped", result.detail, result.seconds)
    stage = result.facts.get("stage")
    where = f"in {stage}: " if stage else ""
    return Outcome(result.name, "failed", where + result.detail, result.seconds, result.output)


def _is_not_for_us(result: Result) -> bool:
    """Whether a space was refused by name, or the id is one that Gymnasium has given up."""
    return any(text in result.detail for text in _GIVEN_UP)
