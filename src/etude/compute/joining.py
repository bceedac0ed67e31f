"""How a process finds those that train with it: by the variables that torchrun, or `etude train --processes`, gives it."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from etude.compute.world import ALONE, World
from etude.errors import UserError

STORE = "ETUDE_RANKS_STORE"
"""Names the file where ranks of one machine meet that `etude train --processes` started."""
PATIENCE = datetime.timedelta(hours=2)
"""How long ranks wait for each other: an evaluation, or a save, may take long. One that died is noticed at once."""


@dataclass(frozen=True)
class Place:
    """Which of how many processes this is: of all, and of those on this machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def place(environ: Mapping[str, str] = os.environ) -> Place | None:
    """Return this process's place among those that train together; None where nobody gave it one."""
    if "RANK" not in environ or "WORLD_SIZE" not in environ or not (STORE in environ or "MASTER_ADDR" in environ):
        return None
    names = {"RANK": None, "WORLD_SIZE": None, "LOCAL_RANK": environ["RANK"], "LOCAL_WORLD_SIZE": environ["WORLD_SIZE"]}
    try:
        numbers = [int(environ.get(name, usual or "")) for name, usual in names.items()]
    except ValueError:
        given = ", ".join(f"{name}={environ.get(name)}" for name in names)
        raise UserError(f"{given}: must be whole numbers, as torchrun sets them") from None
    return Place(*numbers)


def join(here: Place | None, devices: Sequence[torch.device]) -> World:
    """Meet the others, and return the world; `devices` are those of this machine's ranks.

    Over NCCL where every rank has a GPU of its own, else over gloo and memory of the host.
    """
    if here is None or here.size == 1:
        return ALONE
    apart = all(device.type == "cuda" for device in devices) and len({*map(str, devices)}) == len(devices)
    own = devices[here.local_rank]
    if own.type == "cuda":
        torch.cuda.set_device(own)
    backend = "cpu:gloo,cuda:nccl" if apart else "gloo"
    if STORE in os.environ:
        store = dist.FileStore(os.environ[STORE], here.size)  # type: ignore[reportPrivateImportUsage] # it is documented
        dist.init_process_group(backend, store=store, rank=here.rank, world_size=here.size, timeout=PATIENCE)
    else:
        dist.init_process_group(backend, rank=here.rank, world_size=here.size, timeout=PATIENCE)
    return World(dist.group.WORLD, on_host=not apart)


def leave() -> None:
    """Part from the others, at the end of what is done together."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
