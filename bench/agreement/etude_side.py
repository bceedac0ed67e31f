"""Etude's half: makes weights and batches, and writes them with the losses, gradients and updated weights they lead to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Generator, Tensor

from agreement.layers import Arrays, linear_layers
from etude.components.returns import generalized_advantages
from etude.compute.noise import Noise
from etude.config.compose import compose
from etude.config.registry import algorithms
from etude.training import assembly

OBSERVATION, ACTION, CHOICES, BATCH = 5, 3, 4, 64
RATE = 0.1
"""Of plain gradient descent, in the whole updates: Adam would turn rounding of tiny gradients into whole steps."""
HIDDEN = [24, 16]


def write_cases(folder: Path) -> list[str]:
    """Write one file a case and return their names; those whose algorithm is missing are left out."""
    cases = {
        "sac": _sac,
        "td3": _td3,
        "ppo_continuous": _ppo_continuous,
        "ppo_discrete": _ppo_discrete,
        "gae": _gae,
        "dqn": _dqn,
    }
    made = [name for name in cases if name.partition("_")[0] in ("gae", *algorithms.names())]
    for name in made:
        np.savez(folder / f"{name}.npz", allow_pickle=False, **cases[name](Generator().manual_seed(7)))
    return made


def _workflow(spec: str, action_space: spaces.Space[Any], generator: Generator, *words: str) -> Any:
    """Build an algorithm on made-up spaces, with weights that no initialisation would give."""
    config = compose(spec, words=("experiment.device=cpu", "experiment.compile=off", *words)).config
    observation_space = spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
    workflow: Any = assembly.build_workflow(assembly.resolve(config), observation_space, action_space)
    roles = ("actor", "critic", "target_actor", "target_critic", "q", "target_q", "head", "temperature")
    with torch.no_grad():
        for role in roles:
            for parameter in workflow.__dict__[role].parameters() if role in workflow.__dict__ else ():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return workflow


def _hidden(*roles: str) -> list[str]:
    return [f"network.{role}.hidden_dims={HIDDEN}".replace(" ", "") for role in roles]


def _transitions(generator: Generator, count: int, gamma: float) -> dict[str, Tensor]:
    """`count` batches of transitions, some of which end an episode."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(count, BATCH, *shape, generator=generator)

    terminated = torch.rand(count, BATCH, generator=generator) < 0.2
    return {
        "observation": normal(OBSERVATION),
        "next_observation": normal(OBSERVATION),
        "sample": normal(ACTION).tanh(),
        "action": torch.randint(CHOICES, (count, BATCH), generator=generator),
        "reward": normal(),
        "terminated": terminated,
        "discount": gamma * (~terminated).float(),
        "noise": normal(ACTION),
        "next_noise": normal(ACTION),
    }


def _batches(rows: Mapping[str, Tensor]) -> Arrays:
    return {f"batch.{name}": column.numpy() for name, column in rows.items()}


def _gradients(
    w: Any, position: int, rows: Mapping[str, Any], noise: Noise | None = None
) -> tuple[Tensor, Mapping[str, Tensor], dict[Tensor, Tensor]]:
    stage = w._executor.update.stages[position]
    loss, metrics, *_ = stage.loss(rows, **({"noise": noise} if "noise" in stage.takes() else {}))
    parameters = [p for group in stage.optimizer.param_groups for p in group["params"]]
    gradients = torch.autograd.grad(loss, parameters)
    return loss.detach(), metrics, dict(zip(parameters, gradients, strict=True))


def _update(w: Any, rows: Mapping[str, Any], noise: Noise) -> None:
    """Take the next update of a run: what is due takes part."""
    (due,) = w._executor.due(1)
    w._executor.once(rows, due, noise)
    w._executor.taken.value += 1


def _batch(rows: Mapping[str, Tensor], k: int = 0) -> dict[str, Tensor]:
    return {name: column[k] for name, column in rows.items()}


