"""What a worker that fails, dies or hangs does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from etude.environments.snapshots.rewind import RewindError
from etude.environments.workers.vector import WorkerError, WorkerVector
from etude.errors import EtudeError, UserError
from tests.environments.test_snapshot import trajectory

with warnings.catch_warnings():  # SWIG's types crash the interpreter where their warning is an error
    warnings.simplefilter("ignore")
    import gymnasium.envs.box2d

from tests.environments.worker_doubles import MAKERS, ROOT, SEEDS, Sensors, all_gone, make_sensors, moves_for, workers_of

# No worker is waited for so long: the test's own limit comes first.
NEVER = 10_000.0

pytestmark = pytest.mark.usefixtures("folder", "nursery_stays")


def fail(vector: WorkerVector, steps: int = 30) -> str:
    """Step until it fails, and return what is said about it. All workers must be gone by then, not only when closed."""
    pids = workers_of(vector)
    vector.reset(SEEDS[: vector.num_envs])
    with pytest.raises(WorkerError) as failure:
        trajectory(vector, moves_for(vector, steps))
    assert all_gone(pids)
    with pytest.raises(EtudeError, match="closed"):
        vector.step(moves_for(vector, 1)[0])
    with pytest.raises(EtudeError, match="closed"):
        vector.state_dict()
    vector.__dict__["failed_with"] = failure.value
    return str(failure.value)


def details(vector: WorkerVector) -> str:
    return vector.__dict__["failed_with"].details


def faulty(fault: str, at_step: int = 17) -> Any:
    """Makes copies of which the second of each worker has a fault."""
    made: list[int] = []

    def make() -> gymnasium.Env[Any, Any]:
        made.append(0)
        return Sensors(fault if len(made) == 2 else "", at_step)

    return make


def test_an_environment_that_raises_is_named_with_its_traceback(opened: Any) -> None:
    vector = opened(faulty("raise"), num_envs=3)  # worker 0 has copy 0 alone, worker 1 has 1 and 2
    said = fail(vector)
    assert said.startswith("worker 1 (copies 1 to 2, process ")
    assert ": copy 2 of the environment raised in step: ZeroDivisionError: the ground is gone (" in said
    assert re.search(r"worker_doubles\.py:\d+\)$", said), "the line of the environment's own code"
    assert "\n" not in said
    assert 'raise ZeroDivisionError("the ground is gone")' in details(vector), "for run.log"


def test_a_process_that_exits_is_named_with_its_code(opened: Any) -> None:
    assert "died with exit code 3" in fail(opened(faulty("exit")))


def test_sys_exit_in_an_environment_is_a_failure_like_any_other(opened: Any) -> None:
    assert "SystemExit: enough" in fail(opened(faulty("sys.exit")))


def test_a_crash_in_native_code_is_told_with_the_line_that_led_there(opened: Any) -> None:
    said = fail(opened(faulty("crash")))
    assert "died by SIGSEGV" in said
    assert "worker_doubles.py" in said
    assert " in fail" in said


def test_a_killed_worker_is_noticed_at_once(opened: Any) -> None:
    vector = opened(make_sensors, timeout_s=NEVER)
    vector.reset(SEEDS)
    moves = moves_for(vector, 40)
    trajectory(vector, moves[:20])
    pids = workers_of(vector)
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"worker 1 \(copies 2 to 3, process \d+\) died by SIGKILL") as failure:
        trajectory(vector, moves[20:])
    assert str(pids[1]) in str(failure.value)
    assert all_gone(pids)


def test_a_worker_killed_in_the_middle_of_a_step_is_noticed_at_once(opened: Any) -> None:
    vector = opened(faulty("hang", at_step=3), timeout_s=NEVER)
    vector.reset(SEEDS)
    pids = workers_of(vector)
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {pids[0]}"])
    with pytest.raises(WorkerError, match=r"worker 0 .* died by SIGKILL"):
        trajectory(vector, moves_for(vector, 3))
    assert all_gone(pids), "the other one hangs, and must go too"
    killer.wait()


def test_a_worker_that_hangs_is_given_up_and_says_where(opened: Any) -> None:
    vector = opened(faulty("hang"), num_envs=3, timeout_s=15.0)  # workers must begin within it too, on a busy machine
    said = fail(vector)
    assert "worker 1 (copies 1 to 2, process " in said
    assert "gave no answer for 15 s" in said
    assert "environment.worker_timeout_s" in said
    assert " in fail" in said, "the function it sleeps in"


def test_an_environment_that_cannot_be_made_is_named(opened: Any) -> None:
    with pytest.raises(WorkerError, match=r"worker 0 .*: copy 1 .* raised in making it: KeyError: 'no such map'"):
        opened(faulty("build"), num_envs=2, workers=1)


def test_the_users_own_slip_stays_the_users_own_slip() -> None:
    with pytest.raises(UserError, match=r"^environment.kwargs={'level': 9}: there are 8 levels$"):
        WorkerVector(lambda: Sensors("refuse"), 2, workers=2, timeout_s=60)


def test_a_replay_that_goes_another_way_is_told(opened: Any) -> None:
    vector = opened(MAKERS["LunarLander-v3"])
    vector.reset(SEEDS)
    trajectory(vector, moves_for(vector, 5))
    state = vector.state_dict()
    state["rewind"][3]["actions"][2] = (state["rewind"][3]["actions"][2] + 1) % 4
    with pytest.raises(RewindError):
        vector.load_state_dict(state)


def test_programs_that_an_environment_started_end_with_its_worker(opened: Any) -> None:
    vector = opened(faulty("child", at_step=1))
    vector.reset(SEEDS)
    vector.step(moves_for(vector, 1)[0])
    groups = [set(Path("/proc").glob("[0-9]*/stat")), set(workers_of(vector))]
    sleepers = [
        int(path.parent.name)
        for path in groups[0]
        if (fields := _stat(path)) and fields[2] in groups[1] and int(path.parent.name) not in groups[1]
    ]
    assert len(sleepers) == 2
    vector.close()
    assert all_gone(sleepers, within_s=2)


def _stat(path: Any) -> list[int]:
    try:
        return [int(field) if field.lstrip("-").isdigit() else 0 for field in path.read_text().rpartition(")")[2].split()]
    except OSError:
        return []


def test_an_interrupt_in_the_middle_of_a_step_leaves_nothing_running(opened: Any) -> None:
    vector = opened(faulty("hang", at_step=2))
    vector.reset(SEEDS)
    pids = workers_of(vector)
    moves = moves_for(vector, 2)
    vector.step(moves[0])
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            vector.step(moves[1])
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert all_gone(pids)


def test_a_vector_that_is_forgotten_ends_its_workers() -> None:
    vector = WorkerVector(make_sensors, 2, workers=2, timeout_s=60)
    pids = workers_of(vector)
    del vector
    assert all_gone(pids)


# ---- whole scripts --------------------------------------------------------------------------------------------------------

SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell turns off for what runs in its background
import gymnasium, numpy as np, torch
from my_module import Mine                      # lies beside this script
from etude.environments.workers.vector import WorkerVector

class Here(Mine):                               # nowhere but in this script, which has no `if __name__`
    pass

gymnasium.register("Here-v0", entry_point=Here, max_episode_steps=9)
made = [WorkerVector(make, 4, workers=2, timeout_s=60) for make in (Mine, Here, lambda: gymnasium.make("Here-v0"))]
for vector in made:
    vector.reset([1, 2, 3, 4])
pids = [worker.pid for vector in made for worker in vector._crew.workers]
pids.append(made[0]._crew.nursery._process.pid)
print("ready", *pids, flush=True)
"""
MODULE = """
import gymnasium, numpy as np, time

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}
    def step(self, action):
        if action:
            time.sleep(1000)
        return np.zeros(1, np.float32), 1.0, False, False, {}
"""


