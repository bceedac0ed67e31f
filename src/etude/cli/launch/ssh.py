"""`etude launch ssh`: another machine."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from etude.cli.launch import parameters as shared
from etude.cli.parameters import RunsFolder


def ssh(
    host: Annotated[str, Parameter(name="HOST")],
    /,
    *command: shared.Words,
    gpus: shared.Gpus = 0,
    at_once: shared.AtOnce = None,
    each: shared.Each = None,
    port: int | None = None,
    ssh_config: str | None = None,
    remote: str | None = None,
    copy: Literal["rsync", "tar"] = "rsync",
    code: Annotated[bool, Parameter(name="--code", negative="--no-code")] = True,
    python: shared.Python = None,
    setup: shared.Setup = None,
    job_name: shared.JobName = None,
    runs: RunsFolder = None,
    unchecked: shared.Unchecked = False,
    dry: shared.Dry = False,
) -> int:
    """Train on another machine that has Etude: this folder is copied there, and tasks run detached.

    The connection may be lost, and this machine switched off. `etude launch sync` brings runs here. Launched again with the
    same words, what was cut off goes on.

    Parameters
    ----------
    host
        HOST, USER@HOST, or a name of ssh's own config.
    port
        The port of ssh there.
    ssh_config
        Another config file for ssh.
    remote
        The folder there, relative to the home. Default: etude-launches/ and the name of the launch.
    copy
        What copies files; tar where rsync is missing.
    code
        Copy this folder there: what git doesn't ignore, or outside a repository code and settings.
    """
    from etude.cli.launch.carrying_out import launch
    from etude.cli.launch.command import read_job
    from etude.cli.options import at_least
    from etude.errors import EtudeError
    from etude.launching.ssh import SshLauncher, explain

    at_least(1, port=port)
    options = {"gpus": gpus, "at_once": at_once, "each": each, "name": job_name, "unchecked": unchecked}
    job = read_job(command, runs=runs, elsewhere=True, **options)
    folder = (remote or f"etude-launches/{job.name}").rstrip("/") or "/"
    launcher = SshLauncher(
        host, folder, python or "python3", tuple(setup or ()), port=port, config=ssh_config, copy=copy, code=code
    )
    try:
        return launch(launcher, job, dry=dry)
    except EtudeError as error:
        raise explain(error, launcher) from None
