"""How acting runs: eager, as a NumPy twin, or captured as CUDA graphs. Who acts can't tell.

    warm-up ──→ explore            sample            greedy
    (random)                       (evaluating, playing, sampling)

Everybody who acts does so here: the collector, evaluations, players, trials.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Generator, Tensor

from etude.acting.policy import ActResult, ArrayTwin, Mode, State, Way
from etude.compute.captured import Captured
from etude.environments.vector import Observation


class Actor:
    """Acts in one mode, with the random numbers of one generator.

    Captured, it has a graph for each way to act and number of environments: what it returns is overwritten by its next call,
    the state included, which may be given back as it is.
    """

    def __init__(self, who: Any, mode: Mode, generator: Generator, *, captured: bool = False, compiles: bool = False) -> None:
        """`who` is an `etude.acting.policy.Acts`; of what only samples or takes the mode, `act` and `initial_state` suffice."""
        self.who, self.mode, self.generator = who, mode, generator
        self.way: Way = mode
        self.captured = captured and who.capturable
        """Whether acting is captured."""
        self.compiles = compiles and self.captured
        """Whether it is compiled too, where that is done with what surrounds it."""
        self._graphs: dict[tuple[Way, int], Captured] = {}

    def initial_state(self, n: int) -> State:
        """Return the state at the start of n episodes."""
        return self.who.initial_state(n)

    def until_change(self) -> int | None:
        """Find the way to act now, and return how many decisions it surely lasts; None: from here on."""
        if self.mode != "explore":
            return None
        is_random = self.who.is_warming_up()
        self.way = "random" if is_random else "explore"
        return 1 if is_random else None  # what a step adds to a buffer is the buffer's own business

    def __call__(self, observation: Observation, state: State, is_first: Tensor) -> ActResult:
        """Choose an action for each row of an observation (N, ...)."""
        if self.mode == "explore":
            self.who.advance(len(is_first))
        if not self.captured:
            return self.act(self.way, observation, state, is_first)
        key = (self.way, len(is_first))
        if key not in self._graphs:
            self._graphs[key] = Captured(partial(self.act, self.way), generators=[self.generator])
        return self._graphs[key](observation, state, is_first)

    def array_twin(self) -> ArrayTwin | None:
        """Return what exploring does from array to array, where there is such a twin; `who.advance` comes before each call."""
        return self.who.array_twin() if self.mode == "explore" else None

    def act(self, way: Way, observation: Observation, state: State, is_first: Tensor) -> ActResult:
        """Choose as it is written, captured or not, and count nothing."""
        if way == "random":
            return self.who.act_randomly(observation, state, is_first, generator=self.generator)
        return self.who.act(observation, state, is_first, mode=way, generator=self.generator)
