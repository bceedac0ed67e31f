"""The runs that are attacked: every algorithm and every kind of environment, a few hundred steps each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_STEPS = ("experiment.compile=off", "evaluation.episodes=1", "checkpoint.keep=2", "environment.max_episode_steps=20")
_CADENCE = ("training.total_steps=192", "evaluation.every_steps=80", "checkpoint.every_steps=48", "logging.every_steps=24")
_MLP = "{type: mlp, hidden_dims: [8]}"
_CNN = "{type: cnn, channels: [4], kernels: [8], strides: [8], hidden_dims: [8]}"
_ROLLOUTS = ("environment.num_envs=4", "algorithm.rollout_steps=6", f"network.actor={_MLP}")
_CRITIC = f"network.critic={_MLP}"
_PPO = (*_ROLLOUTS, _CRITIC, "algorithm.epochs=1", "algorithm.batch_size=12")
_OFF_POLICY = ("environment.num_envs=2", "algorithm.learning_starts=32", "algorithm.batch_size=8", "algorithm.train_every=8",
               "algorithm.gradient_steps=1")  # fmt: skip
_REPLAY = (*_OFF_POLICY, "buffers.replay.capacity=120")
_ACTOR_CRITIC = (*_REPLAY, f"network.actor={_MLP}", f"network.critic={_MLP}")
_Q = (*_OFF_POLICY, f"network.q={_MLP}")
_SEES = (*_PPO, f"network.actor={_CNN}", f"network.critic={_CNN}", "environment.num_envs=2", "training.total_steps=96")
_GRU = "{type: gru, hidden_dims: [8], memory_size: 8}"

OWN_CODE = '''
import torch
from etude.workflows.ppo import PPO

class Mine(PPO):
    """PPO under a name of one's own."""

class Poisoned(PPO):
    """Some rollouts have a reward that is no number; which ones depends on their actions alone."""

    def _prepare(self, columns):
        if int(columns["action"].sum()) % 7 == 0:
            columns["reward"][0, 0] = torch.nan
        return super()._prepare(columns)
'''
OWN_MODULE = "attacked_algorithm"


@dataclass(frozen=True)
class Victim:
    """A run that is attacked: what it trains, and with which settings."""

    spec: str
    words: tuple[str, ...]
    is_exact: bool = True
    """Whether a resume is promised to end bit for bit as the run that was never stopped; if not, it still is repeatable."""

    @property
    def settings(self) -> list[str]:
        """Its words after those that every victim has."""
        return [*_STEPS, *_CADENCE, *self.words]


VICTIMS = {
    "ppo": Victim("CartPole-v1:ppo", _PPO),
    "ppo-memory": Victim("CartPole-v1:ppo", (*_PPO, f"network.actor={_GRU}", f"network.critic={_GRU}")),
    "ppo-schedules": Victim("Pendulum-v1:ppo", (*_PPO, "algorithm.learning_rate=lin_1e-3", "algorithm.target_kl=0.01",
                                                "environment.normalize_observations=rolling")),
    "a2c": Victim("CartPole-v1:a2c", (*_ROLLOUTS, _CRITIC)),
    "reinforce": Victim("CartPole-v1:reinforce", _ROLLOUTS),
    "dqn": Victim("CartPole-v1:dqn", (*_Q, "buffers.replay.capacity=120")),
    "dqn-prioritised": Victim("CartPole-v1:dqn", (*_Q, "algorithm.n_step=3",
                                                  "buffers.replay={type: prioritized, capacity: 120}")),
    "sac-hindsight": Victim("PointReach-v0:sac", (*_ACTOR_CRITIC, "buffers.replay={type: hindsight, capacity: 120}")),
    "sac": Victim("Pendulum-v1:sac", _ACTOR_CRITIC),
    "td3": Victim("Pendulum-v1:td3", _ACTOR_CRITIC),
    "tqc": Victim("Pendulum-v1:tqc", _ACTOR_CRITIC),
    "sql": Victim("Pendulum-v1:sql", (*_REPLAY, _CRITIC, f"network.sampler={_MLP}", "algorithm.value_particles=4",
                                      "algorithm.kernel_particles=4")),
    "cma_es": Victim("CartPole-v1:cma_es", ("environment.num_envs=4", "algorithm.population=6")),
    "q_learning": Victim("FrozenLake-v1:q_learning", ()),
    "toy-text": Victim("Taxi-v4:q_learning", ()),
    "random": Victim("CartPole-v1:random", ("environment.num_envs=4",)),
    "own-file": Victim(f"CartPole-v1:{OWN_MODULE}.Mine", _PPO),
    "rolled-back": Victim(f"CartPole-v1:{OWN_MODULE}.Poisoned", (*_PPO, "training.on_nan=rollback", "experiment.seed=2")),
    "gymnasium": Victim("CartPole-v1:ppo", (*_PPO, "environment.backend=gymnasium")),
    "box2d-replayed": Victim("LunarLander-v3:ppo", _PPO),
    "workers": Victim("CartPole-v1:ppo", (*_PPO, "environment.backend=gymnasium", "environment.workers=2")),
    "mujoco": Victim("Hopper-v5:ppo", _PPO),
    "dm_control": Victim("dmc/cartpole-balance:ppo", _PPO),
    "minigrid": Victim("MiniGrid-Empty-5x5-v0:ppo", _PPO),
    "atari": Victim("ALE/Pong-v5:ppo", (*_SEES, "environment.exact=true")),
    "atari-restarted": Victim("ALE/Pong-v5:ppo", _SEES, is_exact=False),
    "robot": Victim("ball-flat:ppo", _PPO),
    "wrapped": Victim("CartPole-v1:ppo", (*_PPO, "environment.wrappers=[{id: history, count: 3}, {id: noise, std: 0.1}, "
                                          "{id: reward_scale, factor: 0.1}]")),
    "phases": Victim("CartPole-v1:ppo", (*_PPO, "training.phases=[{name: a, hooks: [collect, update], duration_steps: 72}, "
                                         "{name: b}]")),
}  # fmt: skip


def write_own_code(folder: Path) -> None:
    """Put the user's own algorithm where the runs are started."""
    (folder / f"{OWN_MODULE}.py").write_text(OWN_CODE, encoding="utf-8")
