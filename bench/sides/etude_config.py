"""The words that make Etude's config say what a task says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from measurement import NotAvailableError, Point, point
from tasks import PPOTask, ReplayTask


def ppo_words(task: PPOTask, *, mode: str, threads: int) -> list[str]:
    """Return every setting that a preset could have changed, so that presets don't matter here."""
    return [
        *_common_words(task, mode=mode, threads=threads),
        f"environment.num_envs={task.num_envs}",
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
        *_networks(("actor", "critic"), task.hidden, "tanh"),
        f"logging.every_steps={task.rollout_size}",  # metrics are made once a rollout, as the peers do
    ]


def replay_words(task: ReplayTask, *, mode: str, threads: int) -> list[str]:
    """Return every setting that a preset could have changed, so that presets don't matter here."""
    words = [
        *_common_words(task, mode=mode, threads=threads),
        "environment.num_envs=1",
        *(f"algorithm.{name}={getattr(task, name)}" for name in _REPLAY_SETTINGS),
        "algorithm.n_step=1",
        f"algorithm.max_grad_norm={10.0 if task.algorithm == 'dqn' else 'null'}",
        "algorithm.optimizer={type: adam}",
        f"buffers.replay={{type: replay, capacity: {task.capacity}}}",
        f"logging.every_steps={task.log_every}",
    ]
    if task.algorithm != "dqn":
        return words + _networks(("actor", "critic"), task.hidden, "relu")
    own = [f"algorithm.target_every={task.target_every}", f"algorithm.epsilon={task.epsilon}", "algorithm.double=false"]
    return [*words, *own, "algorithm.dueling=false", "algorithm.distribution=none", *_networks(("q",), task.hidden, "relu")]


_REPLAY_SETTINGS = ("batch_size", "learning_rate", "learning_starts", "train_every", "gradient_steps", "gamma", "tau")


def _networks(roles: Sequence[str], hidden: Sequence[int], activation: str) -> list[str]:
    sizes = f"[{','.join(map(str, hidden))}]"
    return [f"network.{role}={{type: mlp, hidden_dims: {sizes}, activation: {activation}}}" for role in roles]


def _common_words(task: PPOTask | ReplayTask, *, mode: str, threads: int) -> list[str]:
    from etude.config.schema import ExperimentConfig

    has_compile = any(field.name == "compile" for field in fields(ExperimentConfig))
    if mode != "off" and not has_compile:
        raise NotAvailableError("this Etude has no experiment.compile")
    return [
        "experiment.device=cpu",
        f"experiment.threads={threads}",
        f"experiment.seed={task.seed}",
        *([f"experiment.compile={mode}"] if has_compile else []),
        "environment.normalize_observations=off",
        "environment.normalize_rewards=false",
        f"training.total_steps={task.total_steps}",
        "training.early_stop=off",
        "evaluation.every_steps=0",
        "checkpoint.every_steps=0",
        "logging.terminal=false",
    ]


def start(spec: str, words: list[str], *, mode: str) -> tuple[Any, Any]:
    """Return the resolved config and a training that is ready for its first step."""
    from etude.config.compose import compose
    from etude.training import assembly

    config = assembly.resolve(compose(spec, words=words).config)
    if config.experiment.compile != mode:
        raise NotAvailableError(f"updates can't run by experiment.compile={mode} here: compiling needs a C++ compiler")
    orchestrator = assembly.build(config)
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    return config, orchestrator


def train(orchestrator: Any) -> list[Point]:
    """Train to the end, looking at the clock at every row of metrics."""
    points = [point(0)]
    points += [point(int(row["env_steps"]), int(row["updates"])) for row in orchestrator.rows()]
    return points


def plain(value: Any) -> Any:
    """Return settings as JSON can hold them."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
