"""MiniGrid's missions, which are sentences, as numbers: one for each word of a small vocabulary, 0 after the last."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

# All the words of MiniGrid 3.2. Their order is part of what a trained network knows: new ones belong at the end.
VOCABULARY = (
    *(",", "a", "after", "and", "at", "avoid", "ball", "behind", "blue", "box", "door", "end", "fetch", "find", "from"),
    *("front", "get", "go", "goal", "green", "grey", "hallway", "in", "key", "lava", "left", "matching", "must", "near"),
    *("next", "object", "of", "on", "open", "opening", "pick", "purple", "put", "reach", "red", "right", "room", "rooms"),
    *("square", "the", "then", "to", "traverse", "unlock", "up", "use", "yellow", "you", "your"),
)
_NUMBERS = {word: number for number, word in enumerate(VOCABULARY, 1)}
_ONE_SENTENCE = 24
_LONGEST = 80  # four clauses of at most eighteen words, and what joins them


def is_constant(world: Any) -> bool:
    """Whether every episode of this world has the same mission."""
    space = world.observation_space["mission"]
    # BabyAI's space says nothing about the sentences of its levels.
    return space.ordered_placeholders is None and not isinstance(world, RoomGridLevel)


def words_of(world: Any) -> int:
    """Return how many words a mission of this world may have."""
    return _LONGEST if hasattr(world, "instr_kinds") else _ONE_SENTENCE


class MissionReader:
    """Turns missions into rows of numbers; an episode's mission stays the same, so the last row is kept."""

    def __init__(self, words: int) -> None:
        self._words = words
        self._mission: str | None = None
        self._row = np.zeros(words, np.int64)

    def read(self, mission: str) -> np.ndarray:
        """Return the numbers of a mission's words, `words` of them."""
        if mission != self._mission:
            self._row = self._numbers(mission)
            self._mission = mission
        return self._row

    def _numbers(self, mission: str) -> np.ndarray:
        words = re.findall(r"\w+|[^\w\s]", mission.lower())
        unknown = [word for word in words if word not in _NUMBERS]
        if unknown or len(words) > self._words:
            problem = (
                f"the word '{unknown[0]}' is not in the vocabulary" if unknown else f"it has more than {self._words} words"
            )
            raise ValueError(f"the mission '{mission}' can't be read: {problem}; set environment.kwargs.mission=off")
        row = np.zeros(self._words, np.int64)
        row[: len(words)] = [_NUMBERS[word] for word in words]
        return row
