"""Many copies of an Atari game on ALE's own threads."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.environments.atari.game import emulator_seed, screens_shape
from etude.environments.atari.settings import AtariSettings
from etude.environments.vector import Observation, Step, VectorEnvironment


class AtariVector(VectorEnvironment):
    """ALE's vector class behind our contract. It has no state to save: after a resume, games begin anew.

    Each step comes in its own memory, which is passed on as it is: a Step stays valid for as long as anyone keeps it.
    """

    device = torch.device("cpu")
    snapshot = "restart"

    def __init__(self, settings: AtariSettings, num_envs: int) -> None:
        self.num_envs = num_envs
        self._settings = settings
        height, width = settings.screen
        self._ale: Any = importlib.import_module("ale_py.vector_env").AtariVectorEnv(
            settings.game,
            num_envs,
            num_threads=settings.threads,
            max_num_frames_per_episode=settings.max_num_frames_per_episode,
            repeat_action_probability=settings.repeat_action_probability,
            full_action_space=settings.full_action_space,
            autoreset_mode="SameStep",
            img_height=height,
            img_width=width,
            grayscale=settings.grayscale,
            stack_num=settings.stack,
            frameskip=settings.frameskip,
            maxpool=settings.maxpool,
            noop_max=settings.noop_max,
            life_loss_info=settings.life_loss,
            reward_clipping=settings.clip_rewards,
            use_fire_reset=settings.fire_reset,
        )
        self.single_observation_space = spaces.Box(0, 255, screens_shape(settings), np.uint8)
        self._choices = int(self._ale.single_action_space.n)
        self.single_action_space = spaces.Discrete(self._choices)
        self._strengths = [1.0] * num_envs  # how far a joystick is pushed
        self._info: dict[str, np.ndarray] = {}

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new games, copy i with `seeds[i]`."""
        observation, self._info = self._ale.reset(seed=np.array([emulator_seed(seed) for seed in seeds]))
        return self._to_tensor(observation), {}

    def step(self, action: Tensor) -> Step:
        """Act in every copy; one that ends begins its next game in the same step."""
        actions = action.tolist()
        if min(actions) < 0 or max(actions) >= self._choices:
            # ALE's threads would stop there, and we would wait for them for ever.
            raise ValueError(f"actions {actions}: this game has {self._choices}, counted from 0")
        # What its step() does, without turning arrays into lists: its threads wait for us meanwhile.
        self._ale.ale.send(actions, self._strengths)
        screens, reward, terminated, truncated, info = self._ale.ale.recv()
        observation = final_observation = self._to_tensor(screens)
        ended = terminated | truncated
        if self._settings.life_loss:
            ended &= ~self._goes_on(terminated, info)
        self._info = info
        if ended.any():
            finals = info["final_obs"]  # written where a game has ended only
            finals[~ended] = screens[~ended]
            final_observation = self._to_tensor(finals)
        return Step(
            observation,
            torch.from_numpy(reward.astype(np.float32)),
            torch.from_numpy(terminated),
            torch.from_numpy(truncated),
            final_observation,
            {},
        )

    def close(self) -> None:
        """End the threads."""
        self._ale = None

    def _goes_on(self, terminated: np.ndarray, info: dict[str, np.ndarray]) -> np.ndarray:
        """Where a life was lost but not the game: fewer lives than before, in a game that is older than before."""
        older = info["episode_frame_number"] > self._info["episode_frame_number"]
        return terminated & older & (info["lives"] < self._info["lives"])

    def _to_tensor(self, screens: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(screens)
        if self._settings.grayscale:
            return tensor
        return tensor.movedim(-1, 2).flatten(1, 2)  # (N, stack, H, W, 3) → (N, 3 * stack, H, W)