def _continuous(algorithm: str, generator: Generator) -> Any:
    """An algorithm for continuous actions, with plain gradient descent."""
    words = (*_hidden("actor", "critic"), f"algorithm.batch_size={BATCH}", "algorithm.optimizer=sgd")
    words = (*words, f"algorithm.learning_rate={RATE}", "algorithm.gamma=0.97", "algorithm.tau=0.05")
    return _workflow(f"Pendulum-v1:{algorithm}", spaces.Box(-1, 1, (ACTION,), np.float32), generator, *words)


def _sac(generator: Generator) -> Arrays:
    w = _continuous("sac", generator)
    both, rows = (OBSERVATION, ACTION), _transitions(generator, 1, 0.97)

    def weights(prefix: str) -> Arrays:
        return {
            **linear_layers(f"{prefix}.actor", w.actor),
            **linear_layers(f"{prefix}.critic", w.critic, both),
            **linear_layers(f"{prefix}.target_critic", w.target_critic, both),
        }

    begin = {**weights("weight"), "weight.log_alpha": w.temperature.log_alpha.detach().numpy().copy()}
    noise = Noise(drawn={"policy": torch.cat([rows["noise"], rows["next_noise"]])})
    critic_loss, _, of_critic = _gradients(w, 0, _batch(rows), noise)
    both_losses, metrics, of_actor = _gradients(w, 1, _batch(rows), noise)
    temperature_loss = metrics["train/temperature_loss"]
    found = {
        "result.critic loss": critic_loss,
        "result.actor loss": both_losses - temperature_loss,
        "result.temperature loss": temperature_loss,
        "result.temperature gradient": of_actor[w.temperature.log_alpha],
    }
    gradients = {
        **linear_layers("gradient.critic", w.critic, both, of_critic.__getitem__),
        **linear_layers("gradient.actor", w.actor, None, of_actor.__getitem__),
    }
    _update(w, _batch(rows), noise)
    settings = {"setting.gamma": 0.97, "setting.tau": 0.05, "setting.rate": RATE, "setting.target_entropy": -float(ACTION)}
    return _arrays({**begin, **_batches(rows), **found, **gradients, **weights("after"), **settings})


def _td3(generator: Generator) -> Arrays:
    w = _continuous("td3", generator)
    both, rows = (OBSERVATION, ACTION), _transitions(generator, 2, 0.97)

    def weights(prefix: str) -> Arrays:
        return {
            **linear_layers(f"{prefix}.actor", w.actor),
            **linear_layers(f"{prefix}.target_actor", w.target_actor),
            **linear_layers(f"{prefix}.critic", w.critic, both),
            **linear_layers(f"{prefix}.target_critic", w.target_critic, both),
        }

    begin = weights("weight")
    noise = [Noise(drawn={"target": drawn}) for drawn in rows["next_noise"]]
    critic_loss, _, of_critic = _gradients(w, 0, _batch(rows), noise[0])
    actor_loss, _, of_actor = _gradients(w, 1, _batch(rows))
    found = {
        "result.critic loss": critic_loss,
        "result.actor loss": actor_loss,
        **linear_layers("gradient.critic", w.critic, both, of_critic.__getitem__),
        **linear_layers("gradient.actor", w.actor, None, of_actor.__getitem__),
    }
    for k in range(2):  # the critics move in both, actor and targets in the second
        _update(w, _batch(rows, k), noise[k])
    settings = {"setting.gamma": 0.97, "setting.tau": 0.05, "setting.rate": RATE}
    return _arrays({**begin, **_batches(rows), **found, **weights("after"), **settings})


def _dqn(generator: Generator) -> Arrays:
    words = (*_hidden("q"), "algorithm.double=false", "algorithm.dueling=false", "algorithm.distribution=none")
    words = (*words, f"algorithm.batch_size={BATCH}", "algorithm.optimizer=sgd", "algorithm.max_grad_norm=0.05")
    words = (*words, f"algorithm.learning_rate={RATE}", "algorithm.gamma=0.97")
    w = _workflow("CartPole-v1:dqn", spaces.Discrete(CHOICES), generator, *words)
    rows = _transitions(generator, 1, 0.97)
    rows["reward"] = 3 * rows["reward"]  # errors on both sides of Huber's bend
    begin = {**linear_layers("weight.q", w.q.network), **linear_layers("weight.target_q", w.target_q.network)}
    loss, _, of_q = _gradients(w, 0, _batch(rows))
    gradients = linear_layers("gradient.q", w.q.network, None, of_q.__getitem__)
    _update(w, _batch(rows), Noise())  # with the gradient clipped
    after = linear_layers("after.q", w.q.network)
    settings = {"setting.gamma": 0.97, "setting.rate": RATE, "setting.max_grad_norm": 0.05}
    return _arrays({**begin, **_batches(rows), "result.loss": loss, **gradients, **after, **settings})


