"""`etude launch docker` and `etude launch modal`: containers, here and rented."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from etude import __version__
from etude.cli.launch import parameters as shared
from etude.cli.parameters import RunsFolder


def docker(
    *command: shared.Words,
    image: str = "etude",
    env: list[str] | None = None,
    cpus: shared.Cpus = None,
    gpus: shared.Gpus = 0,
    memory: shared.Memory = None,
    each: shared.Each = None,
    code: Annotated[bool, Parameter(name="--code", negative="--no-code")] = True,
    job_name: shared.JobName = None,
    runs: RunsFolder = None,
    unchecked: shared.Unchecked = False,
    dry: shared.Dry = False,
) -> int:
    """Train in Docker containers on this machine, one a task, detached and as yourself; docker/Dockerfile builds the image.

    Parameters
    ----------
    image
        An image that has Etude.
    env
        The name of a variable to pass on, such as WANDB_API_KEY. May be repeated.
    code
        Let containers see this folder, as /work.
    """
    from etude.cli.launch.carrying_out import launch
    from etude.cli.launch.command import read_job
    from etude.launching.docker import DockerLauncher

    options = {"cpus": cpus, "gpus": gpus, "memory": memory, "each": each, "name": job_name, "unchecked": unchecked}
    job = read_job(command, runs=runs, elsewhere=True, **options)
    return launch(DockerLauncher(image, tuple(env or ()), code), job, dry=dry)


def modal(
    *command: shared.Words,
    accelerator: str | None = None,
    cpus: shared.Cpus = None,
    gpus: shared.Gpus = 0,
    memory: shared.Memory = None,
    time: shared.Time = None,
    each: shared.Each = None,
    volume: str = "etude-runs",
    secret: list[str] | None = None,
    setup: shared.Setup = None,
    code: Annotated[bool, Parameter(name="--code", negative="--no-code")] = True,
    job_name: shared.JobName = None,
    runs: RunsFolder = None,
    unchecked: shared.Unchecked = False,
    yes: shared.Yes = False,
    dry: shared.Dry = False,
) -> int:
    """Train on Modal, a container a task. Taken away or out of time, a run goes on in another. It asks before it spends.

    Parameters
    ----------
    accelerator
        The GPU, such as A10 or H100; --gpus says how many.
    volume
        The Modal volume that keeps runs.
    secret
        The name of a Modal secret, such as one with WANDB_API_KEY. May be repeated.
    code
        Copy this folder into the container.
    """
    from etude.cli.launch.carrying_out import launch
    from etude.cli.launch.command import read_job
    from etude.launching.clouds import checkout
    from etude.launching.modal_app import ModalLauncher

    needs = {"cpus": cpus, "gpus": gpus, "memory": memory, "time": time}
    job = read_job(command, runs=runs, each=each, name=job_name, unchecked=unchecked, elsewhere=True, **needs)
    launcher = ModalLauncher(
        checkout(), __version__, accelerator, volume, secrets=tuple(secret or ()), setup=tuple(setup or ()), code=code
    )
    return launch(launcher, job, dry=dry, yes=yes)
