"""Processes die here for real: in a child, which forks more of itself so that torch is imported once."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.forked import run_forked

PRELUDE = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from etude.runs.checkpoint import CheckpointStore

torch.set_num_threads(1)
store = CheckpointStore(Path(sys.argv[1]), keep=2)

def save(step):
    weight = torch.full((300, 100), float(step))
    shared = {"w": weight, "step": step, "t": torch.full((50_000,), step)}
    parts = {"policy": {"w": weight}, "shared": shared, "rank/0": {}}
    store.save(parts, counters={"env_steps": step, "updates": step}, metadata={}, best=step % 3 == 0)
    if step % 2:
        store.save({"policy": parts["policy"]}, counters={"env_steps": step, "updates": step}, metadata={}, best=True)

def newest_step():
    checkpoint = store.newest_whole()
    state = checkpoint.load()
    step = state["shared"]["step"]
    assert checkpoint.counters["env_steps"] == step
    assert (state["shared"]["w"] == step).all() and (state["shared"]["t"] == step).all()
    assert all(saved.damage is None for saved in store.list()), store.list()
    store.find("best").verify()
    return step

save(0)
"""

KILLED_AT_RANDOM = """
random.seed(0)
began = time.perf_counter()
save(1)
one_save = time.perf_counter() - began  # a busy disk takes ten times as long
reached, trials = 1, 0
while trials < 15 or reached <= 5:
    trials += 1
    child = os.fork()
    if child == 0:
        step = reached
        while True:
            step += 1
            save(step)
    time.sleep(random.uniform(0.1, 4) * one_save)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    now = newest_step()
    assert now >= reached, (now, reached)
    if now == reached:
        one_save *= 1.2  # it may have become busy since
    reached = now
"""

# Dies before the n-th step that touches the disk's order, for every n until a save gets through.
KILLED_EVERYWHERE = """
import shutil
for n in range(1, 200):
    before = newest_step()
    child = os.fork()
    if child == 0:
        count = 0
        def dying(original):
            def call(*arguments, **options):
                global count
                count += 1
                if count == n:
                    os._exit(9)
                return original(*arguments, **options)
            return call
        for name in ("fsync", "rename", "replace", "symlink", "mkdir"):
            setattr(os, name, dying(getattr(os, name)))
        shutil.rmtree = dying(shutil.rmtree)
        save(before + 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    after = newest_step()
    assert after in (before, before + 1), (before, after)
    if os.waitstatus_to_exitcode(status) == 0:
        assert after == before + 1
        break
else:
    raise AssertionError("no save got through")
assert n > 20, n
save(after + 1)
save(after + 2)
left = [name for name in os.listdir(store.directory) if name.startswith(".")]
assert not left, left
"""


def _run(script: str, directory: Path) -> None:
    done = run_forked([sys.executable, "-c", PRELUDE + script, str(directory)])
    assert done.returncode == 0, done.stderr


def test_a_kill_at_any_moment_leaves_the_previous_checkpoint_whole(tmp_path: Path) -> None:
    _run(KILLED_AT_RANDOM, tmp_path)


def test_a_crash_at_every_step_of_a_save_leaves_the_previous_checkpoint_whole(tmp_path: Path) -> None:
    _run(KILLED_EVERYWHERE, tmp_path)
