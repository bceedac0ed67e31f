"""Whether a change of the code leaves what is learnt as it was, to the bit.

    python -m tools.weights record before.json     # on one version
    python -m tools.weights compare before.json    # on another, on the same machine

Every algorithm trains for a few thousand steps on a small task, eager, with three seeds. Recorded are the hash of the last
checkpoint's policy and that of the logged rows without times. They are those of one machine: another processor rounds
differently.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import etude
from etude.errors import EtudeError

SEEDS = (1, 2, 3)
_SMALL = ("algorithm.learning_starts=200", "training.total_steps=800", "network.actor.hidden_dims=[32]",
          "network.critic.hidden_dims=[32]")  # fmt: skip
CASES: Mapping[str, tuple[str, ...]] = {
    "ppo": ("CartPole-v1:ppo", "training.total_steps=8192"),
    "ppo-continuous": ("Pendulum-v1:ppo", "training.total_steps=8192", "environment.normalize_observations=rolling",
                       "environment.normalize_rewards=true", "algorithm.target_kl=0.01"),
    "ppo-memory": ("CartPoleNoVelocity-v0:ppo", "training.total_steps=2048", "algorithm.rollout_steps=32",
                   "algorithm.batch_size=128", "network.actor.type=gru", "network.critic.type=gru"),
    "ppo-shared": ("CartPole-v1:ppo", "training.total_steps=4096", "network.critic.type=head",
                   "network.actor.hidden_dims=[32, 32]"),
    "a2c": ("CartPole-v1:a2c", "training.total_steps=8000"),
    "reinforce": ("CartPole-v1:reinforce", "training.total_steps=6000"),
    "dqn": ("CartPole-v1:dqn", "training.total_steps=3000", "algorithm.learning_starts=500"),
    "dqn-rainbow": ("CartPole-v1:dqn", "training.total_steps=1500", "algorithm.learning_starts=500", "algorithm.n_step=3",
                    "buffers.replay.type=prioritized", "algorithm.double=true", "algorithm.dueling=true",
                    "algorithm.distribution=categorical"),
    "sac": ("Pendulum-v1:sac", *_SMALL),
    "sac-discrete": ("CartPole-v1:sac", *_SMALL),
    "sac-n-step": ("Pendulum-v1:sac", *_SMALL, "algorithm.n_step=3", "environment.num_envs=2"),
    "sac-hindsight": ("PointReach-v0:sac", *_SMALL, "buffers.replay.type=hindsight"),
    "td3": ("Pendulum-v1:td3", *_SMALL),
    "tqc": ("Pendulum-v1:tqc", *_SMALL),
    "sql": ("Pendulum-v1:sql", "algorithm.learning_starts=200", "training.total_steps=400"),
    "cma_es": ("CartPole-v1:cma_es", "training.total_steps=6000"),
    "q_learning": ("FrozenLake-v1:q_learning", "training.total_steps=5000"),
}  # fmt: skip
COMMON = ("experiment.compile=off", "experiment.device=cpu", "evaluation.episodes=2", "environment.workers=0")


def measure(case: str, seed: int, runs: Path) -> dict[str, str]:
    """Train one case and return its hashes."""
    run = etude.train(*CASES[case], *COMMON, f"experiment.seed={seed}", runs=runs / f"{case}-{seed}")
    policy: Any = run.checkpoints().find("last").load(["policy"])["policy"]
    rows = [{key: value for key, value in row.items() if not key.startswith(("time/", "system/"))} for row in run.rows]
    return {"policy": _hash(policy), "rows": hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()}


def _hash(state: object) -> str:
    digest = hashlib.sha256()

    def add(value: object) -> None:
        if isinstance(value, torch.Tensor):
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        elif isinstance(value, Mapping):
            for key in sorted(value, key=str):
                add(value[key])
        elif isinstance(value, list | tuple):
            for item in value:
                add(item)

    add(state)
    return digest.hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Record, or compare and say what differs."""
    parser = argparse.ArgumentParser(prog="python -m tools.weights", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("verb", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="*", choices=tuple(CASES), default=tuple(CASES))
    given = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in given.only:
            for seed in SEEDS:
                try:
                    found[f"{case}/{seed}"] = measure(case, seed, Path(folder))
                except EtudeError as error:
                    found[f"{case}/{seed}"] = {"error": str(error)}
                print(f"{case}/{seed}: {found[f'{case}/{seed}']}", file=sys.stderr)
    if given.verb == "record":
        given.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return int(any("error" in entry for entry in found.values()))
    before = json.loads(given.file.read_text(encoding="utf-8"))
    differing = [f"{name}: {key}" for name, entry in found.items() for key in entry if entry[key] != before[name].get(key)]
    print("\n".join(differing) or f"{len(found)} trainings, all the same")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
