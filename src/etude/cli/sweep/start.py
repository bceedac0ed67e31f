"""`etude sweep FILE`: begin a sweep, or go on with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from etude.cli.options import at_least, seconds
from etude.cli.output import note, say
from etude.cli.parameters import Quiet, RunsFolder, Words
from etude.cli.places import runs_root
from etude.cli.starting import starting
from etude.cli.sweep.where import Address, On, check_place, make_backend
from etude.errors import UserError

if TYPE_CHECKING:
    from etude.tuning.places import SweepFolder
    from etude.tuning.spec import SweepConfig

Trials = Annotated[int | None, Parameter(help="How many trials in all. Default: as the file says; of a grid all.")]
Timeout = Annotated[str | None, Parameter(help="Stop after this time, such as 90, 30m or 2h; the trials save themselves.")]
Parallel = Annotated[int | None, Parameter(help="Runs at once. Default: as many as there are CPUs for.")]
Cpus = Annotated[int | None, Parameter(help="CPU threads of each run: counted, and enforced.")]
Gpus = Annotated[
    float | None, Parameter(help="GPUs of each run, 0.5 for two runs on one: counted, and enforced; 0 hides them.")
]
Retries = Annotated[
    int | None,
    Parameter(help="How often a run that was killed goes on before its trial counts as failed.", alias="--max-failures"),
]
_LISTED = 10


def sweep(
    file: Annotated[str | None, Parameter(name="FILE")] = None,
    /,
    *words: Words,
    config: Annotated[Path | None, Parameter(alias="-c")] = None,
    name: str | None = None,
    n_trials: Trials = None,
    timeout: Timeout = None,
    parallel: Parallel = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    retries: Retries = None,
    on: On = "local",
    address: Address = None,
    seed: str | None = None,
    dry: bool = False,
    runs: RunsFolder = None,
    quiet: Quiet = False,
) -> int:
    """Search over settings: every trial is a run, or one for each seed, in a group of its own.

    The same command again goes on where the sweep stopped: what had ended is left alone, what was running is resumed exactly.

    Parameters
    ----------
    file
        What to search, in YAML: base, method, sweep, objective, ... (see docs/sweeps.md).
    words
        Settings that win over the sweep's values, such as training.total_steps=1e5.
    config
        The same as FILE.
    name
        What the sweep is called. Default: the file's name.
    seed
        The seeds of every trial, such as 1-3, instead of the file's.
    dry
        List the trials and start nothing.
    """
    check_place(on, address)
    path, words = chosen_file(file, config, words)
    with starting(f"sweep {path}", quiet=quiet, plain=False) as tell:
        from etude.config.validate import to_plain
        from etude.tuning.places import SweepFolder
        from etude.tuning.spec import build_sweep, read_sweep

        asked = read_sweep(path)
        changes: dict[str, Any] = {} if name is None else {"name": name}
        if words:
            changes["words"] = [*asked.words, *words]
        if seed is not None:
            from etude.training.seed_group import parse_seeds

            changes["seeds"] = parse_seeds(seed)
        options = chosen(n_trials=n_trials, timeout=timeout, parallel=parallel, cpus=cpus, gpus=gpus, retries=retries)
        asked = build_sweep(merged({**to_plain(asked), **changes}, options))
        folder = SweepFolder(runs_root(runs), asked.name)
        asked = folder.staged(asked)
        tell("loading torch")
        if dry:
            return list_trials(folder, asked, on=on)
    return run_sweep(folder, asked, quiet=quiet, on=on, address=address)


def chosen_file(file: str | None, config: Path | None, words: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    """Return the sweep's file and the words, where the file may be named either way."""
    if config is None and file is None:
        raise UserError("etude sweep: name the sweep's file, such as `etude sweep grid.yaml`")
    if config is None:
        return Path(file or ""), words
    if file is not None and "=" not in file:
        raise UserError(f"{file} and --config {config}: one file, please")
    return config, words if file is None else (file, *words)


def chosen(
    *,
    n_trials: int | None,
    timeout: str | None,
    parallel: int | None,
    cpus: int | None,
    gpus: float | None,
    retries: int | None,
) -> dict[str, Any]:
    """Check the options that a beginning and a continuing sweep share, and return those that were given as settings."""
    at_least(1, n_trials=n_trials, parallel=parallel, cpus=cpus)
    at_least(0, gpus=gpus, retries=retries)
    given = {"n_trials": n_trials, "timeout_s": seconds("--timeout", timeout), "parallel": parallel, "retries": retries}
    resources = {key: value for key, value in (("cpus", cpus), ("gpus", gpus)) if value is not None}
    found = {key: value for key, value in given.items() if value is not None}
    return {**found, "resources": resources} if resources else found


