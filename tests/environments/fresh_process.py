"""Environments saved here go on in a process that has seen nothing of this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from etude.environments.vector import VectorEnvironment
from etude.runs.checkpoint import CheckpointStore
from tests.environments.test_conformance import actions
from tests.forked import run_forked

_GO_ON = """
import sys
from pathlib import Path
from etude.runs.checkpoint import CheckpointStore
from tests.environments.test_conformance import actions
from {module} import make, trajectory
for name in sys.argv[2:]:
    environment = make(name)
    environment.load_state_dict(CheckpointStore(Path(sys.argv[1]) / name, keep=1).find('last').load()['rank/0'])
    moves = actions(environment.single_action_space, 400, num_envs=2, seed=6)
    print(trajectory(environment, moves[100:]))
"""


def assert_goes_on_elsewhere(
    module: str,
    make: Callable[[str], VectorEnvironment],
    trajectory: Callable[..., str],
    names: Sequence[str],
    folder: Path,
) -> None:
    """Save each environment after 100 steps: `module`, which has both functions, takes the next 300 the same elsewhere."""
    expected = []
    for name in names:
        environment = make(name)
        environment.reset([31, 32])
        moves = actions(environment.single_action_space, 400, num_envs=2, seed=6)
        trajectory(environment, moves[:100])
        store = CheckpointStore(folder / name, keep=1)
        store.save({"rank/0": environment.state_dict()}, counters={"env_steps": 100, "updates": 0}, metadata={})
        expected.append(trajectory(environment, moves[100:]))
    command = [sys.executable, "-c", _GO_ON.format(module=module), str(folder), *names]
    done = run_forked(command, cwd=Path(__file__).parents[2], env=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == expected
