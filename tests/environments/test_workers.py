"""Worker processes do what one process does, to the bit; what goes wrong in them is told, and nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from etude.environments.gymnasium import GymnasiumVector
from etude.environments.replay import ReplayError
from etude.environments.vector import VectorEnvironment
from etude.environments.workers import WorkerError, WorkerVector
from etude.errors import EtudeError, UserError
from tests.environments.test_conformance import actions, copied, parts
from tests.environments.test_snapshot import stored, trajectory

with warnings.catch_warnings():  # SWIG's types crash the interpreter where their warning is an error
    warnings.simplefilter("ignore")
    import gymnasium.envs.box2d

ROOT = Path(__file__).parents[2]


class Sensors(gymnasium.Env[Any, Any]):
    """Observes a dict, counts its steps, and does on request what no environment should."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (4, 4), np.uint8), "pose": spaces.Box(-9, 9, (3,), np.float64)}
    )
    action_space = spaces.Box(-1, 1, (2,), np.float64)

    def __init__(self, fault: str = "", at_step: int = 17, engine: Any = None) -> None:
        self.fault, self.at_step, self.steps, self.total = fault, at_step, 0, 0
        if engine is not None:
            self.engine = engine
        if fault == "build":
            raise KeyError("no such map")
        if fault == "refuse":
            raise UserError("environment.kwargs={'level': 9}: there are 8 levels")

    def observation(self) -> dict[str, Any]:
        return {"image": self.np_random.integers(0, 256, (4, 4), np.uint8), "pose": self.np_random.normal(size=3)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.total += 1
        if self.fault and self.total == self.at_step:
            self.fail()
        return self.observation(), float(action.sum()), bool(self.np_random.random() < 0.05), False, {}

    def fail(self) -> None:
        match self.fault:
            case "raise":
                raise ZeroDivisionError("the ground is gone")
            case "exit":
                os._exit(3)
            case "sys.exit":
                sys.exit("enough")
            case "hang":
                time.sleep(1_000)
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "child":
                subprocess.Popen(["sleep", "1000"])

    def render(self) -> Any:
        return np.full((2, 2, 3), self.steps, np.uint8)


def make_sensors() -> gymnasium.Env[Any, Any]:
    return TimeLimit(Sensors(), 30)


def make_named(name: str) -> Any:
    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.make(name, max_episode_steps=40, disable_env_checker=True)

    return make


MAKERS = {
    "dict": make_sensors,
    **{name: make_named(name) for name in ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "LunarLander-v3", "HalfCheetah-v5")},
}
SEEDS = [3, 1, 4, 5]


def workers_of(vector: WorkerVector) -> list[int]:
    return [worker.pid for worker in vector._crew.workers]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_gone(pids: list[int], within_s: float = 0.0) -> bool:
    deadline = time.monotonic() + within_s
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_alive, pids))


@pytest.fixture(autouse=True, scope="module")
def nursery_stays() -> Iterator[None]:
    """Holds a vector open, so that the nursery imports PyTorch once for all tests here."""
    keeper = WorkerVector(make_sensors, 1, workers=1, timeout_s=60)
    yield
    keeper.close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves its log where it is used


@pytest.fixture
def opened() -> Iterator[Any]:
    """Opens vectors, and checks that nothing of them is left when they are closed."""
    vectors: list[tuple[WorkerVector, list[int]]] = []

    def open_one(make: Any, num_envs: int = 4, workers: int = 2, timeout_s: float = 60.0) -> WorkerVector:
        vector = WorkerVector(make, num_envs, workers=workers, timeout_s=timeout_s)
        vectors.append((vector, workers_of(vector)))
        return vector

    yield open_one
    for vector, pids in vectors:
        vector.close()
        vector.close()
        assert all_gone(pids)


def moves_for(vector: VectorEnvironment, steps: int) -> list[torch.Tensor]:
    return actions(vector.single_action_space, steps, num_envs=vector.num_envs, seed=8)


