"""Runs on a Ray cluster: every task is a task of Ray, which waits for its cores and GPUs and is run again if its machine dies.

`python -m etude.launching.ray_tasks [FILE]`, the tasks as JSON in the file or in $ETUDE_TASKS.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

MOST_RETRIES = 100
"""How often a task may lose its machine. One that fails by itself is not run again."""
STORE_EVERY_S = 60.0
_PARENT_DEATH_SIGNAL = 1


def run_task(number: int, task: dict[str, Any]) -> int:
    """Run one command line of Etude, with its runs brought here before and kept elsewhere meanwhile; returns its exit code."""
    runs = Path(os.path.expanduser(task["runs"]))
    runs.mkdir(parents=True, exist_ok=True)
    _all(task["restore"])
    folder = os.path.expanduser(task["folder"]) if task["folder"] else None
    words = [sys.executable, "-m", "etude", *task["words"], f"--runs={runs}"]
    # Should Ray end this process, the training is told to save itself: it is never left behind.
    process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, preexec_fn=_end_with_parent)
    ended = threading.Event()
    storing = threading.Thread(target=_store_until, args=(ended, task["store"], task["every_s"]), daemon=True)
    storing.start()
    code = process.wait()
    ended.set()
    storing.join()
    if not _all(task["store"]):
        print(f"etude: the runs of task {number} could not be stored", file=sys.stderr, flush=True)
        return code or 1
    return code


def _store_until(ended: threading.Event, commands: list[list[str]], every_s: float) -> None:
    while commands and not ended.wait(every_s):
        _all(commands)


def _all(commands: list[list[str]]) -> bool:
    expanded = [[os.path.expanduser(word) for word in command] for command in commands]
    # The clouds' own tools may be installed beside this Python, in an environment that nobody has activated.
    environment = os.environ | {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}"}
    done = [subprocess.run(words, stdin=subprocess.DEVNULL, env=environment, check=False) for words in expanded]
    return all(each.returncode == 0 for each in done)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def main() -> int:
    """Run every task on the cluster that this process was submitted to; returns 1 if one failed."""
    text = Path(os.path.expanduser(sys.argv[1])).read_text(encoding="utf-8") if len(sys.argv) > 1 else os.environ["ETUDE_TASKS"]
    job = json.loads(text)
    import ray  # pyright: ignore[reportMissingImports] # of an extra
    from ray.exceptions import RayError  # pyright: ignore[reportMissingImports] # as above

    ray.init(log_to_driver=True)
    needs = {"num_cpus": job["cpus"], "num_gpus": job["gpus"], "max_retries": MOST_RETRIES}
    if job["memory_mb"] is not None:
        needs["memory"] = job["memory_mb"] * 2**20
    # By name: the workers import this module, not a copy of `__main__`.
    from etude.launching.ray_tasks import run_task as task

    remote = ray.remote(task).options(**needs)
    waiting = {remote.remote(number, each): number for number, each in enumerate(job["tasks"])}
    codes = {}
    while waiting:
        (done,), _ = ray.wait(list(waiting), num_returns=1)
        number = waiting.pop(done)
        try:
            codes[number] = ray.get(done)
        except RayError as error:
            print(f"etude: task {number}: {error}", file=sys.stderr, flush=True)
            codes[number] = 1
        print(f"etude task {number}: exit code {codes[number]}", flush=True)
    return 1 if any(codes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
