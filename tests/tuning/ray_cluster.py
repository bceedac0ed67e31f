"""A Ray cluster of several nodes on this machine, for tests against the real one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def settings(home: Path) -> dict[str, str]:
    """Return the variables with which nodes, sweeps and trials find this checkout, and a key of their own."""
    found = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1", "XDG_DATA_HOME": str(home)}
    return found | {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}


def patiently(start: Callable[..., Any], **options: Any) -> Any:
    """Start a node of Ray, again if need be: it gives up after 30 seconds, which a busy machine may take."""
    for _ in range(8):
        try:
            return start(**options)
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return start(**options)


@contextmanager
def cluster(home: Path, cpus: int = 1) -> Iterator[Any]:
    """Yield a cluster whose head has this many CPUs; nodes can be added and killed."""
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports] # of an extra

    before = dict(os.environ)
    os.environ.update(settings(home))
    # Sockets have short names.
    folder = Path("/tmp") / f"ray-sweep-{os.getpid()}"
    found = patiently(
        Cluster,
        initialize_head=True,
        head_node_args={
            "num_cpus": cpus,
            "object_store_memory": 100 * 2**20,
            "include_dashboard": False,
            "temp_dir": str(folder),
        },
    )
    try:
        yield found
    finally:
        found.shutdown()
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)
