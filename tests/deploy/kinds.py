"""Policies of all kinds, with small networks and random weights, in tasks that step fast."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch

from etude.acting.policy import Policy
from etude.config.compose import compose
from etude.environments.make import make_environment
from etude.environments.vector import VectorEnvironment
from etude.training import assembly
from etude.using.stored_policy import OpenPolicy

_WORLD = ("algorithm.size=tiny",)
_PLANS = ("algorithm.samples=12", "algorithm.elites=3", "algorithm.iterations=2", "algorithm.horizon=3")
_TDMPC = tuple(f"network.{role}.hidden_dims=[16]" for role in ("encoder", "dynamics", "reward", "critic", "actor"))
_DATA = ("buffers.data.dataset=none",)
KINDS: dict[str, tuple[str, ...]] = {
    "ppo": ("CartPole-v1:ppo", "environment.normalize_observations=rolling"),
    "ppo_gru": ("CartPole-v1:ppo", "network.actor.type=gru", "network.critic.type=gru"),
    "ppo_lstm": ("CartPoleNoVelocity-v0:ppo", "network.actor.type=lstm", "network.critic.type=lstm"),
    "ppo_pictures": (
        "CartPole-v1:ppo",
        "environment.wrappers=[pixel_observations, {id: resize, size: 36}]",
        "network.actor.type=cnn",
        "network.critic.type=cnn",
    ),
    "a2c": ("CartPole-v1:a2c",),
    "reinforce": ("Pendulum-v1:reinforce",),
    "dqn": ("CartPole-v1:dqn",),
    "dqn_c51": ("CartPole-v1:dqn", "algorithm.distribution=categorical", "algorithm.dueling=true"),
    "sac": ("Pendulum-v1:sac",),
    "sac_discrete": ("CartPole-v1:sac",),
    "td3": ("Pendulum-v1:td3",),
    "tqc": ("Pendulum-v1:tqc",),
    "sql": ("Pendulum-v1:sql",),
    "q_learning": ("FrozenLake-v1:q_learning",),
    "cma_es": ("CartPole-v1:cma_es",),
    "bc": ("Pendulum-v1:bc", *_DATA),
    "bc_mixture": ("Pendulum-v1:bc", "algorithm.head=mixture", *_DATA),
    "bc_gru": ("CartPole-v1:bc", "network.actor.type=gru", *_DATA),
    "iql": ("Pendulum-v1:iql", *_DATA),
    "td3_bc": ("Pendulum-v1:td3_bc", *_DATA),
    "diffusion_policy": (
        "Pendulum-v1:diffusion_policy",
        "network.denoiser.widths=[8,16]",
        "algorithm.sampling_steps=3",
        "algorithm.action_steps=3",
        *_DATA,
    ),
    "diffusion_policy_ddpm": (
        "Pendulum-v1:diffusion_policy",
        "network.denoiser.type=denoising_transformer",
        "network.denoiser.width=16",
        "algorithm.sampler=ddpm",
        "algorithm.diffusion_steps=4",
        *_DATA,
    ),
    "tdmpc": ("Pendulum-v1:tdmpc", *_TDMPC, *_PLANS, "algorithm.policy_samples=4", "algorithm.latent_dim=16"),
    "tdmpc_without_plans": ("Pendulum-v1:tdmpc", *_TDMPC, "algorithm.plan=false", "algorithm.latent_dim=16"),
    "planet": ("Pendulum-v1:planet", *_WORLD, *_PLANS),
    "dreamer": ("CartPole-v1:dreamer", *_WORLD),
    "dreamer_v1": ("Pendulum-v1:dreamer_v1", *_WORLD),
    "dreamer_v2": ("CartPole-v1:dreamer_v2", *_WORLD),
    "world_models": ("Pendulum-v1:world_models", "algorithm.latent_dim=3", "algorithm.memory_size=6", "algorithm.dream=false"),
}


@dataclass(frozen=True, kw_only=True)
class FreshPolicy(OpenPolicy):
    """A policy with random weights, as if of a run."""

    run: Any = field(default_factory=lambda: SimpleNamespace(id="fresh", record={}))
    checkpoint: Any = field(default_factory=lambda: SimpleNamespace(name="none", counters={"env_steps": 0}))

    def build(self, environment: VectorEnvironment) -> Policy:
        spaces = environment.single_observation_space, environment.single_action_space
        policy = assembly.build_workflow(self.config, *spaces).policy()
        generator = torch.Generator().manual_seed(1)
        for value in policy.state_dict().values():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value.add_(torch.randn(value.shape, generator=generator, dtype=value.dtype), alpha=0.1)
        return policy


def fresh(name: str, *words: str) -> FreshPolicy:
    """One of the policies above."""
    spec, *own = KINDS[name]
    quiet = ("experiment.device=cpu", "evaluation.every_updates=0", "evaluation.every_steps=0")
    config = compose(spec, words=(*own, *quiet, *words)).config
    return FreshPolicy(name, replace(config, environment=replace(config.environment, max_episode_steps=20)))


def made(name: str) -> tuple[Policy, VectorEnvironment]:
    """Its policy and environment."""
    policy = fresh(name)
    environment = make_environment(policy.config.environment, num_envs=1)
    return policy.build(environment), environment
