"""The processes that train one run together, as a sitting sees them: their world, and the parent that watches over them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from etude.compute.devices import pick_device
from etude.compute.joining import Place, join, place
from etude.compute.world import ALONE, RankLostError, World
from etude.config.schema import Config
from etude.errors import UserError
from etude.training.rank_link import ParentLink


@dataclass(frozen=True)
class Together:
    """This process among those that train together."""

    world: World
    parent: ParentLink

    def require(self, config: Config) -> None:
        """Hold a run to the number of processes that it is trained by."""
        wanted = config.experiment.processes
        if wanted != self.world.size:
            raise UserError(
                f"experiment.processes={wanted}: this process is one of {self.world.size}; start it with "
                f"`etude train --processes {wanted}` or `torchrun --nproc-per-node {wanted} -m etude train`"
            )

    def run_of_first(self, path: Path | None) -> Path:
        """Let all know the run that the first process has."""
        if self.world.is_first and path is not None:
            self.parent.tell_run(path.resolve())
        return Path(self.world.from_first(lambda: str(path)))

    def why_lost(self, error: RankLostError) -> str:
        """Return why another process ended, as far as it is known."""
        return self.parent.reason() or f"{error}; what it printed says why"


ON_ITS_OWN = Together(ALONE, ParentLink(None, is_first=True))
"""One process."""


def come_together(config: Config) -> Together:
    """Meet the processes that a resolved config says train together."""
    wanted, here = config.experiment.processes, place()
    if wanted == 1 and (here is None or here.size == 1):
        return ON_ITS_OWN
    if here is None or here.size != wanted:
        return Together(ALONE if here is None else _not_met(here), ParentLink(None, is_first=True))
    parent = ParentLink.open(is_first=here.rank == 0)
    listed = config.experiment.device.split(",")
    devices = [pick_device(listed[rank % len(listed)]) for rank in range(here.local_size)]
    return Together(join(here, [torch.device(device) for device in devices]), parent)


def _not_met(here: Place) -> World:
    """A world of the size that was found, to say that it is another than the run's."""
    world = World()
    world.rank, world.size = here.rank, here.size
    return world
