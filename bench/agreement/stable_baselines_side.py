"""Stable-Baselines3's half, run by the peers' python: its own `train` on Etude's weights, batches and noise.

    python stable_baselines_side.py FOLDER        reads FOLDER/*.npz, writes FOLDER/answers/*.npz

Losses are read from its logger and gradients from its optimisers: nothing of its arithmetic is repeated here. Its code is
told what to learn from, and which random numbers to use, by standing in for the buffer and for torch's noise.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples, RolloutBufferSamples
from torch import nn

Arrays = dict[str, np.ndarray]
HUGE = 1e9


class _Spaces(gymnasium.Env[Any, Any]):
    """An environment that is asked for its spaces only."""

    def __init__(self, observation_size: int, action_space: gymnasium.Space[Any]) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observation_size,), np.float32)
        self.action_space = action_space


def _linears(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


class _Networks:
    """Its networks under Etude's names: {"critic.0": the linear layers of the first critic}.

    Where one of Etude's layers is several here (mean and deviation), their rows follow one another.
    """

    def __init__(self, layers: dict[str, list[list[nn.Linear]]]) -> None:
        self._layers = layers

    @torch.no_grad()
    def load(self, case: Arrays) -> None:
        for name, layers in self._layers.items():
            for position, parts in enumerate(layers):
                for kind in ("weight", "bias"):
                    rows = torch.from_numpy(case[f"weight.{name}.{position}.{kind}"])
                    sizes = [part.out_features for part in parts]
                    for part, own in zip(parts, rows.split(sizes), strict=True):
                        getattr(part, kind).copy_(own)

    def read(self, prefix: str, of: Callable[[torch.Tensor], Any]) -> Arrays:
        found = {}
        for name, layers in self._layers.items():
            for position, parts in enumerate(layers):
                for kind in ("weight", "bias"):
                    values = [of(getattr(part, kind)) for part in parts]
                    if all(value is not None for value in values):
                        found[f"{prefix}.{name}.{position}.{kind}"] = torch.cat(values).detach().numpy().copy()
        return found


def _alone(layers: list[nn.Linear]) -> list[list[nn.Linear]]:
    return [[layer] for layer in layers]


@contextmanager
def _noise(of_normal: list[np.ndarray], of_fill: list[np.ndarray]) -> Iterator[None]:
    """Within, torch's normal distributions and `normal_` use these standard normal numbers, in turn."""
    from torch.distributions import normal

    drawn, filled = iter(of_normal), iter(of_fill)
    original, original_fill = normal._standard_normal, torch.Tensor.normal_
    normal._standard_normal = lambda shape, dtype, device: torch.from_numpy(next(drawn)).reshape(shape)
    torch.Tensor.normal_ = lambda self, mean, std: self.copy_(mean + std * torch.from_numpy(next(filled)))  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        normal._standard_normal, torch.Tensor.normal_ = original, original_fill  # type: ignore[method-assign]


@contextmanager
def _recorded(optimizers: list[torch.optim.Optimizer]) -> Iterator[dict[torch.Tensor, torch.Tensor]]:
    """Within, steps change nothing; yields the gradients that they were given."""
    gradients: dict[torch.Tensor, torch.Tensor] = {}
    originals = [optimizer.step for optimizer in optimizers]
    for optimizer in optimizers:

        def step(owner: torch.optim.Optimizer = optimizer) -> None:
            gradients.update({p: p.grad.clone() for group in owner.param_groups for p in group["params"] if p.grad is not None})

        optimizer.step = step  # type: ignore[method-assign,assignment]
    try:
        yield gradients
    finally:
        for optimizer, original in zip(optimizers, originals, strict=True):
            optimizer.step = original  # type: ignore[method-assign]


def _replay(model: Any, case: Arrays, actions: str) -> None:
    """Let the model's buffer give the case's batches, from the first on."""
    turn = iter(range(len(case["batch.reward"])))

    def sample(batch_size: int, env: Any = None) -> ReplayBufferSamples:
        k = next(turn)
        column = {name: torch.from_numpy(case[f"batch.{name}"][k]) for name in ("reward", "terminated", actions)}
        action = column[actions]
        return ReplayBufferSamples(
            torch.from_numpy(case["batch.observation"][k]),
            action if action.ndim > 1 else action.reshape(-1, 1),
            torch.from_numpy(case["batch.final_observation"][k]),
            column["terminated"].float().reshape(-1, 1),
            column["reward"].reshape(-1, 1),
        )

    model.replay_buffer.sample = sample


def _logger(model: Any) -> dict[str, Any]:
    model.set_logger(Logger(None, []))
    return model.logger.name_to_value


def _hidden(case: Arrays, network: str) -> list[int]:
    biases = [name for name in case if name.startswith(f"weight.{network}.") and name.endswith(".bias")]
    return [len(case[name]) for name in biases][:-1]


