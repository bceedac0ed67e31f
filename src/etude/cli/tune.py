"""`etude tune ENV:ALGO`: find good settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from etude.cli.options import above_zero, at_least
from etude.cli.parameters import Quiet, RunsFolder, Words
from etude.cli.places import runs_root
from etude.cli.starting import starting
from etude.cli.sweep.start import Cpus, Gpus, Parallel, Retries, Timeout, chosen, list_trials, merged, run_sweep
from etude.cli.sweep.where import Address, On, check_place


def tune(
    spec: Annotated[str, Parameter(name="ENV:ALGO")],
    /,
    *words: Words,
    config: Annotated[Path | None, Parameter(alias="-c")] = None,
    trials: Annotated[int | None, Parameter(alias="--n-trials")] = None,
    timeout: Timeout = None,
    total_steps: float | None = None,
    seed: str = "1-3",
    finalists: int = 2,
    space: Path | None = None,
    name: str | None = None,
    parallel: Parallel = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    retries: Retries = None,
    on: On = "local",
    address: Address = None,
    dry: bool = False,
    runs: RunsFolder = None,
    quiet: Quiet = False,
) -> int:
    """Search for good settings of an algorithm on an environment, and say what they cost.

    The defaults are tried first. Runs pause at a ninth and a third of their budget; the best third of them goes on from there.
    Every evaluation counts, as score against seconds. The best are trained with more seeds and written as a config file. The
    same command again goes on where it stopped.

    Parameters
    ----------
    spec
        What to tune, such as Acrobot-v1:ppo.
    words
        Settings of every trial; a key that is fixed here is not searched. training.total_steps is the budget of a whole run.
    config
        A config file to begin with.
    trials
        How many settings to try. Default: 30, or as many as --timeout or --total-steps allow.
    total_steps
        Environment steps of the whole search, all runs together; 1e7 is fine. The finals come on top.
    seed
        The first one searches; the finalists and the defaults are trained with the others too.
    finalists
        How many of the best are trained with the other seeds; 0 trusts the search's own seed.
    space
        What to search instead: a YAML file of keys, as the sweep section of a sweep's file.
    name
        What the search is called. Default: tune, environment and algorithm.
    dry
        List the first trials and start nothing.
    """
    from etude.training.seed_group import parse_seeds

    check_place(on, address)
    at_least(1, trials=trials)
    at_least(0, finalists=finalists)
    above_zero(total_steps=total_steps)
    options = chosen(n_trials=trials, timeout=timeout, parallel=parallel, cpus=cpus, gpus=gpus, retries=retries)
    if not {"n_trials", "timeout_s"} & set(options) and total_steps is None:
        options["n_trials"] = 30
    with starting(f"tune {spec}", quiet=quiet, plain=False) as tell:
        tell("loading torch")
        from etude.config.compose import compose
        from etude.tuning.default_space import default_space, space_file
        from etude.tuning.places import SweepFolder
        from etude.tuning.spec import build_sweep

        found = compose(spec, file=config, words=list(words)).config
        searched = default_space(found.algorithm.name) if space is None else space_file(space)
        steps = found.training.total_steps
        base = {"spec": spec, "config": None if config is None else str(config.resolve())}
        # A run is measured at each rung, and twice in between.
        cadence = [] if found.evaluation.every_steps is not None else [f"evaluation.every_steps={max(1, steps // 9)}"]
        data = {
            "name": name or f"tune-{found.environment.id}-{found.algorithm.name}".replace("/", "-").replace(":", "-"),
            "base": {**base, "words": cadence},
            "words": list(words),
            "method": "bayes",
            "sweep": searched,
            "seeds": parse_seeds(seed),
            "objective": {"metric": found.checkpoint.monitor, "direction": found.checkpoint.monitor_mode},
            "tune": {"finalists": finalists, "total_steps": total_steps},
        }
        asked = build_sweep(merged(data, options))
        folder = SweepFolder(runs_root(runs), asked.name)
        if dry:
            return list_trials(folder, asked, on=on)
    return run_sweep(folder, asked, quiet=quiet, on=on, address=address)
