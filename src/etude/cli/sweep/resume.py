"""`etude sweep resume NAME`: go on with a sweep."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from etude.cli.parameters import Quiet, RunsFolder
from etude.cli.places import existing_runs_root
from etude.cli.sweep.start import Cpus, Gpus, Parallel, Retries, Timeout, Trials, chosen, merged, run_sweep
from etude.cli.sweep.where import Address, On, check_place

SweepName = Annotated[str, Parameter(name="NAME", help="A sweep's name, as in `etude sweep list`.")]


def resume(
    name: SweepName,
    /,
    *,
    n_trials: Trials = None,
    timeout: Timeout = None,
    parallel: Parallel = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    retries: Retries = None,
    on: On = "local",
    address: Address = None,
    retry_failed: bool = False,
    runs: RunsFolder = None,
    quiet: Quiet = False,
) -> int:
    """Go on with a sweep: runs that were stopped or killed are resumed exactly, and more trials follow.

    Parameters
    ----------
    retry_failed
        Let trials that failed run again, from their last save.
    """
    from etude.config.validate import to_plain
    from etude.tuning.places import SweepFolder
    from etude.tuning.spec import build_sweep

    check_place(on, address)
    folder = SweepFolder(existing_runs_root(runs), name)
    options = chosen(n_trials=n_trials, timeout=timeout, parallel=parallel, cpus=cpus, gpus=gpus, retries=retries)
    asked = build_sweep(merged(to_plain(folder.read()), options))
    return run_sweep(folder, asked, quiet=quiet, retry_failed=retry_failed, on=on, address=address)