def _box(case: Arrays) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(-1, 1, case["batch.sample"].shape[-1:], np.float32)


def _size(case: Arrays) -> int:
    return case["batch.observation"].shape[-1]


def _options(case: Arrays) -> dict[str, Any]:
    """What SAC and TD3 are both made with."""
    settings = {"learning_rate": "rate", "gamma": "gamma", "tau": "tau"}
    return {
        **{option: float(case[f"setting.{name}"]) for option, name in settings.items()},
        "buffer_size": 1,
        "policy_kwargs": {"net_arch": _hidden(case, "actor"), "optimizer_class": torch.optim.SGD},
        "device": "cpu",
    }


def sac(case: Arrays, *, epsilon: float | None = None) -> Arrays:
    """SAC as it is; with `epsilon`, another one in place of its 1e-6 in the logarithm of tanh's slope."""
    entropy = float(case["setting.target_entropy"])
    model = sb3.SAC("MlpPolicy", _Spaces(_size(case), _box(case)), target_entropy=entropy, **_options(case))
    if epsilon is not None:
        model.actor.action_dist.epsilon = epsilon
    critics, targets = [[getattr(part, f"qf{i}") for i in range(2)] for part in (model.critic, model.critic_target)]
    networks = _Networks(
        {
            "actor": [*_alone(_linears(model.actor.latent_pi)), [model.actor.mu, model.actor.log_std]],
            **{f"critic.{i}": _alone(_linears(critic)) for i, critic in enumerate(critics)},
            **{f"target_critic.{i}": _alone(_linears(target)) for i, target in enumerate(targets)},
        }
    )
    networks.load(case)
    model.log_ent_coef.data.copy_(torch.from_numpy(case["weight.log_alpha"]))
    logged, noise = _logger(model), [case["batch.noise"][0], case["batch.next_noise"][0]]
    optimizers = [model.actor.optimizer, model.critic.optimizer, model.ent_coef_optimizer]
    before = networks.read("after", lambda p: p)
    _replay(model, case, "sample")
    with _noise(noise, []), _recorded(optimizers) as gradients:
        model.train(1, batch_size=len(noise[0]))
    found = {
        "result.critic loss": logged["train/critic_loss"],
        "result.actor loss": logged["train/actor_loss"],
        "result.temperature loss": logged["train/ent_coef_loss"],
        "result.temperature gradient": gradients[model.log_ent_coef].reshape(()),
        **networks.read("gradient", gradients.get),
    }
    networks.load({name.replace("after.", "weight.", 1): value for name, value in before.items()})
    _replay(model, case, "sample")
    with _noise(noise, []):
        model.train(1, batch_size=len(noise[0]))
    return _arrays({**found, **networks.read("after", lambda p: p)})


def td3(case: Arrays) -> Arrays:
    """TD3: the losses of the first batch, then two updates, the second with actor and targets."""
    model = sb3.TD3("MlpPolicy", _Spaces(_size(case), _box(case)), policy_delay=1, **_options(case))
    critics, targets = [[getattr(part, f"qf{i}") for i in range(2)] for part in (model.critic, model.critic_target)]
    networks = _Networks(
        {
            "actor": _alone(_linears(model.actor.mu)),
            "target_actor": _alone(_linears(model.actor_target.mu)),
            **{f"critic.{i}": _alone(_linears(critic)) for i, critic in enumerate(critics)},
            **{f"target_critic.{i}": _alone(_linears(target)) for i, target in enumerate(targets)},
        }
    )
    networks.load(case)
    logged, noise = _logger(model), list(case["batch.next_noise"])
    _replay(model, case, "sample")
    with _noise([], noise), _recorded([model.actor.optimizer, model.critic.optimizer]) as gradients:
        model.train(1, batch_size=len(noise[0]))
    found = {
        "result.critic loss": logged["train/critic_loss"],
        "result.actor loss": logged["train/actor_loss"],
        **networks.read("gradient", gradients.get),
    }
    networks.load(case)
    model.policy_delay, model._n_updates = 2, 0
    _replay(model, case, "sample")
    with _noise([], noise):
        model.train(2, batch_size=len(noise[0]))
    return _arrays({**found, **networks.read("after", lambda p: p)})


