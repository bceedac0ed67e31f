"""SIGKILL of one of two ranks at random moments: the other ends by itself, and a resume comes to the same end, to the last bit.

    python -m tools.attack.ranks --kills 20 [--spec Pendulum-v1:sac] [--seed 1]

A run is killed and resumed until it is finished, then compared with the run that was never killed, and the next one begins.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from etude.runs.run import Run
from etude.training import ranks
from tests.faults.tiny_run import assert_whole_to_the_last_row
from tests.forked import ForkedProgram
from tests.runs_compared import assert_same_run

SETTINGS = {
    "CartPole-v1:ppo": ("environment.num_envs=4", "algorithm.rollout_steps=16", "algorithm.batch_size=0.5",
                        "algorithm.epochs=4", "training.total_steps=8192", "checkpoint.every_steps=512",
                        "logging.every_steps=128",
                        "evaluation.every_steps=2048", "evaluation.episodes=2"),
    "Pendulum-v1:sac": ("environment.num_envs=2", "algorithm.learning_starts=200", "algorithm.batch_size=32",
                        "training.total_steps=3200", "checkpoint.every_steps=200", "logging.every_steps=50",
                        "evaluation.every_steps=0", "buffers.replay.capacity=4000"),
}  # fmt: skip


class Sitting:
    """A command, in a fork of this process, whose ranks are forks too: seconds less to start, and killed as any process."""

    def __init__(self, arguments: list[str], output: Path) -> None:
        self._output = output
        with output.open("wb") as stream:
            command = [sys.executable, "-m", "etude", *arguments, "-q"]
            self.process = ForkedProgram(command, stdout=stream, stderr=stream, start_new_session=True)

    def end(self) -> tuple[int, str]:
        """Wait for its exit code, and what it said."""
        return self.process.wait(1800), self._output.read_text()


def ranks_of(parent: int) -> dict[int, int]:
    """Return the process of each rank that a command has started."""
    found = {}
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda folder: int(folder.name)):
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) != parent:
                continue
            found[len(found)] = int(folder.name)  # started in their order
        except (OSError, ValueError):
            continue
    return found


def rows_of(root: Path) -> int:
    """Return how many rows were logged."""
    return sum(len(path.read_bytes().splitlines()) for path in root.glob("2*/metrics.jsonl"))


def kill_one(command: Sitting, root: Path, dice: random.Random) -> tuple[int, float, list[int]] | None:
    """Kill a rank some rows on; returns which, how long the others lived, and who is left. None: it had ended before."""
    until = rows_of(root) + dice.randrange(12)
    while rows_of(root) < until and command.process.poll() is None:
        time.sleep(0.01)
    time.sleep(dice.random() * 0.5)
    ranks = ranks_of(command.process.pid)
    victim = dice.choice([0, 1])
    if command.process.poll() is not None or victim not in ranks:
        return None
    os.kill(ranks[victim], signal.SIGKILL)
    began = time.monotonic()
    code, said = command.end()
    took = time.monotonic() - began
    assert code == 1, f"ended with {code}: {said}"
    assert f"rank {victim} was killed by SIGKILL" in said, said
    left = [pid for pid in ranks.values() if Path(f"/proc/{pid}").exists()]
    return victim, took, left


def main() -> None:
    """Kill, resume and compare; an assertion says what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--spec", default="CartPole-v1:ppo", choices=SETTINGS)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    ranks.subprocess.Popen = ForkedProgram  # type: ignore[assignment,misc] # as far as it is used
    from etude.cli import train as _  # noqa: F401 - what forks need is imported once

    dice, kills, same = random.Random(asked.seed), 0, 0
    training = ["train", asked.spec, *SETTINGS[asked.spec], "--processes=2"]
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "said.txt"
        code, text = Sitting([*training, f"--runs={folder}/whole"], said).end()
        assert code == 0, text
        (reference,) = Run.list(Path(folder) / "whole")
        while kills < asked.kills:
            root = Path(folder) / f"killed-{kills}"
            command = Sitting([*training, f"--runs={root}"], said)
            while True:
                killed = kill_one(command, root, dice) if kills < asked.kills else None
                if killed is None:
                    code, text = command.end()
                    assert code == 0, text
                    break
                kills += 1
                victim, took, left = killed
                found = Run.list(root) if root.exists() else []
                print(
                    f"kill {kills}: rank {victim}, all ended after {took:.1f} s, left {left}, {rows_of(root)} rows", flush=True
                )
                assert not left
                again = ["resume", str(found[0].path)] if found else [*training, f"--runs={root}"]
                command = Sitting(again, said)
            (run,) = Run.list(root)
            assert_whole_to_the_last_row(run)
            assert_same_run(run, reference)
            same += 1
            print(f"{run.id}: the same as the run that was never killed", flush=True)
    print(f"{kills} kills, {same} runs, all the same")


if __name__ == "__main__":
    main()
