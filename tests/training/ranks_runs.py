"""Whole runs that two processes train together, through sessions as the command line has them; `main` is one of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from etude.compute.joining import STORE, leave
from etude.config.compose import compose
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from etude.training import assembly, session
from etude.training.together import Together, come_together
from etude.workflows.world_models.world_models import WorldModels
from tests.runs_compared import stopped_after

RANKS = 2
COMMON = ("experiment.processes=2", "experiment.device=cpu", "environment.num_envs=2", "evaluation.episodes=1",
          "checkpoint.every_steps=64", "logging.every_steps=32")  # fmt: skip
ON_POLICY = (*COMMON, "algorithm.rollout_steps=8", "training.total_steps=256", "evaluation.every_steps=128")
OFF_POLICY = (*COMMON, "algorithm.learning_starts=48", "algorithm.batch_size=16", "training.total_steps=160",
              "evaluation.every_steps=0", "buffers.replay.capacity=200", "algorithm.train_every=1",
              "algorithm.gradient_steps=1")  # fmt: skip
MODELS = (*COMMON, "algorithm.size=tiny", "algorithm.batch_size=2", "buffers.replay.sequence=8", "buffers.replay.capacity=400",
          "algorithm.train_ratio=16", "algorithm.learning_starts=32", "training.total_steps=80",
          "evaluation.every_steps=0")  # fmt: skip

TDMPC = (
    *COMMON,
    "algorithm.size=small",
    "algorithm.critics=3",
    "algorithm.latent_dim=16",
    "algorithm.batch_size=4",
    "algorithm.learning_starts=40",
    "algorithm.pretrain=6",
    "algorithm.samples=16",
    "algorithm.policy_samples=4",
    "algorithm.elites=4",
    "algorithm.iterations=2",
    "algorithm.updates_per_decision=0.5",
    "training.total_steps=100",
    "evaluation.every_steps=0",
    "evaluation.every_updates=0",
    *(f"network.{role}.hidden_dims=[16]" for role in ("encoder", "dynamics", "reward", "critic", "actor")),
)
EVOLUTION = (
    *COMMON,
    "algorithm.population=5",
    "environment.max_episode_steps=30",
    "environment.normalize_observations=off",
    "training.total_steps=1200",
    "evaluation.every_steps=0",
)
WORLD_MODELS = (
    *COMMON,
    "algorithm.latent_dim=3",
    "algorithm.memory_size=6",
    "algorithm.mixtures=2",
    "network.vae.hidden_dims=[8]",
    "algorithm.batch_size=8",
    "algorithm.memory_batch_size=4",
    "buffers.replay.sequence=5",
    "buffers.replay.capacity=400",
    "algorithm.collect_steps=120",
    "algorithm.vae_updates=12",
    "algorithm.memory_updates=12",
    "algorithm.population=4",
    "algorithm.episodes=3",
    "algorithm.dream_steps=7",
    "environment.max_episode_steps=20",
    "training.total_steps=600",
    "evaluation.every_steps=0",
    "evaluation.every_updates=0",
)

RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ppo": ("Pendulum-v1:ppo", (*ON_POLICY, "algorithm.batch_size=0.5", "algorithm.adaptive_kl=0.01", "algorithm.epochs=2",
                                "environment.normalize_observations=rolling", "environment.normalize_rewards=true")),
    "ppo-memory": ("CartPole-v1:ppo", (*ON_POLICY, "algorithm.batch_size=8", "algorithm.epochs=1", "network.actor.type=gru",
                                       "network.critic.type=gru")),
    "a2c": ("CartPole-v1:a2c", (*ON_POLICY, "environment.normalize_rewards=true")),
    "reinforce": ("CartPole-v1:reinforce", (*ON_POLICY, "environment.normalize_rewards=true")),
    "dqn": ("CartPole-v1:dqn", (*OFF_POLICY, "algorithm.epsilon=lin_0.9")),
    "sac": ("Pendulum-v1:sac", OFF_POLICY),
    "td3": ("Pendulum-v1:td3", OFF_POLICY),
    "tqc": ("Pendulum-v1:tqc", OFF_POLICY),
    "sql": ("Pendulum-v1:sql", OFF_POLICY),
    "dreamer": ("CartPole-v1:dreamer", MODELS),
    "planet": ("Pendulum-v1:planet", (*MODELS, "algorithm.horizon=3", "algorithm.samples=8", "algorithm.elites=2",
                                      "algorithm.iterations=2")),
    "tdmpc": ("Pendulum-v1:tdmpc", TDMPC),
    "cma_es": ("CartPole-v1:cma_es", (*EVOLUTION, "environment.num_envs=2")),
    "world_models": ("CartPole-v1:world_models", WORLD_MODELS),
    "dreams": ("CartPole-v1:world_models", (*WORLD_MODELS, "algorithm.dream=true", "algorithm.generations=40",
                                            "training.total_steps=120", "logging.every_updates=1")),
    "random": ("CartPole-v1:random", (*COMMON, "training.total_steps=160", "evaluation.every_steps=0")),
}  # fmt: skip


def resolve(name: str) -> Together:
    spec, words = RUNS[name]
    return come_together(assembly.resolve(compose(spec, words=words).config))


def train(name: str, folder: Path, together: Together, *, stop_after: int | None = None) -> Run:
    """Train a run of those above to its end, or to a stop that the first rank asks for."""
    spec, words = RUNS[name]
    stopping: Any = nullcontext()
    if stop_after is not None and name == "dreams":
        stopping = nullcontext() if together.world.is_first else signalled_amid_a_dream()
    elif stop_after is not None and together.world.is_first:
        stopping = stopped_after(stop_after)
    with open(os.devnull, "w") as nowhere, stopping:
        training = session.start(compose(spec, words=words), root=folder, quiet=True, stream=nowhere, together=together)
        return training.finish().run


@contextmanager
def signalled_amid_a_dream(generation: int = 5) -> Iterator[None]:
    """The process that dreams this generation is sent a signal when it has begun."""
    original = WorldModels.dreamt

    def dreamt(self: WorldModels, *args: Any) -> Any:
        if self.evolution.generation == generation:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *args)

    WorldModels.dreamt = dreamt  # type: ignore[method-assign] # for a while
    try:
        yield
    finally:
        WorldModels.dreamt = original  # type: ignore[method-assign]


def resume(run: Run, together: Together) -> None:
    with open(os.devnull, "w") as nowhere:
        session.reopen(run, quiet=True, stream=nowhere, together=together).finish()


def main(*names: str) -> None:
    """Be one of the ranks: train each run whole, and once more with a stop on the way."""
    torch.set_num_threads(1)
    folder = Path(os.environ[STORE]).parent
    together = resolve(names[0])
    for name in names:
        train(name, folder / name / "whole", together)
        steps_alone = OFF_POLICY[-1] in RUNS[name][1] or name == "tdmpc"
        run = train(name, folder / name / "stopped", together, stop_after=20 if steps_alone else 4)
        assert run.status in ("interrupted", "running"), (name, run.status, run.record.get("stop_reason"))
        if name == "dreams":
            assert read_rows(run.metrics_path)[-1]["updates"] == 12 + 12 + 5, "the generation that was left counts for nothing"
        together.world.wait()
        resume(run, together)
    leave()