def merged(data: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Lay options over a sweep's settings."""
    from etude.config.layers import overlay

    return overlay(data, options)


def run_sweep(
    folder: SweepFolder,
    asked: SweepConfig,
    *,
    quiet: bool,
    retry_failed: bool = False,
    on: str = "local",
    address: str | None = None,
) -> int:
    """Run a sweep to its end, or until it is stopped, and say what came of it."""
    from etude.cli import INTERRUPTED
    from etude.cli.sweep.view import SweepView, result_lines
    from etude.runs.places import runs_option
    from etude.tuning.plan import TRIED_AT_FIRST, Plan
    from etude.tuning.population import PopulationRunner
    from etude.tuning.runner import SweepRunner
    from etude.tuning.tuner import TuneRunner

    with folder.locked():
        plan = Plan(asked)
        if not folder.exists:
            plan.check(first_settings(folder, asked, TRIED_AT_FIRST))
        backend = make_backend(folder, asked.parallel, on, address)
        try:
            backend.check(plan.needs)
            study = folder.open(asked, plan)
        except BaseException:
            backend.close()
            raise
        for key in plan.overruled:
            note(f"{key}: fixed by a word, and not searched")
        if retry_failed:
            for trial in [trial for trial in study.trials if trial.state == "failed"]:
                study.reopen(trial)
        kind = PopulationRunner if asked.method == "pbt" else SweepRunner if asked.tune is None else TuneRunner
        runner = kind(plan, study, backend, n_trials=asked.n_trials, timeout_s=asked.timeout_s)
        view = SweepView(runner, sys.stderr, quiet=quiet)
        outcome = runner.run(view.show)
        view.close()
    option = runs_option(folder.root)
    lines = result_lines(plan, study)
    if asked.tune is not None and outcome == "done":
        from etude.cli.sweep.tuned import finish

        lines = [*lines[:1], *finish(folder)]
    for line in lines:
        say(line)
    if outcome != "done":
        note(f"{outcome}: the trials have saved themselves; etude sweep resume {folder.name}{option} goes on")
    else:
        note(f"more of it: etude sweep report {folder.name}{option}")
    return INTERRUPTED if outcome == "interrupted" else 0


def first_settings(folder: SweepFolder, asked: SweepConfig, count: int) -> list[dict[str, Any]]:
    """Return the settings of the first trials, as far as they don't follow from results."""
    from etude.tuning.plan import Plan

    study = folder.study(asked, Plan(asked), remembers=False)
    found = []
    while len(found) < count and (trial := study.ask()) is not None:
        found.append(trial.settings)
    return found


def list_trials(folder: SweepFolder, asked: SweepConfig, *, on: str = "local") -> int:
    """Print what would be tried; what would be refused is refused here too."""
    from etude.cli.sweep.view import short_names, shown_values
    from etude.errors import EtudeError
    from etude.tuning.local import LocalBackend
    from etude.tuning.plan import Plan

    plan = Plan(asked)
    if on == "local":
        LocalBackend(folder.root, folder.logs, asked.parallel).check(plan.needs)
    folder.refuse_change(asked)
    size = plan.space.size if asked.method == "grid" else None
    most = min(count for count in (asked.n_trials, size, _LISTED if size is None else None) if count is not None)
    settings = first_settings(folder, asked, most)
    names = short_names([*plan.space.searched, *plan.space.derived])
    refused = 0
    if asked.tune is not None:
        settings = [{}, *settings[:-1]]
    plan.check(settings)
    for number, values in enumerate(settings):
        try:
            plan.compose(values)
            problem = ""
        except EtudeError as error:
            refused += 1
            problem = f"  refused: {str(error).splitlines()[0]}"
        say(f"{number:04d}  {shown_values(values, names) or 'the defaults'}{problem}")
    total = size if asked.n_trials is None else min(size or asked.n_trials, asked.n_trials)
    runs = f", {len(asked.seeds)} seeds each" if len(asked.seeds) > 1 else ""
    of = f"{total} trials" if total is not None else "trials until the time is over"
    follow = "; what comes later follows from results" if asked.method in ("bayes", "pbt") else ""
    say(f"{of}{runs}: {asked.method} over {', '.join(plan.space.searched)}{follow}")
    if refused:
        note(f"{refused} of those listed can't be started")
    return 0
