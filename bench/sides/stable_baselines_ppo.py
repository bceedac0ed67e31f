"""Stable-Baselines3's PPO and SBX's, which share an interface; run by the peers' python."""

from __future__ import annotations

from typing import Any

from measurement import Point, answer, point, steady, versions
from tasks import PPOTask, ppo_task


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Train, or only collect, and time it."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv

    task = ppo_task(request["task"])
    torch.set_num_threads(request["threads"])
    options = {"disable_env_checker": True}  # Etude makes its environments without the checker as well
    env = make_vec_env(task.env_id, n_envs=task.num_envs, seed=task.seed, vec_env_cls=DummyVecEnv, env_kwargs=options)
    jax = request["library"] == "sbx"
    model = _sbx(task, env) if jax else _sb3(task, env)
    if not task.learns:
        model.train = lambda: None
    points: list[Point] = []

    class RolloutClock(BaseCallback):
        """A rollout begins where the update before it ended."""

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            points.append(point(self.num_timesteps, _gradient_steps(model, jax)))

    model.learn(task.total_steps, callback=RolloutClock())
    points.append(point(model.num_timesteps, _gradient_steps(model, jax)))
    return {
        **steady(points, task.warmup_steps),
        "resolved": {
            "environment": "DummyVecEnv with Monitor",
            "n_steps": model.n_steps,
            "batch_size": model.batch_size,
            "n_epochs": model.n_epochs,
            "gamma": model.gamma,
            "gae_lambda": model.gae_lambda,
            "learning_rate": model.learning_rate,
            "clip_range": task.clip_range,
            "ent_coef": model.ent_coef,
            "vf_coef": model.vf_coef,
            "max_grad_norm": model.max_grad_norm,
            "normalize_advantage": model.normalize_advantage,
            "policy": "MlpPolicy",
            "policy_kwargs": {key: getattr(value, "__name__", value) for key, value in model.policy_kwargs.items()},
            "jax_devices": _jax_devices() if jax else None,
        },
        "versions": versions("stable_baselines3", "sbx-rl", "jax", "torch", "gymnasium", "mujoco", "numpy"),
    }


def _arguments(task: PPOTask) -> dict[str, Any]:
    return {
        "n_steps": task.rollout_steps,
        "batch_size": task.batch_size,
        "n_epochs": task.epochs,
        "gamma": task.gamma,
        "gae_lambda": task.gae_lambda,
        "learning_rate": task.learning_rate,
        "clip_range": task.clip_range,
        "ent_coef": task.entropy_coef,
        "vf_coef": task.value_coef,
        "max_grad_norm": task.max_grad_norm,
        "seed": task.seed,
        "device": "cpu",
    }


def _sb3(task: PPOTask, env: Any) -> Any:
    from stable_baselines3 import PPO
    from torch import nn

    networks = {"net_arch": list(task.hidden), "activation_fn": nn.Tanh}
    optimizer = {"optimizer_kwargs": {"eps": task.adam_eps}}
    return PPO("MlpPolicy", env, policy_kwargs=networks | optimizer, **_arguments(task))


def _sbx(task: PPOTask, env: Any) -> Any:
    from flax import linen
    from sbx import PPO

    networks = {"net_arch": list(task.hidden), "activation_fn": linen.tanh}
    optimizer = {"optimizer_kwargs": {"eps": task.adam_eps}}
    return PPO("MlpPolicy", env, policy_kwargs=networks | optimizer, **_arguments(task))


def _gradient_steps(model: Any, jax: bool) -> int:
    """Count what the optimisers did, not what the settings say they would do."""
    if jax:
        return int(model.policy.actor_state.step)
    states = model.policy.optimizer.state.values()
    return int(next((state["step"] for state in states), 0))


def _jax_devices() -> str:
    import jax

    return str(jax.devices())


if __name__ == "__main__":
    answer(measure)
