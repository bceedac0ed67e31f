"""What is measured: the sizes and hyper-parameters that every side is given. Standard library only, read by all sides."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class PPOTask:
    """One PPO to be run the same way by every side: constant rates, Adam, two separate tanh networks."""

    env_id: str
    rollout_steps: int
    batch_size: int
    epochs: int
    gamma: float
    gae_lambda: float
    learning_rate: float
    num_envs: int = 8
    clip_range: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.0
    max_grad_norm: float = 0.5
    adam_eps: float = 1e-5
    hidden: tuple[int, ...] = (64, 64)
    learns: bool = True
    """False collects rollouts and throws them away."""
    warmup_rollouts: int = 20
    """Rollouts before the clock starts: compilers, caches and allocators settle here."""
    measured_rollouts: int = 100
    seed: int = 1

    @property
    def rollout_size(self) -> int:
        """Return the environment steps of one rollout, over all copies."""
        return self.rollout_steps * self.num_envs

    @property
    def total_steps(self) -> int:
        """Return the environment steps of the whole measurement, warm-up included."""
        return (self.warmup_rollouts + self.measured_rollouts) * self.rollout_size

    @property
    def warmup_steps(self) -> int:
        """Return the environment steps before the clock starts."""
        return self.warmup_rollouts * self.rollout_size


@dataclass(frozen=True)
class ReplayTask:
    """One algorithm with a replay buffer and one environment, to be run the same way by every side: Adam, ReLU networks."""

    env_id: str
    algorithm: str
    """dqn, sac or td3."""
    batch_size: int
    learning_rate: float
    learning_starts: int
    train_every: int = 1
    """Environment steps between updates."""
    gradient_steps: int = 1
    """Gradient steps of an update."""
    gamma: float = 0.99
    tau: float = 0.005
    target_every: int = 1
    """Gradient steps between moves of the target network."""
    epsilon: float = 0.0
    """DQN: the share of random actions, from the first step to the last; 0 for others."""
    hidden: tuple[int, ...] = (256, 256)
    capacity: int = 1_000_000
    log_every: int = 1000
    """Environment steps between two looks at the clock."""
    warmup_steps: int = 3000
    """Environment steps before the clock starts, those without learning included."""
    measured_steps: int = 4000
    seed: int = 1

    @property
    def total_steps(self) -> int:
        """Return the environment steps of the whole measurement, warm-up included."""
        return self.warmup_steps + self.measured_steps


@dataclass(frozen=True)
class SteppingTask:
    """Environments stepped with random actions that were drawn beforehand."""

    env_id: str
    num_envs: int
    warmup_steps: int = 100
    """Vector steps before the clock starts."""
    block_steps: int = 100
    """Vector steps between two looks at the clock."""
    min_seconds: float = 2.0
    """Blocks are repeated until this much time is measured: sides differ by two orders of magnitude."""
    frame_skip: int = 1
    """Physics steps per environment step; only the bare simulator needs it."""
    distinct_actions: int = 256
    """Vector actions drawn; used in turn."""
    seed: int = 1


@dataclass(frozen=True)
class LoaderTask:
    """A rollout of `rows` transitions handed out in minibatches, `epochs` times over."""

    rows: int = 16_384
    batch_size: int = 64
    widths: tuple[int, ...] = (17, 6, 1, 1, 1, 1)
    """Numbers per row in each column: observation, action, log-probability, advantage, return, value."""
    warmup_epochs: int = 1
    min_seconds: float = 1.0
    """Epochs are repeated until this much time is measured."""
    seed: int = 1


Task = PPOTask | ReplayTask | SteppingTask | LoaderTask

# The zoo's tuned CartPole settings, with constant rates: schedules are a matter of learning, not of speed.
PPO_CARTPOLE = PPOTask(
    env_id="CartPole-v1", rollout_steps=32, batch_size=256, epochs=20, gamma=0.98, gae_lambda=0.8, learning_rate=1e-3
)
# Stable-Baselines3's defaults.
PPO_HALFCHEETAH = PPOTask(
    env_id="HalfCheetah-v5", rollout_steps=2048, batch_size=64, epochs=10, gamma=0.99, gae_lambda=0.95, learning_rate=3e-4,
    warmup_rollouts=1, measured_rollouts=2,
)  # fmt: skip
# The zoo's tuned CartPole settings, with a constant share of random actions.
DQN_CARTPOLE = ReplayTask(
    env_id="CartPole-v1", algorithm="dqn", batch_size=64, learning_rate=2.3e-3, learning_starts=1000, train_every=256,
    gradient_steps=128, tau=1.0, target_every=128, epsilon=0.04, capacity=100_000,
    log_every=2048, warmup_steps=8192, measured_steps=24_576,
)  # fmt: skip
# The defaults that everyone shares: one update of batch 256 a step.
SAC_HALFCHEETAH = ReplayTask(
    env_id="HalfCheetah-v5", algorithm="sac", batch_size=256, learning_rate=3e-4, learning_starts=1000,
    log_every=200, warmup_steps=1600, measured_steps=2000,
)  # fmt: skip
TD3_HALFCHEETAH = replace(SAC_HALFCHEETAH, algorithm="td3")
COLLECT_CARTPOLE = replace(PPO_CARTPOLE, learns=False, warmup_rollouts=20, measured_rollouts=200)
COLLECT_HALFCHEETAH = replace(PPO_HALFCHEETAH, learns=False, rollout_steps=256, warmup_rollouts=2, measured_rollouts=10)
STEP_CARTPOLE = SteppingTask("CartPole-v1", num_envs=256)
STEP_HALFCHEETAH = SteppingTask("HalfCheetah-v5", num_envs=64, frame_skip=5)
STEP_DMC_CHEETAH = SteppingTask("dmc/cheetah-run", num_envs=8)
STEP_DMC_CARTPOLE = SteppingTask("dmc/cartpole-balance", num_envs=8)
STEP_MINIGRID = SteppingTask("MiniGrid-DoorKey-5x5-v0", num_envs=8)
STEP_PONG = SteppingTask("ALE/Pong-v5", num_envs=8, warmup_steps=50)
LOADERS = LoaderTask()


def quick(task: Task) -> Task:
    """Return a task of a second or so: it shows that everything runs, and its numbers mean nothing."""
    if isinstance(task, PPOTask):
        return replace(task, rollout_steps=min(task.rollout_steps, 64), warmup_rollouts=1, measured_rollouts=2)
    if isinstance(task, ReplayTask):
        cycle = task.train_every
        return replace(task, learning_starts=64, log_every=cycle, warmup_steps=max(128, cycle), measured_steps=max(128, cycle))
    if isinstance(task, SteppingTask):
        return replace(task, warmup_steps=2, block_steps=10, min_seconds=0.0, distinct_actions=4)
    return replace(task, rows=1024, min_seconds=0.0)


def as_request(task: Task) -> dict[str, Any]:
    """Return a task as plain data, to be sent to a side."""
    return asdict(task)


def ppo_task(request: dict[str, Any]) -> PPOTask:
    """Return the PPO task a side was sent."""
    return PPOTask(**{**request, "hidden": tuple(request["hidden"])})


def replay_task(request: dict[str, Any]) -> ReplayTask:
    """Return the task with a replay buffer that a side was sent."""
    return ReplayTask(**{**request, "hidden": tuple(request["hidden"])})


def stepping_task(request: dict[str, Any]) -> SteppingTask:
    """Return the stepping task a side was sent."""
    return SteppingTask(**request)


def loader_task(request: dict[str, Any]) -> LoaderTask:
    """Return the loader task a side was sent."""
    return LoaderTask(**{**request, "widths": tuple(request["widths"])})
