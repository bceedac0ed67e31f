"""What a metric row holds and how its names are built, read and translated from other systems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

Row: TypeAlias = Mapping[str, float]
"""One moment of a run: the five counters and any number of ``<namespace>/<name>`` values."""

COUNTERS = ("decisions", "env_steps", "updates", "episodes", "cycles")

# What differs between two runs that learned exactly the same: the machine and its clock.
_MACHINE_NAMESPACES = ("time", "system")


def split(name: str) -> tuple[str, str]:
    """Return a metric's namespace and its name within it; a counter's namespace is empty."""
    namespace, slash, rest = name.partition("/")
    return (namespace, rest) if slash else ("", name)


def join(namespace: str, name: str) -> str:
    """Build a metric's full name; the reverse of `split`."""
    return f"{namespace}/{name}" if namespace else name


def deterministic_items(row: Row) -> dict[str, float]:
    """Return the part of a row that a reproduced run must repeat: all but ``time/`` and ``system/``."""
    return {name: value for name, value in row.items() if split(name)[0] not in _MACHINE_NAMESPACES}


def canonical(name: str) -> str:
    """Return our spelling of a metric that a reference system named; an unknown name stays as it is."""
    if name in _SPELLINGS:
        return _SPELLINGS[name]
    namespace, rest = split(name)
    if namespace in _STAGES and (episode := re.fullmatch(r"roll/ep_(rew|len)/(\w+)", rest)):
        quantity = {"rew": "return", "len": "length"}[episode[1]]
        return f"{_STAGES[namespace]}/{quantity}_{episode[2]}"
    if match := re.fullmatch(r"(evaluation|training)/episode-(reward|length)-(mean|min|max|std)", name):
        stage = {"evaluation": "eval", "training": "collect"}[match[1]]
        quantity = {"reward": "return", "length": "length"}[match[2]]
        return f"{stage}/{quantity}_{match[3]}"
    if match := re.fullmatch(r"train/opt/grads/norm/(\w+)", name):
        return f"train/grad_norm_{match[1]}"
    if match := re.fullmatch(r"train/hp/(\w+)", name):
        return f"hp/{match[1]}"
    if namespace == "val":
        return f"eval/{rest}"
    return name


# gymnasium-solver's three stages. Its training episodes are what we call collected ones.
_STAGES = {"train": "collect", "val": "eval", "eval": "eval", "test": "test"}

_SPELLINGS = {
    # gymnasium-solver. Its `roll/return/*` are the critic's targets, not episode returns: left alone on purpose.
    "train/cnt/total_timesteps": "env_steps",
    "train/cnt/total_episodes": "episodes",
    "train/cnt/total_rollouts": "cycles",
    "train/roll/episodes": "collect/episodes",
    "val/roll/episodes": "eval/episodes",
    "train/opt/loss/total": "train/loss",
    "train/opt/loss/policy": "train/policy_loss",
    "train/opt/loss/value": "train/value_loss",
    "train/opt/loss/entropy": "train/entropy_loss",
    "train/opt/policy/entropy": "train/entropy",
    "train/opt/ppo/kl": "train/kl",
    "train/opt/ppo/approx_kl": "train/approx_kl",
    "train/opt/ppo/clip_fraction": "train/clip_fraction",
    "train/opt/ppo/kl_stop_triggered": "train/kl_stop_triggered",
    "train/opt/value/explained_var": "train/explained_variance",
    "train/opt/grads/norm/all": "train/grad_norm",
    "train/hp/policy_lr": "hp/learning_rate",
    "train/sys/timing/fps": "time/steps_per_second",
    "train/sys/timing/time_elapsed": "time/elapsed_s",
    "train/sys/timing/eta_s": "time/eta_s",
    # legged gyms on rsl_rl
    "Train/mean_reward": "collect/return_mean",
    "Train/mean_episode_length": "collect/length_mean",
    "Perf/total_fps": "time/steps_per_second",
    "Policy/mean_noise_std": "train/action_std",
    "mean_value_loss": "train/value_loss",
    "mean_surrogate_loss": "train/policy_loss",
    # softlearning
    "total_timestep": "env_steps",
    "num_train_steps": "updates",
    "sampler/episodes": "episodes",
    "sampler/max-path-return": "collect/return_best",
    "update/Q_value-mean": "train/q_value",
    "update/Q_loss-mean": "train/q_loss",
    "update/policy_loss-mean": "train/policy_loss",
    "update/alpha": "train/alpha",
    "update/alpha_loss-mean": "train/alpha_loss",
    "policy/entropy-mean": "train/entropy",
}
