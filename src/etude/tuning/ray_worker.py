"""One run on a node of a Ray cluster: an actor that holds the run's process, and ends with it."""

from __future__ import annotations

import os
import platform
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from etude.errors import UserError
from etude.training.child_run import ChildRun


class RayWorker:
    """Starts `etude train …` or `etude resume …` where Ray has put it. Should Ray end it, the run saves itself and stops."""

    def __init__(self) -> None:
        self._child: ChildRun | None = None

    def begin(self, arguments: Sequence[str], place: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Start the run. Of `place`, `folder` is where to start it, `log` its complaints, `seen` a file that must be there."""
        if not Path(place["seen"]).is_file():
            raise UserError(
                f"node {platform.node()} does not see {place['seen']}: the runs must lie in a folder that all nodes share"
            )
        folder = place["folder"]
        if not os.path.isdir(folder):
            raise UserError(f"node {platform.node()} does not see {folder}, from where the sweep was started")
        os.chdir(folder)
        self._child = ChildRun(list(arguments), Path(place["log"]), {**environment, **self._gpus()})

    def poll(self) -> tuple[int | None, str]:
        """Return its exit code, None while it runs, and the last it complained of."""
        assert self._child is not None
        code = self._child.poll()
        return code, "" if code in (None, 0, 130) else self._child.complaint

    def stop(self) -> None:
        """Let it save itself and stop; a second time at once."""
        if self._child is not None:
            self._child.send(signal.SIGTERM)

    def _gpus(self) -> dict[str, str]:
        import ray  # pyright: ignore[reportMissingImports] # of an extra

        return {"CUDA_VISIBLE_DEVICES": ",".join(str(each) for each in ray.get_gpu_ids())}
