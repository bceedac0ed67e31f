"""The backends there are, by their names."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

from etude.errors import UserError
from etude.launching.launcher import Launch, Launcher

_PLACES = {
    "slurm": "etude.launching.slurm:SlurmLauncher",
    "ssh": "etude.launching.ssh:SshLauncher",
    "ray": "etude.launching.ray_job:RayLauncher",
    "gce": "etude.launching.clouds:GceLauncher",
    "modal": "etude.launching.modal_app:ModalLauncher",
    "docker": "etude.launching.docker:DockerLauncher",
    "ec2": "etude.launching.clouds:Ec2Launcher",
}


def launcher_of(launch: Launch) -> Launcher:
    """Return the launcher that a launch was started with, its options as they were."""
    place = _PLACES.get(launch.backend)
    if place is None:
        raise UserError(f"{launch.name}: no backend {launch.backend!r}; there are {', '.join(_PLACES)}")
    module, _, name = place.partition(":")
    kind: Any = getattr(import_module(module), name)
    try:
        known = {each.name for each in fields(kind)}
        options = {key: _frozen(value) for key, value in launch.options.items() if key in known}
        return kind(**options)
    except TypeError as error:
        raise UserError(f"{launch.path}: its record can't be read ({error}); launch it again") from None


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
