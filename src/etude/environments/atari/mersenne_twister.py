"""Random numbers as ALE's C++ code draws them, so that the same seed leads to the same game."""

from __future__ import annotations

from typing import Any

import numpy as np

_WORD = 1 << 32


class MersenneTwister:
    """`std::mt19937`, and what ALE and the standard library of Linux make of its words."""

    def __init__(self) -> None:
        self._bits = np.random.MT19937()
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Begin anew."""
        self._bits._legacy_seeding(seed)  # the generator's original seeding, which C++ kept

    def word(self) -> int:
        """Return the next 32 bits."""
        return int(self._bits.random_raw())

    def below(self, count: int) -> int:
        """Return a number from 0 to `count` - 1: Lemire, "Fast random integer generation in an interval" (2019)."""
        product = self.word() * count
        while product % _WORD < _WORD % count:
            product = self.word() * count
        return product // _WORD

    def fraction(self) -> float:
        """Return a number from 0 to 1, 1 excluded."""
        return self.word() / _WORD

    def state_dict(self) -> dict[str, Any]:
        """Return the generator's words and its place among them."""
        state: Any = self._bits.state["state"]
        return {"words": state["key"].view(np.int32).copy(), "place": int(state["pos"])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where it was."""
        words = np.ascontiguousarray(state["words"]).view(np.uint32)
        self._bits.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": state["place"]}}
