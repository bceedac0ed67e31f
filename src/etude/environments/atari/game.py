"""One Atari game on its own emulator, whose state can be captured at any time.

Seeds, idle frames, sticky actions, pooling, resizing and stacking are those of ALE's vector class to the last bit, odd corners
included: when a game ends in the middle of a step, the frames of the step before are shown once more. Four games draw random
numbers of ALE's while they begin; there, other actions stick than in the vector class.
"""

from __future__ import annotations

import importlib
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from etude.environments.atari.area_resize import AreaResize
from etude.environments.atari.mersenne_twister import MersenneTwister
from etude.environments.atari.objects import OBJECTS, Position
from etude.environments.atari.settings import AtariSettings
from etude.environments.snapshots.plain_data import NotPlainError
from etude.errors import UserError

_NOOP, _FIRE = 0, 1
_FRAMES_PER_SECOND = 60
# Games whose states ALE 0.12.1 does not restore exactly: https://github.com/Farama-Foundation/Arcade-Learning-Environment/pull/732
NOT_RESTORED = ("qbert", "tetris", "tic_tac_toe_3d", "pitfall2", "miniature_golf")
# Games that draw from the emulator's own generator while they begin.
DRAW_AT_RESET = ("adventure", "berzerk", "double_dunk", "video_cube")


