"""The arguments of an Atari game (`environment.kwargs`), together with what its id says about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium

from etude.config.constraints import NonNegativeInt, PositiveInt, UnitInterval
from etude.config.validate import Validator
from etude.environments.atari.objects import OBJECTS
from etude.errors import ConfigError, UserError

_WHERE = "environment.kwargs"
_SCREEN = (210, 160)


@dataclass(frozen=True)
class AtariSettings:
    """How a game is shown and played: Machado et al. (2018) with DeepMind's preprocessing by default."""

    game: str
    """The ROM, in ALE's spelling."""
    obs_type: Literal["rgb", "ram", "objects"] = "rgb"
    """rgb: the last `stack` screens; ram: the console's 128 bytes; objects: where things are, as numbers."""
    grayscale: bool = True
    """Brightness alone, (stack, H, W); otherwise red, green and blue of each screen, (3 * stack, H, W)."""
    size: PositiveInt | tuple[PositiveInt, PositiveInt] = 84
    """What screens are shrunk to: a side, or [height, width]."""
    stack: PositiveInt = 4
    """Screens in an observation, the newest last."""
    frameskip: PositiveInt = 4
    """Frames that an action is held for; together they are one step."""
    maxpool: bool = True
    """Show the brighter of the last two frames, pixel by pixel: games draw some things in every other frame only."""
    noop_max: NonNegativeInt = 30
    """An episode begins after idling for a random number of frames below this."""
    fire_reset: bool = True
    """Press fire when an episode begins, in games that have that button."""
    life_loss: bool = False
    """A lost life ends the episode for the learner; the game goes on."""
    clip_rewards: bool = False
    """Give only the sign of a step's reward."""
    repeat_action_probability: UnitInterval = 0.25
    """How often a frame repeats the action before instead (sticky actions). Default: 0.25; 0 for ids that end in v4."""
    full_action_space: bool = False
    """All 18 actions of the joystick instead of those that the game knows."""
    max_num_frames_per_episode: PositiveInt = 108_000
    """Episodes are cut after this many frames, half an hour of play."""
    mode: NonNegativeInt | None = None
    """A variant of the game, by ALE's number. Default: the game's own."""
    difficulty: NonNegativeInt | None = None
    """The console's difficulty switches, by ALE's number. Default: the game's own."""
    threads: NonNegativeInt = 0
    """Threads of ALE's vector class; 0: as many as there are processors, and no more than copies."""

    @property
    def screen(self) -> tuple[int, int]:
        """Height and width of an observation."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    @property
    def suits_vector(self) -> bool:
        """Whether ALE's vector class can do all of it."""
        return self.obs_type == "rgb" and self.mode is None and self.difficulty is None


def read_settings(name: str, kwargs: dict[str, Any], max_episode_steps: int | None) -> AtariSettings | None:
    """Return the settings of a registered id with the user's arguments over them; None where ALE has no such id."""
    spec = gymnasium.registry.get(name)
    if spec is None:
        return None
    own = {key: spec.kwargs[key] for key in ("game", "repeat_action_probability")}
    if "game" in kwargs:
        raise ConfigError(f"{_WHERE}.game={kwargs['game']}: the game is in environment.id")
    settings = Validator().build(AtariSettings, {**own, **kwargs}, _WHERE)
    if settings.obs_type == "objects" and settings.game not in OBJECTS:
        known = ", ".join(sorted(game.title() for game in OBJECTS))
        raise UserError(f"{_WHERE}.obs_type=objects: {name} has none; games with objects: {known}")
    if any(wanted > most for wanted, most in zip(settings.screen, _SCREEN, strict=True)):
        raise UserError(f"{_WHERE}.size={list(settings.screen)}: screens are {list(_SCREEN)}, and can only be shrunk")
    if max_episode_steps is None:
        return settings
    frames = min(settings.max_num_frames_per_episode, max_episode_steps * settings.frameskip)
    return replace(settings, max_num_frames_per_episode=frames)