# ---- the same as in-process -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", MAKERS)
def test_trajectories_are_those_of_one_process(name: str, workers: int, opened: Any) -> None:
    inside, outside = GymnasiumVector(MAKERS[name], 4), opened(MAKERS[name], workers=workers)
    assert outside.single_observation_space == inside.single_observation_space
    assert outside.single_action_space == inside.single_action_space
    assert outside.return_threshold == inside.return_threshold
    first, other = inside.reset(SEEDS)[0], outside.reset(SEEDS)[0]
    assert outside.snapshot == inside.snapshot
    assert parts(first).keys() == parts(other).keys()
    assert all(torch.equal(value, parts(other)[key]) for key, value in parts(first).items())
    assert {key: value.dtype for key, value in parts(first).items()} == {
        key: value.dtype for key, value in parts(other).items()
    }
    moves = moves_for(inside, 90)
    ends = 0
    for action in moves:
        here, there = inside.step(action), outside.step(action)
        for value, same in zip(here[:5], there[:5], strict=True):
            assert all(torch.equal(part, parts(same)[key]) for key, part in parts(value).items())
        assert (here.final_observation is here.observation) == (there.final_observation is there.observation)
        ends += int((there.terminated | there.truncated).sum())
    assert ends >= 8


@pytest.mark.parametrize("name", MAKERS)
def test_a_state_goes_on_in_workers_and_out_of_them(name: str, opened: Any) -> None:
    one, other = opened(MAKERS[name]), GymnasiumVector(MAKERS[name], 4)
    one.reset(SEEDS)
    other.reset(SEEDS)
    moves = moves_for(one, 170)
    assert trajectory(one, moves[:70]) == trajectory(other, moves[:70])
    state = stored(one.state_dict())
    assert repr(state) == repr(stored(other.state_dict()))
    expected = trajectory(one, moves[70:])
    for fresh in (GymnasiumVector(MAKERS[name], 4), opened(MAKERS[name], workers=3), one):
        fresh.load_state_dict(state)
        assert fresh.snapshot == ("replay" if name == "LunarLander-v3" else "exact")
        assert trajectory(fresh, moves[70:]) == expected


def test_what_cannot_be_known_is_not_claimed(opened: Any) -> None:
    vector = opened(lambda: Sensors(engine=object()))
    vector.reset(SEEDS)
    assert vector.snapshot == "restart"
    assert vector.state_dict() == {}


def test_a_step_is_a_view_of_shared_memory_that_stays_valid_through_the_next_one(opened: Any) -> None:
    vector = opened(MAKERS["Pendulum-v1"])
    vector.reset(SEEDS)
    moves = moves_for(vector, 3)
    first = vector.step(moves[0])
    kept = copied(first.observation)
    second = vector.step(moves[1])
    assert torch.equal(first.observation, kept[""])
    third = vector.step(moves[2])
    assert first.observation.data_ptr() == third.observation.data_ptr() != second.observation.data_ptr()
    assert first.reward.data_ptr() == third.reward.data_ptr()


def test_what_was_seen_last_outlives_the_workers(opened: Any) -> None:
    vector = opened(make_sensors)
    observation, _ = vector.reset(SEEDS)
    kept = copied(observation)
    vector.close()
    assert all(torch.equal(observation[key], value) for key, value in kept.items())


def test_more_workers_than_copies_are_not_started(opened: Any) -> None:
    assert len(workers_of(opened(make_sensors, num_envs=2, workers=5))) == 2


def test_a_picture_comes_from_the_first_copy(opened: Any) -> None:
    vector = opened(make_sensors)
    vector.reset(SEEDS)
    vector.step(moves_for(vector, 1)[0])
    assert vector.render().tolist() == np.ones((2, 2, 3)).tolist()


def test_global_generators_differ_between_workers(opened: Any) -> None:
    class Careless(Sensors):
        def observation(self) -> dict[str, Any]:
            return {"image": np.zeros((4, 4), np.uint8), "pose": np.array([np.random.normal(), torch.rand(()).item(), 0.0])}  # noqa: NPY002

    vector = opened(Careless, num_envs=2)
    pose = vector.reset([1, 2])[0]["pose"]
    assert pose[0, 0] != pose[1, 0]
    assert pose[0, 1] != pose[1, 1]


