"""DQN, SAC and TD3 of Stable-Baselines3 and of SBX, which share an interface; run by the peers' python."""

from __future__ import annotations

import importlib
from typing import Any

from measurement import Point, answer, point, steady, versions
from tasks import ReplayTask, replay_task


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Train and time it."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    task = replay_task(request["task"])
    torch.set_num_threads(request["threads"])
    env = make_vec_env(task.env_id, n_envs=1, seed=task.seed, env_kwargs={"disable_env_checker": True})
    library = {"sb3": "stable_baselines3", "sbx": "sbx"}[request["library"]]
    model = getattr(importlib.import_module(library), task.algorithm.upper())(**_arguments(task, env, library))
    points: list[Point] = []

    class Clock(BaseCallback):
        """Looks at the clock where a rollout begins: the update before it has ended."""

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if not points or self.num_timesteps - points[-1].units >= task.log_every:
                points.append(point(self.num_timesteps, model._n_updates))

    model.learn(task.total_steps, callback=Clock())
    points.append(point(model.num_timesteps, model._n_updates))
    kept = ("batch_size", "gamma", "tau", "learning_rate", "learning_starts", "train_freq", "gradient_steps", "buffer_size")
    return {
        **steady(points, task.warmup_steps),
        "resolved": {
            "environment": "DummyVecEnv with Monitor",
            **{name: str(getattr(model, name, None)) for name in kept},
            "policy_kwargs": {key: getattr(value, "__name__", value) for key, value in model.policy_kwargs.items()},
        },
        "versions": versions("stable_baselines3", "sbx-rl", "jax", "torch", "gymnasium", "mujoco", "numpy"),
    }


def _arguments(task: ReplayTask, env: Any, library: str) -> dict[str, Any]:
    arguments = {
        "policy": "MlpPolicy",
        "env": env,
        "policy_kwargs": {"net_arch": list(task.hidden)},
        "learning_rate": task.learning_rate,
        "buffer_size": task.capacity,
        "learning_starts": task.learning_starts,
        "batch_size": task.batch_size,
        "tau": task.tau,
        "gamma": task.gamma,
        "train_freq": task.train_every,
        "gradient_steps": task.gradient_steps,
        "seed": task.seed,
        "device": "cpu",
    }
    if task.algorithm == "dqn":
        # Their interval is in environment steps: as many as have `target_every` gradient steps.
        interval = max(1, task.target_every * task.train_every // task.gradient_steps)
        arguments |= {"target_update_interval": interval, "exploration_initial_eps": task.epsilon}
        arguments |= {"exploration_final_eps": task.epsilon, "exploration_fraction": 0.01}
    return arguments


if __name__ == "__main__":
    answer(measure)
