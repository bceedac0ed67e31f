"""`etude launch ray`: a Ray cluster that runs already."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from etude.cli.launch import parameters as shared
from etude.cli.parameters import RunsFolder


def ray(
    *command: shared.Words,
    address: str | None = None,
    cpus: shared.Cpus = None,
    gpus: shared.Gpus = 0,
    memory: shared.Memory = None,
    each: shared.Each = None,
    remote: str = "~/etude-runs",
    upload: str | None = None,
    code: Annotated[bool, Parameter(name="--code", negative="--no-code")] = True,
    job_name: shared.JobName = None,
    runs: RunsFolder = None,
    unchecked: shared.Unchecked = False,
    dry: shared.Dry = False,
) -> int:
    """Submit training to a Ray cluster by `ray job submit`; its machines must have Etude with the extra `ray`.

    Ray gives each task its cores and GPUs when they are free, and runs a task again whose machine died: the run goes on.

    Parameters
    ----------
    address
        The cluster's dashboard, such as http://HEAD:8265. Default: $RAY_ADDRESS, as Ray reads it.
    remote
        Where runs land on the cluster's machines; a folder that they share.
    upload
        Keep runs in gs://BUCKET/FOLDER, s3://BUCKET/FOLDER or a shared folder, where the machines share none.
    code
        Send this folder along, as Ray's working directory.
    """
    from etude.cli.launch.carrying_out import launch
    from etude.cli.launch.command import read_job
    from etude.launching.ray_job import RayLauncher

    options = {"cpus": cpus, "gpus": gpus, "memory": memory, "each": each, "name": job_name, "unchecked": unchecked}
    job = read_job(command, runs=runs, elsewhere=True, **options)
    return launch(RayLauncher(address, remote, upload, code), job, dry=dry)