def test_workers_are_where_this_process_is(opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it has moved since the first of them was made: files, modules and variables are found."""
    tmp_path.joinpath("late_module.py").write_text("import os\nLEVEL = int(os.environ['LEVEL']) + int(open('level').read())")
    tmp_path.joinpath("level").write_text("2")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LEVEL", "40")

    def make() -> gymnasium.Env[Any, Any]:
        import late_module  # type: ignore[import-not-found] # written above

        return TimeLimit(Sensors(), late_module.LEVEL)

    vector = opened(make, num_envs=1, workers=1)
    vector.reset([1])
    (state,) = vector.state_dict()["envs"]
    assert state[0]["attributes"]["_max_episode_steps"] == 42


# ---- faults ---------------------------------------------------------------------------------------------------------------


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
    return str(failure.value)


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
    assert "raised in copy 2: ZeroDivisionError: the ground is gone" in said.splitlines()[0]
    assert 'raise ZeroDivisionError("the ground is gone")' in said, "the line of the environment's own code"


def test_a_process_that_exits_is_named_with_its_code(opened: Any) -> None:
    assert "died with exit code 3" in fail(opened(faulty("exit")))


def test_sys_exit_in_an_environment_is_a_failure_like_any_other(opened: Any) -> None:
    assert "SystemExit: enough" in fail(opened(faulty("sys.exit")))


def test_a_crash_in_native_code_is_told_with_the_line_that_led_there(opened: Any) -> None:
    said = fail(opened(faulty("crash")))
    assert "died by SIGSEGV" in said
    assert "test_workers.py" in said
    assert " in fail" in said


def test_a_killed_worker_is_noticed_at_once(opened: Any) -> None:
    vector = opened(make_sensors)
    vector.reset(SEEDS)
    moves = moves_for(vector, 40)
    trajectory(vector, moves[:20])
    pids = workers_of(vector)
    os.kill(pids[1], signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"worker 1 \(copies 2 to 3, process \d+\) died by SIGKILL") as failure:
        trajectory(vector, moves[20:])
    assert time.monotonic() - began < 2, "long before the timeout of a minute"
    assert str(pids[1]) in str(failure.value)
    assert all_gone(pids)


def test_a_worker_killed_in_the_middle_of_a_step_is_noticed_at_once(opened: Any) -> None:
    vector = opened(faulty("hang", at_step=3))
    vector.reset(SEEDS)
    pids = workers_of(vector)
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {pids[0]}"])
    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"worker 0 .* died by SIGKILL"):
        trajectory(vector, moves_for(vector, 3))
    assert time.monotonic() - began < 5
    assert all_gone(pids), "the other one hangs, and must go too"
    killer.wait()


def test_a_worker_that_hangs_is_given_up_and_says_where(opened: Any) -> None:
    vector = opened(faulty("hang"), num_envs=3, timeout_s=1.0)
    began = time.monotonic()
    said = fail(vector)
    assert time.monotonic() - began < 5
    assert "worker 1 (copies 1 to 2, process " in said
    assert "gave no answer for 1 s" in said
    assert "environment.worker_timeout_s" in said
    assert " in fail" in said, "the function it sleeps in"


def test_an_environment_that_cannot_be_made_is_named(opened: Any) -> None:
    with pytest.raises(WorkerError, match=r"worker 0 .* raised in copy 1: KeyError: 'no such map'"):
        opened(faulty("build"), num_envs=2, workers=1)


def test_the_users_own_slip_stays_the_users_own_slip() -> None:
    with pytest.raises(UserError, match=r"^environment.kwargs={'level': 9}: there are 8 levels$"):
        WorkerVector(lambda: Sensors("refuse"), 2, workers=2, timeout_s=60)


def test_a_replay_that_goes_another_way_is_told(opened: Any) -> None:
    vector = opened(MAKERS["LunarLander-v3"])
    vector.reset(SEEDS)
    trajectory(vector, moves_for(vector, 5))
    state = vector.state_dict()
    state["replay"][3]["actions"][2] = (state["replay"][3]["actions"][2] + 1) % 4
    with pytest.raises(ReplayError):
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
import os, sys, time
import gymnasium, numpy as np, torch
from my_module import Mine                      # lies beside this script
from etude.environments.workers import WorkerVector

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
interrupted = False
while not interrupted:
    try:
        time.sleep(0.01)
    except KeyboardInterrupt:
        interrupted = True
time.sleep(0.3)
for vector in made:
    for _ in range(20):
        vector.step(torch.zeros(4, dtype=torch.long))
    print(vector.snapshot, len(vector.state_dict()["envs"]), flush=True)
made[0].close()
"""
    process, pids = start(tmp_path, rest)
    for pid in pids:  # what a batch system does, on top of what a terminal does
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
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
    assert all_gone(pids, within_s=10)
    assert set(os.listdir("/dev/shm")) <= shared
