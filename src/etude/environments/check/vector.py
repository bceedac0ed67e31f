"""Checks many copies stepped together, as training steps them: robots, ALE's games and other native classes."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from etude.environments.check.data import range_problem
from etude.environments.check.probe import random_action
from etude.environments.check.report import SEED, Remark, Report, global_generators
from etude.environments.check.walks import (
    COMPARED,
    Moment,
    as_observation,
    autoreset_complaints,
    moment_difference,
    never_shows_where_it_ended,
    observation_complaints,
    on_host,
    recorded,
    seeds_of,
    step_complaints,
    tree_difference,
    walk,
    walked,
    without_first,
)
from etude.environments.vector import ACTION_MASK, Observation, Step, VectorEnvironment

COPIES = 4
"""How many are checked: enough for two to end at different times."""
SHORT = 10
"""Steps of an episode in the copies that are there to be cut."""

Make = Callable[[int | None], VectorEnvironment]
"""Builds the environment as training would; given a number, with episodes of at most that many steps."""


class VectorChecker(Report):
    """Goes through a vector environment; what it found is in `remarks`."""

    def __init__(
        self,
        make: Make,
        *,
        steps: int = 1000,
        reward_range: tuple[float | None, float | None] | None = None,
        on_remark: Callable[[Remark], None] | None = None,
    ) -> None:
        super().__init__(on_remark)
        self._build, self._steps, self._reward_range, self._open = make, steps, reward_range, ExitStack()

    def _check(self) -> None:
        with self._open:
            environment = self._make("builds")
            base, count = type(environment.base), environment.num_envs
            copies = "1 copy" if count == 1 else f"{count} copies"
            self._fine("builds", f"{base.__module__}.{base.__qualname__}, {copies} on the {environment.device.type}")
            self._check_both_spaces(environment.single_observation_space, environment.single_action_space)
            before = global_generators()
            first = self._called("reset", lambda: environment.reset(seeds_of(environment)))[0]
            complaints = list(observation_complaints(first, environment))
            self._report_data("reset", complaints, "returns an observation of its space for every copy")
            self._called("step", lambda: self._check_steps(environment, first))
            drawn = [name for name, state in global_generators().items() if state != before[name]]
            self._called("limit", self._check_limit)
            self._called("seeds", lambda: self._check_seeds(environment, drawn))
            self._called("copies", lambda: self._check_independence(environment))
            self._called("resume", lambda: self._check_resume(environment))
            self._called("speed", lambda: self._check_speed(environment))

    def _make(self, check: str, limit: int | None = None) -> VectorEnvironment:
        environment = self._called(check, lambda: self._build(limit))
        self._open.callback(environment.close)
        return environment

    # ---- what it returns ----

    def _check_steps(self, environment: VectorEnvironment, first: Observation) -> None:
        count = environment.num_envs
        steps = -(-self._steps // count)
        problems: dict[str, None] = {}
        ages, episodes, moments = np.zeros(count, np.int64), [], []
        before: tuple[Step, Moment] | None = None
        for step in walk(environment, steps, first):
            problems |= dict.fromkeys(step_complaints(step, environment))
            if problems:  # a step of another form can't be looked at any further
                break
            moment = on_host(step)
            if before is not None and moment_difference(before[1], on_host(before[0])) is not None:
                problems["a step has changed during the next one: write into two sets of buffers in turns"] = None
            before = (step, moment)
            problems |= dict.fromkeys(autoreset_complaints(moment))
            if (said := range_problem(moment.reward, self._reward_range)) is not None:
                problems[f"reward: {said}"] = None
            ages += 1
            episodes += [(int(ages[i]), bool(moment.terminated[i])) for i in np.flatnonzero(moment.ended)]
            ages[moment.ended] = 0
            moments.append(moment)
        self._report_data("step", list(problems), f"{steps * count:,} random steps return what they should")
        if not problems:
            self._check_ends(environment, episodes, max(map(int, ages), default=0), moments)

    def _check_ends(
        self, environment: VectorEnvironment, episodes: list[tuple[int, bool]], age: int, moments: Sequence[Moment]
    ) -> None:
        limit = environment.base.max_episode_steps
        longest = max([age, *(length for length, _ in episodes)])
        terminated = sum(ended for _, ended in episodes)
        if not episodes and limit is None:
            says = f"no episode ended within {self._steps:,} random steps, and no time limit is known: evaluations may not end"
            self._notice("ends", says, "set environment.max_episode_steps; or look further: --steps 20000")
        elif limit is not None and longest * environment.action_repeat > limit:
            self._wrong("ends", f"an episode lasted {longest:,} steps, and the time limit is {limit:,}", "cut it: truncated")
        elif len(episodes) >= 3 and never_shows_where_it_ended(moments):
            self._wrong(
                "ends",
                "where an episode ended, final_observation is the first observation of the next one",
                "keep the observation after the last step before the copy begins again",
            )
        else:
            ends = f"{terminated} of {len(episodes)} episodes terminated" if episodes else "no episode ended in these steps"
            self._fine("ends", f"{ends}; time limit {limit:,}" if limit else f"{ends}; no time limit")

    def _check_limit(self) -> None:
        """Have every copy cut after a few steps: by a truncation, and showing where the last step led."""
        environment = self._make("limit", SHORT)
        first, _ = environment.reset(seeds_of(environment))
        ages, cut, terminated, problems, moments = np.zeros(environment.num_envs, np.int64), 0, 0, {}, []
        for step in walk(environment, 3 * SHORT, first):
            moment = on_host(step)
            moments.append(moment)
            ages += 1
            problems |= dict.fromkeys(autoreset_complaints(moment))
            for i in np.flatnonzero(ages * environment.action_repeat >= SHORT):
                if not moment.ended[i]:
                    problems[f"copy {i} goes on beyond a limit of {SHORT} steps"] = None
                terminated += int(moment.terminated[i])
            cut += int(moment.truncated.sum())
            ages[moment.ended] = 0
        if terminated >= 3 and not cut:
            problems[f"whoever comes to a limit of {SHORT} steps is terminated there: return truncated"] = None
        if not problems and cut and never_shows_where_it_ended(moments):
            problems["where an episode was cut, final_observation is the first observation of the next one"] = None
        if not cut and not problems:
            self._notice("limit", f"no episode came to a limit of {SHORT} steps: how it is cut is not checked", "nothing to do")
            return
        fine = f"cut after {SHORT} steps it is truncated, begins again in the same step and shows where it was"
        self._report_data("limit", list(problems), fine)

    # ---- whether it does the same again ----

    def _check_seeds(self, environment: VectorEnvironment, drawn: list[str]) -> None:
        way_out = "draw from a generator that reset(seeds) seeds, and from nothing else"
        if drawn:
            says = f"it draws from the global generator of {' and '.join(drawn)}, which others draw from"
            self._wrong("seeds", says, way_out)
            return
        if self._has_no_fixed_order(environment, "seeds"):
            return
        wanted = recorded(environment)
        for name, again in (("resets", environment), ("environments", self._make("builds"))):
            for number, (one, two) in enumerate(zip(wanted, recorded(again), strict=True)):
                if (what := moment_difference(one, two)) is not None:
                    when = "already in the first observation" if number == 0 else f"after {number} steps"
                    self._wrong("seeds", f"two {name} with the same seeds differ in {what}, {when}", way_out)
                    return
        self._fine("seeds", "the same seeds and actions lead to the same episodes, also in another environment")

    def _check_independence(self, environment: VectorEnvironment) -> None:
        """Act otherwise in the first copy, and see whether another one notices, up to the first end of an episode."""
        if environment.num_envs == 1:
            self._fine("copies", "there is one only: nothing to compare")
            return
        if self._has_no_fixed_order(environment, "copies"):
            return
        other, space = self._make("builds"), environment.single_action_space
        space.seed(SEED)
        (one, _), (two, _) = environment.reset(seeds_of(environment)), other.reset(seeds_of(other))
        number = 0
        while number < COMPARED:
            number += 1
            action = random_action(space, one, environment.num_envs)
            changed = action.clone()
            changed[0] = random_action(space, two, environment.num_envs)[0]
            here, there = on_host(environment.step(action)), on_host(other.step(changed))
            what = moment_difference(without_first(here), without_first(there))
            if what is not None:
                self._wrong(
                    "copies",
                    f"what the first copy does changes {what} of another one after {number} steps",
                    "keep nothing that copies write in common",
                )
                return
            if here.ended.any() or there.ended.any():
                break  # copies may share a stream that a new episode draws from
            one, two = as_observation(here.observation), as_observation(there.observation)
        self._fine("copies", f"what one copy does changes nothing in the others ({_steps(number)}, up to an episode's end)")

    def _check_resume(self, environment: VectorEnvironment) -> None:
        environment.reset(seeds_of(environment))
        if environment.snapshot == "restart":
            self._notice(
                "resume",
                "restart: its state can't be saved; a resumed run begins new episodes",
                "use a class that can where there is one, such as environment.exact=true for Atari; nothing else is lost",
            )
            return
        if self._has_no_fixed_order(environment, "resume"):
            return
        observation = walked(environment, 5)
        saved = copy.deepcopy(environment.state_dict())
        other = self._make("builds")
        other.reset([seed + 100 for seed in seeds_of(other)])
        other.load_state_dict(copy.deepcopy(saved))
        where = tree_difference(saved, other.state_dict())
        if where is not None:
            self._wrong("resume", f"{where} of its state is another one after it was loaded", "restore it in load_state_dict")
            return
        walks = zip(walk(environment, COMPARED, observation), walk(other, COMPARED, observation), strict=True)
        for number, (one, two) in enumerate(walks, start=1):
            if (what := moment_difference(on_host(one), on_host(two))) is not None:
                self._wrong(
                    "resume",
                    f"a restored environment differs in {what} after {number} steps: part of its state is not in state_dict()",
                    "add it there, and to load_state_dict()",
                )
                return
        self._fine("resume", f"{environment.snapshot}: restored from a checkpoint it goes on bit for bit")

    def _check_speed(self, environment: VectorEnvironment) -> None:
        observation, _ = environment.reset(seeds_of(environment))
        steps = max(1, min(self._steps // environment.num_envs, 200))
        space = environment.single_action_space
        actions = [
            random_action(space, observation, environment.num_envs).to(environment.device) for _ in range(min(steps, 20))
        ]
        masked = isinstance(observation, dict) and ACTION_MASK in observation
        began = time.perf_counter()
        for number in range(steps):
            action = random_action(space, observation, environment.num_envs) if masked else actions[number % len(actions)]
            observation = environment.step(action.to(environment.device)).observation
        environment.check()
        per_step = (time.perf_counter() - began) / steps / environment.num_envs
        self._fine("speed", f"{per_step * 1e6:,.0f} µs a step and copy with {environment.num_envs} of them, resets included")

    def _has_no_fixed_order(self, environment: VectorEnvironment, check: str) -> bool:
        """Whether nothing can be compared to the bit, which is then said."""
        if environment.device.type == "cpu":
            return False
        self._notice(
            check,
            f"not compared: on {environment.device.type} sums have no fixed order, so that two walks differ in their last bits",
            "the CPU compares it: environment.robot.simulator=cpu",
        )
        return True


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number} steps"
