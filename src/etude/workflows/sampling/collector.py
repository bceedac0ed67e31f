"""A collector whose steps are taken by other processes, which act with the weights of one rollout before while this one learns.

    learner     take 0 · update 0        take 1 · update 1        take 2 · …
                └ ask for 1, by θ0       └ ask for 2, by θ1
    samplers    0 by θ0 ─ 1 by θ0 ───────── 2 by θ1 ─────────────── 3 by θ2

A unit is a rollout, or as many vector steps as a replay collects between updates. The next one is asked for when the first row
of a unit is taken, with the weights of that moment, so what is collected is a function of the rows taken and not of how calls
are cut. What is in flight at a save is waited for and saved: a run that was stopped is the run that was not.

Free running (not exact): two units are asked for ahead, and a sampler begins each with the newest weights that it has heard of.

A sampler that is killed is started again: its copies begin new episodes, and what it was asked for is asked again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import torch
from torch import Tensor

from etude.acting.actor import Actor
from etude.acting.policy import State
from etude.buffers.base import Buffer
from etude.compute.random_streams import RandomStreams, derive_seed
from etude.compute.row import Row
from etude.compute.trees import at, joined, map_tree, restored
from etude.compute.world import ALONE, World
from etude.environments.vector import RAW_REWARD, Observation
from etude.errors import EtudeError
from etude.workflows.collector import Collector
from etude.workflows.sampling.environment import SampledEnvironment
from etude.workflows.sampling.link import Sampler, SamplerDiedError

MOST_RESTARTS = 3
"""Of one sampler, without a unit finished between them."""


class RemoteCollector(Collector):
    """Takes in what samplers collect, in order, and tells them what to act with."""

    def __init__(
        self,
        environment: SampledEnvironment,
        samplers: Sequence[Sampler],
        streams: RandomStreams,
        device: torch.device,
        *,
        described: dict[str, Any],
        unit: int,
        free_running: bool = False,
        keep_paths: int = 0,
    ) -> None:
        """`described` is what a sampler is built from; `unit` is how many vector steps are asked for at a time."""
        super().__init__(environment, streams, device, keep_paths=keep_paths)
        self.samplers, self.unit, self.free_running = [*samplers], unit, free_running
        self.notices: list[str] = []
        """What a user would want to know, to be said with the next row."""
        self._described = described
        self._asked: deque[dict[str, Any]] = deque()  # requests whose units were not received, oldest first
        self._ready: deque[dict[str, Any]] = deque()  # units received, not begun
        self._current: dict[str, Any] | None = None  # the unit that rows are taken from
        self._taken = 0  # rows of it
        self._units = 0  # begun so far
        self._first_state: State = None
        self._restarts_of = [0] * len(samplers)  # whose episodes under way were lost
        self._died_in_a_row = [0] * len(samplers)
        self._lags: list[int] = []
        for sampler in self.samplers:
            sampler.start()
        for number, sampler in enumerate(self.samplers):
            self._build(number, sampler)
        for sampler in self.samplers:
            environment.snapshot = _alive(sampler)["snapshot"]

    # ---- what a collector does ------------------------------------------------------------------------------------------

    @property
    def actor_state(self) -> State:
        """What the actor carries into the next step to be taken, where a unit begins."""
        if self._current is not None:
            raise EtudeError("samplers: what an actor remembers is known where a rollout begins, and not amid one")
        if not self._ready and not self._asked:
            return self._first_state
        return restored(self._peek()["state"], self._device, self._first_state)

    def start(self, initial_state: Callable[[int], State]) -> Observation:
        """Begin the first episodes, and return how."""
        self._first_state = initial_state(self.environment.num_envs)
        return joined(self._reset(self._seeds("env")))

    def begin_anew(self, seeds: Sequence[int], initial_state: Callable[[int], State]) -> NoReturn:
        """Episodes of samplers begin by themselves."""
        raise EtudeError("environment.samplers: this algorithm decides when episodes begin; set it to 0")

    def collect(self, actor: Actor, buffer: Buffer, count: int) -> int:
        """Take in up to `count` vector steps, fewer if the buffer is full, and return the decisions made."""
        steps = count if buffer.room is None else min(count, buffer.room)
        taken = 0
        while taken < steps:
            if self._current is None:
                self._begin_unit(actor)
            rows = min(steps - taken, self.unit - self._taken)
            self._take_in(buffer, rows)
            taken += rows
        return steps * self.environment.num_envs

    def read(self, world: World = ALONE) -> dict[str, float]:
        """Return what there is to log, and how many units of learning the acting weights were behind."""
        lags, self._lags = self._lags, []
        said = {"collect/sampler_restarts": float(sum(self._restarts_of))} if any(self._restarts_of) else {}
        if lags:
            said["collect/policy_lag"] = sum(lags) / len(lags)
        return {**super().read(world), **said}

    # ---- asking and hearing ---------------------------------------------------------------------------------------------

    def _begin_unit(self, actor: Actor) -> None:
        """Have the next unit at hand, and ask for what follows it with the weights of now."""
        if not self._ready and not self._asked:
            self._ask(actor, 0)
        unit = self._peek()
        self._ready.popleft()
        ahead = 2 if self.free_running else 1
        while len(self._asked) + len(self._ready) < ahead:
            self._ask(actor, 1 + len(self._asked) + len(self._ready))
        self._current, self._taken = unit, 0
        self._lags.append(self._units - unit["units"])
        self._units += 1

    def _peek(self) -> dict[str, Any]:
        if not self._ready:
            self._ready.append(self._hear())
        return self._ready[0]

    def _ask(self, actor: Actor, ahead: int) -> None:
        """Ask for one more unit, which comes so many after those whose rows were taken."""
        each = self.unit * self.environment.num_envs  # of a unit
        request = {
            "do": "collect",
            "steps": self.unit,
            "units": self._units,
            "rows_before": ahead * each,
            "decisions_before": (self._units + ahead) * each,
            **actor.who.acting_state(),
        }
        self._asked.append(request)
        for number in range(len(self.samplers)):
            self._tell(number, request)

    def _tell(self, number: int, request: dict[str, Any]) -> None:
        with suppress(SamplerDiedError):  # which is seen, and mended, where its answer is waited for
            self.samplers[number].ask(request)

    def _hear(self) -> dict[str, Any]:
        """Wait for the oldest unit that was asked for, of all samplers side by side."""
        parts = [self._answer(number) for number in range(len(self.samplers))]
        self._asked.popleft()
        unit = {
            "columns": joined([part["columns"] for part in parts], 1),
            "state": joined([part["state"] for part in parts]),
            "info": _info_of([part["info"] for part in parts]),
            "units": min(part["units"] for part in parts),
        }
        return _on(unit, self._device)

    def _answer(self, number: int, again: dict[str, Any] | None = None) -> dict[str, Any]:
        """Wait for a sampler's next answer; one that died is started again, and asked `again` what is no unit."""
        while True:
            try:
                part = self.samplers[number].answer()
            except SamplerDiedError:
                self._revive(number)
                if again is not None:
                    self._tell(number, again)
            else:
                self._died_in_a_row[number] = 0
                return part

    def _of_all(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Ask all samplers something, and return their answers."""
        for number in range(len(self.samplers)):
            self._tell(number, request)
        return [self._answer(number, request) for number in range(len(self.samplers))]

    def _revive(self, number: int) -> None:
        """Start a sampler anew: its copies begin new episodes, and what it was asked for is asked again."""
        sampler = self.samplers[number]
        how = sampler.how_it_died()
        self._died_in_a_row[number] += 1
        if self._died_in_a_row[number] > MOST_RESTARTS:
            raise EtudeError(f"{how}, {MOST_RESTARTS + 1} times in a row: it is not started again")
        self._restarts_of[number] += 1
        self.notices.append(f"{how}; it was started again, with new episodes: the run goes on, and is no longer exact")
        sampler.start()
        try:
            self._build(number, sampler)
            sampler.answer()
            sampler.ask({"do": "reset", "seeds": self._seeds_of(number, "env/restart", self._restarts_of[number])})
            sampler.answer()
            for request in self._asked:
                sampler.ask(request)
        except SamplerDiedError:
            self._revive(number)
        self.episodes.restart(self._copies(number))

    def _build(self, number: int, sampler: Sampler) -> None:
        sampler.ask({"do": "build", "number": number, "rank": self._streams.rank, **self._described})

    def _reset(self, seeds: list[int]) -> list[Observation]:
        for number, sampler in enumerate(self.samplers):
            copies = self._copies(number)
            sampler.ask({"do": "reset", "seeds": seeds[copies]})
        told = [_alive(sampler) for sampler in self.samplers]
        for each in told:
            self.environment.snapshot = each["snapshot"]
        return [each["observation"] for each in told]

    def _copies(self, number: int) -> slice:
        each = self.environment.num_envs // len(self.samplers)
        return slice(number * each, (number + 1) * each)

    def _seeds_of(self, number: int, *purpose: object) -> list[int]:
        first = self._streams.rank * self.environment.num_envs
        places = range(self.environment.num_envs)[self._copies(number)]
        return [derive_seed(self._streams.root, *purpose, first + place) for place in places]

    # ---- taking in ------------------------------------------------------------------------------------------------------

    def _take_in(self, buffer: Buffer, rows: int) -> None:
        """Give rows of the current unit to the buffer and to the statistics, as if each step had been taken here."""
        assert self._current is not None
        columns, info = self._current["columns"], self._current["info"]
        stores = (buffer.add,) if self._paths is None else (buffer.add, self._paths.add)
        for step in range(self._taken, self._taken + rows):
            row = Row(at(columns, step))
            row.begins = bool(row["is_first"].any()) if self._device.type == "cpu" else None
            for store in stores:
                store(row)
            said = info[step]
            reward, ended = row["reward"].to("cpu"), (row["terminated"] | row["truncated"]).to("cpu")
            self.episodes.add(reward, ended, said.get(RAW_REWARD))
            if said:
                self._report(said)
        self._taken += rows
        if self._taken == self.unit:
            self._current = None

    # ---- state ----------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return where every episode stands; what is in flight is waited for, and is part of it."""
        while self._asked:
            self._ready.append(self._hear())
        samplers = self._of_all({"do": "state"})
        return {
            **super().state_dict(),
            "samplers": samplers,
            "units": {
                "ready": [*self._ready],
                "current": self._current,
                "taken": self._taken,
                "begun": self._units,
                "length": self.unit,
                "restarts": list(self._restarts_of),
            },
        }

    def load_state_dict(self, state: dict[str, Any], initial_state: Callable[[int], State]) -> str | None:
        """Continue every episode; where the environment can't, begin new ones and say so."""
        self._first_state = initial_state(self.environment.num_envs)
        saved, units = state.get("samplers"), state.get("units")
        if saved is None or units is None or len(saved) != len(self.samplers) or units["length"] != self.unit:
            raise EtudeError(
                f"this checkpoint was saved with {len(saved or ())} samplers, and rollouts of "
                f"{(units or {}).get('length', 'another')} steps; set environment.samplers and the algorithm's back"
            )
        self._load_statistics(state)
        self._restarts = state["restarts"]
        self._ready = deque(_on(unit, self._device) for unit in units["ready"])
        self._current = None if units["current"] is None else _on(units["current"], self._device)
        self._taken, self._units, self._restarts_of = units["taken"], units["begun"], [*units["restarts"]]
        self._asked.clear()
        for sampler, own in zip(self.samplers, saved, strict=True):
            sampler.ask({"do": "load", "state": own})
        found = [_alive(sampler) for sampler in self.samplers]
        if all(each["continues"] for each in found):
            return None
        self._restarts += 1
        self._reset(self._seeds("env/restart", self._restarts))
        self.episodes.restart()
        return "this environment's state can't be brought back: new episodes begin, unlike in a run never stopped"


def _alive(sampler: Sampler) -> dict[str, Any]:
    """Return a sampler's answer; one that dies before it has taken a step is not started again."""
    try:
        return sampler.answer()
    except SamplerDiedError:
        raise EtudeError(f"{sampler.how_it_died()} before it could begin; what it printed says why") from None


def _on(unit: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return a unit with its columns where the learner reads them."""
    return {**unit, "columns": map_tree(lambda tensor: tensor.to(device), unit["columns"])}


def _info_of(parts: Sequence[Sequence[dict[str, Tensor]]]) -> list[dict[str, Tensor]]:
    """Join what the copies of each sampler say of each step; what only some say is left out."""
    steps = []
    for said in zip(*parts, strict=True):
        common = [key for key in said[0] if all(key in each for each in said)]
        steps.append({key: torch.cat([each[key] for each in said]) for key in common})
    return steps
