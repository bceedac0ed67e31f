"""The command line that is launched: read, checked before it waits in a queue, and dealt out to tasks."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cyclopts import CycloptsError

from etude.cli.options import at_least
from etude.errors import MissingPackageError, UserError
from etude.launching.job import Job, Resources, check_name, job_name, parse_memory, parse_time

LAUNCHED = ("train", "resume", "sweep")
_MOST_CHECKED = 50
# What makes no sense without a terminal, or is the launcher's to say.
_NOT_THERE = {"debug": "--debug", "print_config": "--print-config", "profile": "--profile", "parallel": "--parallel"}


def read_job(
    words: Sequence[str],
    *,
    runs: Path | None,
    each: Sequence[str] | None = None,
    cpus: int | None = None,
    gpus: int = 0,
    memory: str | None = None,
    time: str | None = None,
    at_once: int | None = None,
    name: str | None = None,
    unchecked: bool = False,
    elsewhere: bool = False,
) -> Job:
    """Return the job that the words ask for; everything that can be wrong with them is found here.

    `elsewhere` is a machine that sees neither these runs nor this disk.
    """
    from etude.cli.places import runs_root

    at_least(1, cpus=cpus, at_once=at_once)
    at_least(0, gpus=gpus)
    needs = Resources(cpus, gpus, None if memory is None else parse_memory(memory), None if time is None else parse_time(time))
    given = _arguments(words)
    if elsewhere:
        _refuse_what_is_here(words[0], given)
    root = runs_root(runs or given.get("runs")).absolute()
    words = _without(words, "--runs")
    if words[0] == "resume" and not unchecked:
        words = _with_the_run_by_its_id(words, given["run"], root)
    tasks = _tasks(words, given, each or ())
    if name is not None:
        check_name(name)
    named = name or job_name(tasks, root)
    if len(tasks) > 1 and words[0] == "train" and given.get("group") is None and not _sets(words, "experiment.group"):
        tasks = [[*task, f"--group={named}"] for task in tasks]
    if not unchecked:
        _check_settings(tasks, root)
    return Job(named, tuple(map(tuple, tasks)), needs, root, Path.cwd(), at_once)


def _arguments(words: Sequence[str]) -> dict[str, Any]:
    """Read the words as the verb itself will: a misspelt option is found now, not in an hour."""
    from etude.cli import app

    if not words or words[0] not in LAUNCHED or words[0] not in set(app):
        known = [verb for verb in LAUNCHED if verb in set(app)]
        said = f"{words[0]!r} can't be launched" if words else "nothing to launch"
        raise UserError(f"{said}: after the launcher's options comes {' or '.join(known)}, as after `etude`")
    try:
        _, bound, _ = app.parse_args(list(words), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise UserError(f"{' '.join(str(error).split())} (see `etude {words[0]} --help`)") from None
    given = dict(bound.arguments)
    for key, option in _NOT_THERE.items():
        if given.get(key):
            raise UserError(f"{option} is for a terminal, or for one machine: leave it out of what is launched")
    return given


def _refuse_what_is_here(verb: str, given: dict[str, Any]) -> None:
    if verb == "resume":
        raise UserError("that machine has other runs: launch the `train` words again, and they go on with theirs")
    for option in ("from_run", "init_from"):
        if given.get(option) is not None:
            raise UserError(f"--{option.replace('_', '-')} {given[option]}: that machine has other runs than this one")
    config = given.get("config")
    if config is not None and (Path(config).is_absolute() or ".." in Path(config).parts):
        raise UserError(f"--config {config}: only this folder is copied there; put the file into it")


def _with_the_run_by_its_id(words: Sequence[str], run: str, root: Path) -> list[str]:
    """Name the run for good: what @last is when the task begins may be another."""
    from etude.runs.run_selection import select_run

    found = select_run(run, root).run
    return [str(found.path.absolute()) if word == run else word for word in words]


def _tasks(words: Sequence[str], given: dict[str, Any], each: Sequence[str]) -> list[list[str]]:
    seeds: list[str] = []
    base = list(words)
    if words[0] == "train":
        from etude.training.seed_group import parse_seeds

        seeds = [f"--seed={seed}" for seed in parse_seeds(given["seed"])] if given.get("seed") is not None else []
        base = [*_without(words, "--seed"), *([] if given.get("auto_resume") else ["--auto-resume"])]
    choices = [_values(word) for word in each]
    for word, values in zip(each, choices, strict=True):
        if _sets(words, values[0].partition("=")[0]):
            raise UserError(f"--each {word}: the command sets it too; leave it out there")
    return [[*base, *chosen] for chosen in itertools.product(*choices, *([seeds] if seeds else []))]


def _values(word: str) -> list[str]:
    """Read `algorithm.gamma=0.9,0.99` in Hydra's grammar: one word for each value."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(word)
        if override.is_sweep_override():
            return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
    except (HydraException, ValueError):
        pass
    raise UserError(f"--each {word}: a setting and several values, such as algorithm.gamma=0.9,0.99")


def _check_settings(tasks: Sequence[Sequence[str]], runs: Path) -> None:
    """Compose the settings of each kind of task; seeds apart, one of them speaks for all. A sweep lists its trials."""
    kinds = {tuple(word for word in task if not word.startswith("--seed=")): task for task in tasks}
    for task in list(kinds.values())[:_MOST_CHECKED]:
        if task[0] == "train":
            printed = _printed([*(word for word in task if word != "--auto-resume"), "--print-config"])
            with contextlib.suppress(MissingPackageError):  # what is not installed here may be there
                _require_environment(printed)
        elif task[0] == "sweep" and task[1:2] != ["resume"]:
            here = _without(_without(task, "--cpus"), "--gpus")  # which may be fewer than there
            with contextlib.suppress(MissingPackageError):
                _printed([*here, "--cpus=1", "--gpus=0", f"--runs={runs}", "--dry"])


def _printed(words: Sequence[str]) -> str:
    """Return what a command prints."""
    from etude.cli import app

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
    return printed.getvalue()


def _require_environment(printed: str) -> None:
    from etude.config.schema import EnvironmentConfig
    from etude.config.source_file import parse_yaml
    from etude.config.validate import Validator
    from etude.environments.make import require_known

    environment = parse_yaml(printed, "--print-config")["environment"]
    require_known(Validator().build(EnvironmentConfig, environment, "environment"))


def _without(words: Sequence[str], option: str) -> list[str]:
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == option:
            skip = True
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return kept


def _sets(words: Sequence[str], key: str) -> bool:
    return any(word.partition("=")[0].lstrip("+") == key for word in words)