def start(folder: Path, rest: str) -> tuple[subprocess.Popen[str], list[int]]:
    folder.joinpath("my_module.py").write_text(MODULE)
    folder.joinpath("script.py").write_text(SCRIPT + rest)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "script.py"],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert process.stdout is not None
    line = process.stdout.readline().split()
    if not line:
        pytest.fail(process.communicate()[1])
    return process, [int(pid) for pid in line[1:]]


def test_an_interrupt_of_everything_lets_the_script_save_and_leaves_nothing(tmp_path: Path) -> None:
    """No script needs `if __name__`; Ctrl-C and a cluster's SIGTERM don't stop workers; who forgets to close leaves nothing."""
    shared = set(os.listdir("/dev/shm"))
    rest = """
try:
    print("waiting", flush=True)
    while True:
        time.sleep(0.01)
except KeyboardInterrupt:
    time.sleep(0.3)
for vector in made:
    for _ in range(20):
        vector.step(torch.zeros(4, dtype=torch.long))
    print(vector.snapshot, len(vector.state_dict()["envs"]), flush=True)
made[0].close()
"""
    process, pids = start(tmp_path, rest)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    for pid in pids:  # what a batch system does, on top of what a terminal does
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines() == ["exact 4"] * 3
    assert all_gone(pids)
    assert set(os.listdir("/dev/shm")) <= shared


def test_workers_end_with_a_parent_that_is_killed_even_if_they_hang(tmp_path: Path) -> None:
    shared = set(os.listdir("/dev/shm"))
    process, pids = start(tmp_path, "made[1].step(torch.ones(4, dtype=torch.long))")
    time.sleep(0.3)
    process.kill()
    process.communicate()
    assert all_gone(pids, within_s=60)
    assert set(os.listdir("/dev/shm")) <= shared
