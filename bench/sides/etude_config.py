"""The words that make Etude's config say what a task says."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from measurement import NotAvailableError
from tasks import PPOTask


def ppo_words(task: PPOTask, *, compiled: bool, threads: int) -> list[str]:
    """Return every setting that a preset could have changed, so that presets don't matter here."""
    from etude.config.schema import ExperimentConfig

    hidden = f"[{','.join(map(str, task.hidden))}]"
    words = [
        "experiment.device=cpu",
        f"experiment.threads={threads}",
        f"experiment.seed={task.seed}",
        f"environment.num_envs={task.num_envs}",
        "environment.normalize_observations=off",
        "environment.normalize_rewards=false",
        f"algorithm.rollout_steps={task.rollout_steps}",
        f"algorithm.batch_size={task.batch_size}",
        f"algorithm.epochs={task.epochs}",
        f"algorithm.gamma={task.gamma}",
        f"algorithm.gae_lambda={task.gae_lambda}",
        f"algorithm.learning_rate={task.learning_rate}",
        f"algorithm.clip_range={task.clip_range}",
        f"algorithm.value_coef={task.value_coef}",
        f"algorithm.entropy_coef={task.entropy_coef}",
        f"algorithm.max_grad_norm={task.max_grad_norm}",
        "algorithm.normalize_advantages=batch",
        "algorithm.target_kl=null",
        "algorithm.adaptive_kl=null",
        "algorithm.clip_value_loss=null",
        f"algorithm.optimizer={{type: adamw, eps: {task.adam_eps}, weight_decay: 0.0}}",
        *(f"network.{role}={{type: mlp, hidden_dims: {hidden}, activation: tanh}}" for role in ("actor", "critic")),
        f"training.total_steps={task.total_steps}",
        "training.early_stop=off",
        "evaluation.every_steps=0",
        "checkpoint.every_steps=0",
        f"logging.every_steps={task.rollout_size}",  # metrics are made once a rollout, as the peers do
        "logging.terminal=false",
    ]
    has_compile = any(field.name == "compile" for field in fields(ExperimentConfig))
    if compiled and not has_compile:
        raise NotAvailableError("this Etude has no experiment.compile")
    if has_compile:
        words.append(f"experiment.compile={'on' if compiled else 'off'}")
    return words


def plain(value: Any) -> Any:
    """Return settings as JSON can hold them."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
