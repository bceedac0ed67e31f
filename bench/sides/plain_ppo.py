"""A PPO as one would write it down from the paper, in plain eager PyTorch: the reference that needs no peers.

It is a yardstick: ratios stored in baselines.json are against this file, so it is not to be made faster or slower.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from measurement import answer, point, steady, versions
from tasks import PPOTask, ppo_task


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Train, or only collect, and time it."""
    import gymnasium
    import numpy as np
    import torch
    from gymnasium.vector import AutoresetMode, SyncVectorEnv
    from torch import nn
    from torch.distributions import Categorical, Normal

    task = ppo_task(request["task"])
    torch.set_num_threads(request["threads"])
    torch.manual_seed(task.seed)

    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.make(task.env_id, disable_env_checker=True)

    envs = SyncVectorEnv([make] * task.num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    space = envs.single_action_space
    discrete = isinstance(space, gymnasium.spaces.Discrete)
    inputs = int(np.prod(envs.single_observation_space.shape or ()))
    outputs = int(space.n) if isinstance(space, gymnasium.spaces.Discrete) else int(np.prod(space.shape or ()))
    actor, critic = _network(inputs, outputs, task), _network(inputs, 1, task)
    log_std = nn.Parameter(torch.zeros(outputs))
    parameters = [*actor.parameters(), *critic.parameters(), *([] if discrete else [log_std])]
    optimizer = torch.optim.Adam(parameters, lr=task.learning_rate, eps=task.adam_eps)

    def policy(observation: torch.Tensor) -> Any:
        return Categorical(logits=actor(observation)) if discrete else Normal(actor(observation), log_std.exp())

    def log_prob(distribution: Any, action: torch.Tensor) -> torch.Tensor:
        return distribution.log_prob(action) if discrete else distribution.log_prob(action).sum(-1)

    T, N = task.rollout_steps, task.num_envs
    observations = torch.zeros(T, N, inputs)
    actions = torch.zeros((T, N), dtype=torch.int64) if discrete else torch.zeros(T, N, outputs)
    log_probs, rewards, ends, values = (torch.zeros(T, N) for _ in range(4))
    seen, _ = envs.reset(seed=task.seed)
    observation = torch.as_tensor(seen, dtype=torch.float32)
    points = [point(0)]
    gradient_steps = 0
    for rollout in range(task.warmup_rollouts + task.measured_rollouts):
        for t in range(T):
            with torch.no_grad():
                distribution = policy(observation)
                action = distribution.sample()
                observations[t], actions[t] = observation, action
                log_probs[t], values[t] = log_prob(distribution, action), critic(observation).squeeze(-1)
            given = action.numpy() if discrete else action.numpy().clip(space.low, space.high)  # type: ignore[attr-defined]
            seen, reward, terminated, truncated, _ = envs.step(given)
            rewards[t] = torch.as_tensor(reward, dtype=torch.float32)
            ends[t] = torch.as_tensor(terminated | truncated, dtype=torch.float32)
            observation = torch.as_tensor(seen, dtype=torch.float32)
        if task.learns:
            with torch.no_grad():
                following, running = critic(observation).squeeze(-1), torch.zeros(N)
                advantages = torch.zeros(T, N)
                for t in reversed(range(T)):
                    delta = rewards[t] + task.gamma * following * (1 - ends[t]) - values[t]
                    running = delta + task.gamma * task.gae_lambda * (1 - ends[t]) * running
                    advantages[t], following = running, values[t]
                returns = advantages + values
            columns = [c.flatten(0, 1) for c in (observations, actions, log_probs, advantages, returns)]
            for _ in range(task.epochs):
                for index in torch.randperm(T * N).split(task.batch_size):
                    batch_observations, batch_actions, old_log_probs, advantage, target = (c[index] for c in columns)
                    distribution = policy(batch_observations)
                    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                    ratio = (log_prob(distribution, batch_actions) - old_log_probs).exp()
                    clipped = ratio.clamp(1 - task.clip_range, 1 + task.clip_range)
                    policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
                    value_loss = (critic(batch_observations).squeeze(-1) - target).square().mean()
                    entropy = distribution.entropy().mean()
                    loss = policy_loss + task.value_coef * value_loss - task.entropy_coef * entropy
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(parameters, task.max_grad_norm)
                    optimizer.step()
                    gradient_steps += 1
        points.append(point((rollout + 1) * task.rollout_size, gradient_steps))
    envs.close()
    return {
        **steady(points, task.warmup_steps),
        "resolved": {"environment": "gymnasium SyncVectorEnv, same-step autoreset", "optimizer": "Adam", "mode": "eager"},
        "versions": versions("torch", "gymnasium", "mujoco", "numpy"),
    }


def _network(inputs: int, outputs: int, task: PPOTask) -> Any:
    from torch import nn

    layers: list[nn.Module] = []
    for before, after in pairwise((inputs, *task.hidden)):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(task.hidden[-1], outputs))


if __name__ == "__main__":
    answer(measure)
