"""`etude launch gce` and `etude launch ec2`: clusters that are rented, by Ray's cluster launcher."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from etude import __version__
from etude.cli.launch import parameters as shared
from etude.cli.options import at_least
from etude.cli.parameters import RunsFolder
from etude.errors import UserError

_MOST_BY_DEFAULT = 8
Upload = Annotated[str | None, Parameter(help="The bucket that keeps runs, and its folder; needed, for machines vanish.")]
Machine = Annotated[str, Parameter(help="The machine type of workers.")]
HeadMachine = Annotated[str, Parameter(help="The machine type of the head, which trains nothing.")]
MinWorkers = Annotated[int, Parameter(help="Workers that are there from the beginning and stay.")]
MaxWorkers = Annotated[int | None, Parameter(help="Workers at most. Default: one a task, up to 8.")]
Image = Annotated[str | None, Parameter(help="The image of the machines.")]
DiskGb = Annotated[int, Parameter(help="The disk of each machine.")]
Spot = Annotated[bool, Parameter(help="Workers that may be taken away: cheaper, and runs go on where they were.")]
IdleMinutes = Annotated[int, Parameter(help="Give workers back after so many idle minutes.")]
Code = Annotated[bool, Parameter(name="--code", negative="--no-code", help="Copy this folder there.")]


def gce(
    *command: shared.Words,
    project: str | None = None,
    region: str = "us-west1",
    zone: str = "us-west1-b",
    upload: Upload = None,
    machine: Machine = "n2-standard-8",
    head_machine: HeadMachine = "n2-standard-2",
    min_workers: MinWorkers = 0,
    max_workers: MaxWorkers = None,
    accelerator: str | None = None,
    cpus: shared.Cpus = None,
    gpus: shared.Gpus = 0,
    memory: shared.Memory = None,
    each: shared.Each = None,
    spot: Spot = False,
    image: Image = None,
    disk_gb: DiskGb = 100,
    idle_minutes: IdleMinutes = 10,
    setup: shared.Setup = None,
    code: Code = True,
    job_name: shared.JobName = None,
    runs: RunsFolder = None,
    unchecked: shared.Unchecked = False,
    yes: shared.Yes = False,
    dry: shared.Dry = False,
) -> int:
    """Rent machines of Google Compute Engine, as many as the tasks need, and train there. It asks before it spends.

    Parameters
    ----------
    project
        The id of the Google Cloud project.
    region
        Where, such as us-west1 ...
    zone
        ... and us-west1-b.
    accelerator
        The GPU of workers, such as nvidia-tesla-t4; --gpus says how many each worker has and each task takes.
    """
    from etude.launching.clouds import GceLauncher

    if project is None:
        raise UserError("--project: the id of a Google Cloud project, which is charged")
    options = {"cpus": cpus, "gpus": gpus, "memory": memory, "each": each, "name": job_name, "unchecked": unchecked}
    places = {"region": region, "zone": zone, "machine": machine, "head_machine": head_machine, "image": image}
    sizes = {"min_workers": min_workers, "max_workers": max_workers, "disk_gb": disk_gb, "idle_minutes": idle_minutes}
    more = {
        "setup": tuple(setup or ()),
        "spot": spot,
        "code": code,
        "project": project,
        "accelerator": accelerator,
        "gpus": gpus,
    }
    return _rent(GceLauncher, command, runs, options, {**places, **sizes, **more, "upload": upload}, yes=yes, dry=dry)


def ec2(
    *command: shared.Words,
    region: str = "us-west-2",
    zone: str = "us-west-2a",
    upload: Upload = None,
    machine: Machine = "m6i.2xlarge",
    head_machine: HeadMachine = "m6i.large",
    min_workers: MinWorkers = 0,
    max_workers: MaxWorkers = None,
    instance_profile: str | None = None,
    cpus: shared.Cpus = None,
    gpus: shared.Gpus = 0,
    memory: shared.Memory = None,
    each: shared.Each = None,
    spot: Spot = False,
    image: Image = None,
    disk_gb: DiskGb = 100,
    idle_minutes: IdleMinutes = 10,
    setup: shared.Setup = None,
    code: Code = True,
    job_name: shared.JobName = None,
    runs: RunsFolder = None,
    unchecked: shared.Unchecked = False,
    yes: shared.Yes = False,
    dry: shared.Dry = False,
) -> int:
    """Rent machines of Amazon EC2, as many as the tasks need, and train there. It asks before it spends.

    Parameters
    ----------
    region
        Where, such as us-west-2 ...
    zone
        ... and us-west-2a.
    instance_profile
        The ARN of an instance profile whose role may write to the bucket.
    """
    from etude.launching.clouds import Ec2Launcher

    options = {"cpus": cpus, "gpus": gpus, "memory": memory, "each": each, "name": job_name, "unchecked": unchecked}
    places = {"region": region, "zone": zone, "machine": machine, "head_machine": head_machine, "image": image}
    sizes = {"min_workers": min_workers, "max_workers": max_workers, "disk_gb": disk_gb, "idle_minutes": idle_minutes}
    more = {"setup": tuple(setup or ()), "spot": spot, "code": code, "instance_profile": instance_profile}
    return _rent(Ec2Launcher, command, runs, options, {**places, **sizes, **more, "upload": upload}, yes=yes, dry=dry)


def _rent(kind: Any, command: Any, runs: Any, options: dict[str, Any], cluster: dict[str, Any], *, yes: bool, dry: bool) -> int:
    from etude.cli.launch.carrying_out import launch
    from etude.cli.launch.command import read_job
    from etude.launching.clouds import checkout

    at_least(0, min_workers=cluster["min_workers"])
    at_least(1, max_workers=cluster["max_workers"], idle_minutes=cluster["idle_minutes"])
    at_least(20, disk_gb=cluster["disk_gb"])
    if cluster["upload"] is None:
        raise UserError(
            f"--upload {kind.upload_kinds[0]}BUCKET/FOLDER: machines vanish with their disks, a bucket keeps the runs"
        )
    job = read_job(command, runs=runs, elsewhere=True, **options)
    most = max(cluster["min_workers"], min(len(job.tasks), _MOST_BY_DEFAULT))
    cluster |= {"max_workers": most if cluster["max_workers"] is None else cluster["max_workers"]}
    return launch(kind(**cluster, source=checkout(), version=__version__), job, dry=dry, yes=yes)