def _ppo_continuous(generator: Generator) -> Arrays:
    return _ppo(spaces.Box(-1, 1, (ACTION,), np.float32), torch.randn(BATCH, ACTION, generator=generator), generator)


def _ppo_discrete(generator: Generator) -> Arrays:
    return _ppo(spaces.Discrete(CHOICES), torch.randint(CHOICES, (BATCH,), generator=generator), generator)


def _ppo(action_space: spaces.Space[Any], sample: Tensor, generator: Generator) -> Arrays:
    spec = "Pendulum-v1:ppo" if isinstance(action_space, spaces.Box) else "CartPole-v1:ppo"
    words = (*_hidden("actor", "critic"), "algorithm.clip_range=0.2", "algorithm.entropy_coef=0.01", "algorithm.value_coef=0.7")
    w = _workflow(spec, action_space, generator, *words)
    observation = torch.randn(BATCH, OBSERVATION, generator=generator)
    with torch.no_grad():
        now = w.head(w.actor(observation)).log_prob(sample)
    rows = {
        "observation": observation,
        "sample": sample,
        "log_prob": now + 0.3 * torch.randn(BATCH, generator=generator),  # ratios on both sides of the clip
        "advantages": torch.randn(BATCH, generator=generator),
        "returns": torch.randn(BATCH, generator=generator),
        "values": torch.randn(BATCH, generator=generator),
    }
    begin = {**linear_layers("weight.actor", w.actor), **linear_layers("weight.critic", w.critic)}
    continuous = isinstance(action_space, spaces.Box)
    if continuous:
        begin["weight.log_std"] = w.head.log_std.detach().numpy().copy()
    loss, metrics, of = _gradients(w, 0, rows)
    found = {
        "result.loss": loss,
        "result.policy loss": metrics["train/policy_loss"],
        "result.value loss": metrics["train/value_loss"],
        "result.entropy": metrics["train/entropy"],
        "result.clip fraction": metrics["train/clip_fraction"],
        **linear_layers("gradient.actor", w.actor, None, of.__getitem__),
        **linear_layers("gradient.critic", w.critic, None, of.__getitem__),
    }
    if continuous:
        found["result.log_std gradient"] = of[w.head.log_std]
    settings = {"setting.clip": 0.2, "setting.entropy_coef": 0.01, "setting.value_coef": 0.7}
    return _arrays({**begin, **_batches(rows), **found, **settings})


def _gae(generator: Generator) -> Arrays:
    """Episodes that end, episodes that a time limit cuts, and one that goes on, in three environments."""
    steps, envs, gamma, gae_lambda = 40, 3, 0.97, 0.9
    chance = torch.rand(steps, envs, generator=generator)
    terminated, truncated = chance < 0.1, (chance > 0.9)
    chance_values = torch.randn(steps + 1, envs, generator=generator)
    values, following = chance_values[:-1], chance_values[1:]
    final_values = torch.randn(steps, envs, generator=generator)  # of observations that an episode ended in
    ended = terminated | truncated
    rewards = torch.randn(steps, envs, generator=generator)
    next_values = torch.where(ended, final_values, following)
    advantages = generalized_advantages(rewards, values, next_values, terminated, ended, gamma, gae_lambda)
    rows = {"reward": rewards, "value": values, "last_value": following[-1], "final_value": final_values}
    rows |= {"terminated": terminated, "truncated": truncated}
    settings = {"setting.gamma": gamma, "setting.gae_lambda": gae_lambda}
    return _arrays({**_batches(rows), "result.advantages": advantages, "result.returns": advantages + values, **settings})


def _arrays(tree: Mapping[str, Any]) -> Arrays:
    return {name: value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value) for name, value in tree.items()}
