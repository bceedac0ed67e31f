"""`etude launch slurm`: an array job."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from etude.cli.launch import parameters as shared
from etude.cli.parameters import RunsFolder


def slurm(
    *command: shared.Words,
    cpus: shared.Cpus = None,
    gpus: shared.Gpus = 0,
    memory: shared.Memory = None,
    time: shared.Time = None,
    at_once: shared.AtOnce = None,
    each: shared.Each = None,
    partition: str | None = None,
    account: str | None = None,
    sbatch: Annotated[list[str] | None, Parameter(name="--sbatch", allow_leading_hyphen=True)] = None,
    setup: shared.Setup = None,
    python: shared.Python = None,
    job_name: shared.JobName = None,
    runs: RunsFolder = None,
    unchecked: shared.Unchecked = False,
    dry: shared.Dry = False,
) -> int:
    """Submit training to the SLURM cluster of this login node: one array task a seed, or a combination of --each.

    Pre-empted, or two minutes before its time limit, a run saves itself and is requeued; it goes on to the end it would have
    had. The nodes must see this folder, the runs and the Python under the same paths.

    Parameters
    ----------
    partition
        The partition to submit to.
    account
        The account that is charged.
    sbatch
        Another #SBATCH line, verbatim: '--constraint=a100'. May be repeated.
    """
    from etude.cli.launch.carrying_out import launch
    from etude.cli.launch.command import read_job
    from etude.launching.slurm import SlurmLauncher

    needs = {"cpus": cpus, "gpus": gpus, "memory": memory, "time": time, "at_once": at_once}
    job = read_job(command, runs=runs, each=each, name=job_name, unchecked=unchecked, **needs)
    launcher = SlurmLauncher(
        python=(python or sys.executable, "-m", "etude"),
        partition=partition,
        account=account,
        lines=tuple(sbatch or ()),
        setup=tuple(setup or ()),
    )
    return launch(launcher, job, dry=dry)
