"""Where the trials of a sweep run: on this machine, or on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from etude.errors import UserError

if TYPE_CHECKING:
    from etude.tuning.local import LocalBackend
    from etude.tuning.places import SweepFolder
    from etude.tuning.ray_backend import RayBackend

On = Annotated[Literal["local", "ray"], Parameter(help="Where trials run: on this machine, or on a Ray cluster (extra ray).")]
Address = Annotated[
    str | None,
    Parameter(
        name="--ray-address",  # `etude launch` has one of its own
        help="Of the Ray cluster, such as HEAD:6379. Default: $RAY_ADDRESS, one that runs here, or a new one for this sweep.",
    ),
]


def check_place(on: str, address: str | None) -> None:
    """Refuse a place that is none, before anything is loaded."""
    if on != "ray":
        if address is not None:
            raise UserError(f"--ray-address {address}: goes with --on ray")
        return
    from etude.tuning.ray_backend import check_address

    check_address(address)


def make_backend(folder: SweepFolder, parallel: int | None, on: str, address: str | None) -> LocalBackend | RayBackend:
    """Return where the trials of a sweep will run."""
    if on == "ray":
        from etude.tuning.ray_backend import RayBackend

        return RayBackend(folder.root, folder.logs, parallel, address)
    from etude.tuning.local import LocalBackend

    return LocalBackend(folder.root, folder.logs, parallel)