class AtariGame(gymnasium.Env[Any, Any]):
    """A game of ALE with the settings of `environment.kwargs`."""

    def __init__(self, settings: AtariSettings, render_mode: Literal["rgb_array", "human"] | None = None) -> None:
        self.settings, self.render_mode = settings, render_mode
        self.metadata = {"render_modes": ["rgb_array", "human"], "render_fps": _FRAMES_PER_SECOND / settings.frameskip}
        self._ale = _new_emulator(window=render_mode == "human")
        self._rom = _rom(settings.game)
        self._idle, self._sticky = MersenneTwister(), MersenneTwister()
        self._load()
        self._fresh = self._ale.cloneState(include_rng=True)
        legal = self._ale.getLegalActionSet() if settings.full_action_space else self._ale.getMinimalActionSet()
        self._actions = [action.value for action in legal]
        self._fires = settings.fire_reset and _FIRE in self._actions
        self.action_space = spaces.Discrete(len(self._actions))
        self._stickiness = float(np.float32(settings.repeat_action_probability))  # ALE keeps it in single precision
        self._held = _NOOP  # what the last frame did, which may not be what was asked for
        self._frames = 0
        self._lives = 0
        self._goes_on = False  # a life was lost, and with it an episode, but not the game
        self._ball: Position | None = None
        self._raw: list[np.ndarray] = []
        if settings.obs_type == "rgb":
            self._prepare_screens()
        elif settings.obs_type == "ram":
            self.observation_space = spaces.Box(0, 255, (self._ale.getRAMSize(),), np.uint8)
        else:
            low = OBJECTS[settings.game].low
            self.observation_space = spaces.Box(low, np.ones_like(low))
        self._shown = np.zeros(self.observation_space.shape or (), self.observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode: a new game, the fire button if it has one, and some idle frames; or just the next life."""
        super().reset(seed=seed)
        if self._goes_on and seed is None:
            self._goes_on = False
            return self._shown.copy(), {"lives": self._lives}
        if seed is not None:
            self._begin_anew(emulator_seed(seed))
        ale = self._ale
        self._restart()
        if self._fires:
            self._press(_FIRE)
        for _ in range(self._idle.below(max(self.settings.noop_max, 1)) - self._fires):
            self._press(_NOOP)
            if ale.game_over():
                self._restart()
        self._frames, self._lives, self._ball, self._goes_on = 0, ale.lives(), None, False
        self._shown[:] = 0
        if self._raw:
            self._raw[1][:] = 0
            self._see(self._raw[0])
        return self._observe(), {"lives": self._lives}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Hold an action for some frames."""
        ale, settings, pressed = self._ale, self.settings, self._actions[action]
        sees = bool(self._raw)
        reward, over, lost = 0, False, False
        for left in range(settings.frameskip, 0, -1):
            reward += self._press(pressed)
            self._frames += 1
            over = ale.game_over()
            lost = 0 < ale.lives() < self._lives
            if over or self._frames >= settings.max_num_frames_per_episode:
                break
            if sees and left <= 2:
                self._see(self._raw[left - 1])
        self._lives = ale.lives()
        late = self._frames >= settings.max_num_frames_per_episode
        terminated = over or (settings.life_loss and lost)
        truncated = late and not terminated
        self._goes_on = terminated and not over and not late
        if settings.clip_rewards:
            reward = max(-1, min(1, reward))
        return self._observe(), float(reward), terminated, truncated, {"lives": self._lives}

    def render(self) -> Any:
        """Return the screen in its own size and colours; a window draws itself."""
        return self._ale.getScreenRGB() if self.render_mode == "rgb_array" else None

    def state_dict(self) -> dict[str, Any]:
        """Return the emulator's state and what observations are made of; raises NotPlainError where ALE can't restore it."""
        if self.settings.game in NOT_RESTORED:
            raise NotPlainError(f"ALE does not restore {self.settings.game} exactly")
        emulator = np.frombuffer(self._ale.cloneState(include_rng=True).serialize(), np.uint8)
        state: dict[str, Any] = {"emulator": emulator.copy(), "frames": self._frames, "lives": self._lives, "held": self._held}
        state |= {"idle": self._idle.state_dict(), "sticky": self._sticky.state_dict()}
        state |= {"goes_on": self._goes_on, "ball": self._ball}
        state |= {"raw": [frame.copy() for frame in self._raw], "shown": self._shown.copy()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        saved = importlib.import_module("ale_py").ALEState(np.asarray(state["emulator"]).tobytes())
        self._ale.reset_game()  # a console that has never been switched on can't take a state
        self._ale.restoreState(saved)
        self._idle.load_state_dict(state["idle"])
        self._sticky.load_state_dict(state["sticky"])
        self._frames, self._lives, self._goes_on = state["frames"], state["lives"], state["goes_on"]
        self._held = state["held"]
        self._ball = None if state["ball"] is None else tuple(state["ball"])
        self._shown[...] = state["shown"]
        for frame, pixels in zip(self._raw, state["raw"], strict=True):
            frame[...] = pixels

    def _press(self, button: int) -> int:
        """Play one frame and return its reward; the button of the frame before may stick.

        ALE can do that itself, but keeps the button that sticks out of its states. It draws two numbers a frame, the second for
        another player.
        """
        if not self._stickiness:
            return self._ale.act(button)
        if self._sticky.fraction() >= self._stickiness:
            self._held = button
        self._sticky.word()
        return self._ale.act(self._held)

    def _restart(self) -> None:
        self._ale.reset_game()
        self._held = _NOOP

    def _begin_anew(self, seed: int) -> None:
        """Forget all games so far."""
        self._idle.seed(seed)
        self._sticky.seed(seed)
        if self.settings.game in (*NOT_RESTORED, *DRAW_AT_RESET):
            self._ale.setInt("random_seed", seed)
            self._load()
        else:
            self._ale.restoreState(self._fresh)  # a hundred times faster

    def _load(self) -> None:
        self._ale.loadROM(self._rom)
        for name, number, known, choose in (
            ("mode", self.settings.mode, self._ale.getAvailableModes, self._ale.setMode),
            ("difficulty", self.settings.difficulty, self._ale.getAvailableDifficulties, self._ale.setDifficulty),
        ):
            if number is None:
                continue
            if number not in known():
                has = ", ".join(map(str, known()))
                raise UserError(f"environment.kwargs.{name}={number}: {self.settings.game} has {has}")
            choose(number)

    def _prepare_screens(self) -> None:
        settings, dims = self.settings, self._ale.getScreenDims()
        raw, target = (int(dims[0]), int(dims[1])), settings.screen
        colours = () if settings.grayscale else (3,)
        self._see = self._ale.getScreenGrayscale if settings.grayscale else self._ale.getScreenRGB
        self._resize = AreaResize(raw, target)
        # The last two frames of a step, the newer one first: it becomes the brighter of both.
        self._raw = [np.zeros((*raw, *colours), np.uint8) for _ in range(2)]
        self.observation_space = spaces.Box(0, 255, screens_shape(settings), np.uint8)

    def _observe(self) -> np.ndarray:
        """Look at where the last frame led."""
        if self.settings.obs_type == "ram":
            self._shown[:] = self._ale.getRAM()
        elif self.settings.obs_type == "objects":
            self._shown[:], self._ball = OBJECTS[self.settings.game].read(self._ale.getRAM(), self._ball)
        else:
            self._add_screen()
        return self._shown.copy()

    def _add_screen(self) -> None:
        if self.settings.maxpool:
            np.maximum(*self._raw, out=self._raw[0])
        screen = self._resize(self._raw[0])
        channels = 1 if self.settings.grayscale else 3
        self._shown[:-channels] = self._shown[channels:]
        self._shown[-channels:] = screen if self.settings.grayscale else screen.transpose(2, 0, 1)


def emulator_seed(seed: int) -> int:
    """ALE counts seeds in 32 bits and takes a negative one for none."""
    return seed % (1 << 31)


def screens_shape(settings: AtariSettings) -> tuple[int, int, int]:
    """The shape of an observation of screens."""
    return (settings.stack * (1 if settings.grayscale else 3), *settings.screen)


def _rom(game: str) -> Any:
    return importlib.import_module("ale_py.roms").get_rom_path(game)


def _new_emulator(*, window: bool) -> Any:
    ale_py: Any = importlib.import_module("ale_py")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # it would introduce itself
    emulator = ale_py.ALEInterface()
    emulator.setFloat("repeat_action_probability", 0.0)
    emulator.setInt("random_seed", 0)
    if window:
        emulator.setBool("display_screen", True)
        emulator.setBool("sound", True)
    return emulator