def dqn(case: Arrays) -> Arrays:
    """DQN as it was first published: no double choice, no dueling streams."""
    choices = len(case["weight.q.2.bias"])
    model = sb3.DQN(
        "MlpPolicy",
        _Spaces(_size(case), gymnasium.spaces.Discrete(choices)),
        learning_rate=float(case["setting.rate"]),
        gamma=float(case["setting.gamma"]),
        max_grad_norm=HUGE,
        buffer_size=1,
        policy_kwargs={"net_arch": _hidden(case, "q"), "optimizer_class": torch.optim.SGD},
        device="cpu",
    )
    networks = _Networks({"q": _alone(_linears(model.q_net)), "target_q": _alone(_linears(model.q_net_target))})
    networks.load(case)
    logged = _logger(model)
    _replay(model, case, "action")
    with _recorded([model.policy.optimizer]) as gradients:
        model.train(1)
    found = {"result.loss": logged["train/loss"], **networks.read("gradient", gradients.get)}
    model.max_grad_norm = float(case["setting.max_grad_norm"])
    _replay(model, case, "action")
    model.train(1)
    after = {name: value for name, value in networks.read("after", lambda p: p).items() if name.startswith("after.q.")}
    return _arrays({**found, **after})


def ppo(case: Arrays) -> Arrays:
    """PPO's loss on one minibatch, for continuous or discrete actions."""
    continuous = "weight.log_std" in case
    choices = len(case["weight.actor.2.bias"])
    model = sb3.PPO(
        "MlpPolicy",
        _Spaces(_size(case), _box(case) if continuous else gymnasium.spaces.Discrete(choices)),
        n_steps=64,
        n_epochs=1,
        clip_range=float(case["setting.clip"]),
        ent_coef=float(case["setting.entropy_coef"]),
        vf_coef=float(case["setting.value_coef"]),
        max_grad_norm=HUGE,
        policy_kwargs={"net_arch": {"pi": _hidden(case, "actor"), "vf": _hidden(case, "critic")}},
        device="cpu",
    )
    extractor = model.policy.mlp_extractor
    actor, critic = _linears(extractor.policy_net), _linears(extractor.value_net)
    networks = _Networks(
        {"actor": _alone([*actor, model.policy.action_net]), "critic": _alone([*critic, model.policy.value_net])}
    )
    networks.load(case)
    if continuous:
        model.policy.log_std.data.copy_(torch.from_numpy(case["weight.log_std"]))
    rows = {name.removeprefix("batch."): torch.from_numpy(column) for name, column in case.items() if name.startswith("batch.")}
    names = ("observation", "sample", "values", "log_prob", "advantages", "returns")
    model.rollout_buffer.get = lambda batch_size: iter([RolloutBufferSamples(*(rows[name] for name in names))])
    logged = _logger(model)
    with _recorded([model.policy.optimizer]) as gradients:
        model.train()
    found = {
        "result.loss": logged["train/loss"],
        "result.policy loss": logged["train/policy_gradient_loss"],
        "result.value loss": logged["train/value_loss"],
        "result.entropy": -logged["train/entropy_loss"],
        "result.clip fraction": logged["train/clip_fraction"],
        **networks.read("gradient", gradients.get),
    }
    if continuous:
        found["result.log_std gradient"] = gradients[model.policy.log_std]
    return _arrays(found)


def gae(case: Arrays) -> Arrays:
    """Advantages from its rollout buffer, with the value after a time limit added to the reward as its collector does."""
    gamma = float(case["setting.gamma"])
    steps, envs = case["batch.reward"].shape
    space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    buffer = RolloutBuffer(steps, space, space, "cpu", float(case["setting.gae_lambda"]), gamma, envs)
    begins = np.ones(envs, dtype=bool)
    ended = np.zeros(envs, dtype=bool)
    for t in range(steps):
        reward = case["batch.reward"][t].copy()
        truncated = case["batch.truncated"][t]
        reward[truncated] += gamma * case["batch.final_value"][t][truncated]
        value = torch.from_numpy(case["batch.value"][t])
        buffer.add(np.zeros((envs, 1)), np.zeros((envs, 1)), reward, begins, value, torch.zeros(envs))
        ended = truncated | case["batch.terminated"][t]
        begins = ended
    buffer.compute_returns_and_advantage(torch.from_numpy(case["batch.last_value"]), ended)
    return _arrays({"result.advantages": buffer.advantages, "result.returns": buffer.returns})


CASES: dict[str, list[tuple[str, Callable[[Arrays], Arrays]]]] = {
    "sac": [("sac", sac), ("sac_exact_slope", lambda case: sac(case, epsilon=0.0))],
    "td3": [("td3", td3)],
    "dqn": [("dqn", dqn)],
    "ppo_continuous": [("ppo_continuous", ppo)],
    "ppo_discrete": [("ppo_discrete", ppo)],
    "gae": [("gae", gae)],
}


def _arrays(tree: dict[str, Any]) -> Arrays:
    return {name: np.asarray(value) for name, value in tree.items()}


def main(folder: Path) -> None:
    """Answer every case in a folder."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    (folder / "answers").mkdir()
    for file in sorted(folder.glob("*.npz")):
        with np.load(file, allow_pickle=False) as stored:
            case = dict(stored)
        for name, answer in CASES[file.stem]:
            np.savez(folder / "answers" / f"{name}.npz", allow_pickle=False, **answer(case))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
