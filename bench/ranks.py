"""What several processes cost and bring: one process, torchrun with one process, and ranks on this machine.

    python -m bench.ranks [--device cpu] [--processes 2] [--steps 50000] [--spec CartPole-v1:ppo]

Ranks have their share of the copies and of the batch: every line is the same training. What is compared are environment steps
per second of a whole run, without its start; that of torchrun is one process with a world around it, and must cost nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

COPIES, STEPS = 8, 32


def main() -> None:
    """Measure, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--spec", default="CartPole-v1:ppo")
    asked = parser.parse_args()
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1")
    ranks = asked.processes
    lines = {"one process": ((), 1), "torchrun, one": (torchrun, 1), f"{ranks} processes": ((), ranks)}
    first = None
    for name, (launcher, count) in lines.items():
        words = [f"environment.num_envs={COPIES // count}", f"algorithm.rollout_steps={STEPS}", "algorithm.batch_size=1.0",
                 f"training.total_steps={asked.steps}", "evaluation.every_steps=0", "experiment.compile=off",
                 f"experiment.device={asked.device}"]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            options = ["-q", f"--runs={folder}", *([f"--processes={count}"] if count > 1 else [])]
            command = [sys.executable, *launcher, "-m", "etude", "train", asked.spec, *words, *options]
            subprocess.run(command, check=True, capture_output=True)
            (path,) = Path(folder).glob("2*/summary.json")
            speed = json.loads(path.read_text())["steps_per_second"]
        first = first or speed
        print(f"{name:<16}{speed:10,.0f} steps/s  {speed / first:5.2f}x", flush=True)


if __name__ == "__main__":
    main()
