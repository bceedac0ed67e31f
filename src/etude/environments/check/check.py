"""Checks an environment of your own and explains in words what is wrong, and what to do about it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import gymnasium
import torch

from etude.config.environment_presets import environment_preset
from etude.config.layers import overlay
from etude.config.schema import EnvironmentConfig
from etude.config.validate import Validator
from etude.environments.catalog import did_you_mean_id
from etude.environments.check.data import copied, differing, is_flag, mismatch, range_problem, reward_problem
from etude.environments.check.report import SEED, Remark, Report, global_generators
from etude.environments.check.robots import described_robots
from etude.environments.check.vector import COPIES, VectorChecker
from etude.environments.families import family_of
from etude.environments.make import import_module_of, make_copy, make_environment
from etude.environments.snapshots import snapshot
from etude.environments.snapshots.rewind import is_rewindable
from etude.environments.vector import VectorEnvironment
from etude.errors import UserError

_WORTH_A_WORKER_S = 50e-6


class Checker(Report):
    """Goes through one environment; what it found is in `remarks`."""

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        *,
        steps: int = 1000,
        bare: bool = True,
        reward_range: tuple[float | None, float | None] | None = None,
        on_remark: Callable[[Remark], None] | None = None,
    ) -> None:
        """With `bare`, what is checked is inside of all wrappers, some of which would fail on what is wrong with it.

        `on_remark` hears each remark as soon as it is made: a slow environment takes its time.
        """
        super().__init__(on_remark)
        self._make, self._steps, self._bare, self._reward_range = make, steps, bare, reward_range

    def _check(self) -> None:
        env = self._called("builds", self._make)
        self._fine("builds", f"{type(env.unwrapped).__module__}.{type(env.unwrapped).__qualname__}")
        self._check_spaces(env)
        before = global_generators()
        first = self._check_reset(env)
        episodes = self._check_steps(env, first)
        self._check_ends(env, episodes)
        drawn = [name for name, state in global_generators().items() if state != before[name]]
        self._called("seeds", lambda: self._check_seeds(env, drawn))
        self._called("resume", lambda: self._check_snapshot(env))
        self._called("speed", lambda: self._check_speed(env))

    # ---- what it says about itself ----

    def _check_spaces(self, env: gymnasium.Env[Any, Any]) -> None:
        for name in ("observation_space", "action_space"):
            if not isinstance(getattr(env, name, None), gymnasium.Space):
                self._stop("spaces", f"it has no {name}", f"set self.{name} to a space of gymnasium.spaces in __init__")
        self._check_both_spaces(env.observation_space, env.action_space)

    # ---- what it returns ----

    def _check_reset(self, env: gymnasium.Env[Any, Any]) -> Any:
        base = env.unwrapped if self._bare else env
        returned: Any = None
        try:
            returned = base.reset(seed=SEED)
        except TypeError as problem:
            if "seed" not in str(problem):
                raise self._raised("reset", problem) from problem
            self._stop("reset", "takes no seed", "def reset(self, *, seed=None, options=None), or wrap it in OldGymAdapter")
        except Exception as problem:
            raise self._raised("reset", problem) from problem
        if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict)):
            self._stop(
                "reset",
                "returns an observation alone, as gym before 0.26 did",
                "return observation, {}; or wrap it in etude.environments.adapters.OldGymAdapter",
            )
        self._report_data("reset", list(mismatch(returned[0], base.observation_space)), "returns an observation of its space")
        return returned[0]

    def _check_steps(self, env: gymnasium.Env[Any, Any], first: Any) -> list[tuple[int, bool, bool]]:
        """Walk at random through the bare environment; returns (length, terminated, truncated) of each episode."""
        base, space = env.unwrapped if self._bare else env, env.action_space
        space.seed(SEED)
        limit = env.spec.max_episode_steps if env.spec else None
        problems: dict[str, None] = {}
        reward_range = self._reward_range
        episodes, length, previous, kept = [], 0, first, copied(first)
        for _ in range(self._steps):
            returned = self._called("step", lambda: base.step(space.sample()))
            observation, reward, terminated, truncated = self._unpacked(returned)
            if differing(previous, kept) is not None and observation is previous:
                problems["shared"] = None
            previous, kept = observation, copied(observation)
            problems |= dict.fromkeys(f"observation: {said}" for said in mismatch(observation, base.observation_space))
            if (said := reward_problem(reward)) is not None:
                problems[f"reward: {said}"] = None
            elif (said := range_problem(reward, reward_range)) is not None:
                problems[f"reward: {said}"], reward_range = None, None  # once: every step may have another
            for name, flag in (("terminated", terminated), ("truncated", truncated)):
                if not is_flag(flag):
                    problems[f"{name}: it is a {type(flag).__name__}: return bool({name})"] = None
            length += 1
            if terminated or truncated or length == limit:
                episodes.append((length, bool(terminated), bool(truncated)))
                previous, _ = self._called("reset", base.reset)
                kept, length = copied(previous), 0
        shares = problems.pop("shared", 0) is None
        self._report_data("step", list(problems), f"{self._steps:,} random steps return what they should")
        if shares:
            self._notice(
                "memory",
                "every step returns the same array, changed: whoever keeps an observation sees it change",
                "return a copy, such as self.state.copy(); Etude copies at once, other libraries may not",
            )
        return episodes

    def _unpacked(self, returned: Any) -> tuple[Any, Any, Any, Any]:
        if not isinstance(returned, tuple) or len(returned) != 5:
            count = len(returned) if isinstance(returned, tuple) else 1
            said = f"returns {count} things instead of observation, reward, terminated, truncated, info"
            if count == 4:
                said += ": the way of gym before 0.26"
            self._stop(
                "step", said, "split done into terminated and truncated, or wrap it in OldGymAdapter (docs/environments.md)"
            )
        observation, reward, terminated, truncated, info = returned
        if not isinstance(info, dict):
            self._stop("step", f"returns a {type(info).__name__} as info", "return a dict, {} will do")
        return observation, reward, terminated, truncated

    def _check_ends(self, env: gymnasium.Env[Any, Any], episodes: list[tuple[int, bool, bool]]) -> None:
        limit = env.spec.max_episode_steps if env.spec else None
        if not episodes and limit is None:
            self._wrong(
                "ends",
                f"no episode ended within {self._steps:,} random steps, and there is no time limit: evaluations would not end",
                "gymnasium.register(..., max_episode_steps=1000); or, if episodes are only long, look further: --steps 20000",
            )
            return
        lengths = {length for length, _, _ in episodes}
        if len(episodes) >= 3 and len(lengths) == 1 and all(terminated for _, terminated, _ in episodes):
            self._notice(
                "ends",
                f"every one of {len(episodes)} episodes terminated after exactly {lengths.pop()} steps",
                "if that is a time limit, return truncated instead: what would have followed still has a value",
            )
            return
        if sum(terminated and truncated for _, terminated, truncated in episodes) == len(episodes) > 0:
            self._notice(
                "ends", "every end is terminated and truncated at once", "say one: truncated only for a cut by a limit"
            )
            return
        ends = f"{sum(t for _, t, _ in episodes)} of {len(episodes)} episodes terminated"
        self._fine("ends", f"{ends}; time limit {limit:,}" if limit else f"{ends}; no time limit")

    # ---- whether it does the same again ----

    def _check_seeds(self, env: gymnasium.Env[Any, Any], drawn: list[str]) -> None:
        way_out = "draw from self.np_random after super().reset(seed=seed), and from nothing else"
        again, other = self._walk(env, SEED), self._walk(self._called("builds", self._make), SEED)
        for name, walk in (("resets with the same seed", self._walk(env, SEED)), ("copies with the same seed", other)):
            for number, (one, two) in enumerate(zip(again, walk, strict=False)):
                what = _difference(one, two)
                if what is not None:
                    when = "already in the first observation" if number == 0 else f"after {number} steps"
                    source = f"; it draws from the global generator of {' and '.join(drawn)}" if drawn else ""
                    self._wrong("seeds", f"two {name} differ in {what}, {when}{source}", way_out)
                    return
        if drawn:
            self._wrong(
                "seeds", f"it draws from the global generator of {' and '.join(drawn)}, which others draw from", way_out
            )
            return
        self._fine("seeds", "the same seed and actions lead to the same episode, also in another copy")

    def _walk(self, env: gymnasium.Env[Any, Any], seed: int, steps: int = 30) -> list[tuple[Any, ...]]:
        """Return observation, reward and ends of each moment of a random walk."""
        env.action_space.seed(SEED)
        observation, _ = env.reset(seed=seed)
        seen = [(copied(observation), copied(0.0), False, False)]
        for _ in range(steps):
            observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            seen.append((copied(observation), copied(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                seen.append((copied(env.reset()[0]), copied(0.0), False, False))
        return seen

    def _check_snapshot(self, env: gymnasium.Env[Any, Any]) -> None:
        self._walk(env, SEED, 5)
        try:
            state = snapshot.capture(env)
        except snapshot.NotPlainError as problem:
            if is_rewindable(env):
                self._fine("resume", "rewind: rebuilt from the actions of its episode")
                return
            self._notice(
                "resume",
                f"restart: its state can't be known, because {problem}; a resumed run begins new episodes",
                "keep plain data in attributes; or give it state_dict() and load_state_dict(); or rewindable = True on it",
            )
            return
        other = self._called("builds", self._make)
        other.reset(seed=SEED + 1)
        snapshot.restore(other, state)
        env.action_space.seed(SEED)
        for number in range(1, 31):
            action = env.action_space.sample()
            one, two = env.step(action), other.step(action)
            what = _difference(one, two)
            if what is not None:
                self._wrong(
                    "resume",
                    f"a restored copy differs in {what} after {number} steps: part of its state is outside of its attributes",
                    "no clock, no globals, no class attributes that change; or give it state_dict() and load_state_dict()",
                )
                return
            if one[2] or one[3]:
                break
        self._fine("resume", "exact: a copy restored from a checkpoint goes on bit for bit")

    def _check_speed(self, env: gymnasium.Env[Any, Any]) -> None:
        env.reset(seed=SEED)
        actions = [env.action_space.sample() for _ in range(min(self._steps, 200))]
        began = time.perf_counter()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        per_step = (time.perf_counter() - began) / len(actions)
        says = f"{per_step * 1e6:,.0f} µs a step, resets included"
        cores = os.cpu_count() or 1
        if per_step > _WORTH_A_WORKER_S and cores > 1:
            self._fine("speed", says, f"slow enough for worker processes: environment.workers={cores}")
        else:
            self._fine("speed", says)


def check_environment(
    name: str,
    kwargs: dict[str, Any] | None = None,
    *,
    steps: int = 1000,
    on_remark: Callable[[Remark], None] | None = None,
) -> list[Remark]:
    """Check the environment of this id; `module:Name-v0` imports the module first. Raises UserError for an unknown id.

    Robots have ids and files: a task, a robot's own YAML, or its MJCF or URDF. `kwargs` are settings there, as training takes
    them.
    """
    if steps < 1:
        raise UserError(f"--steps {steps}: must be at least 1")
    described = described_robots(name, kwargs or {})
    if described is not None:
        config, device = described
        return _checked_vector(config, device, steps, on_remark)
    import_module_of(name)
    plain, family = name.rpartition(":")[2], family_of(name)
    family.register(name)
    if plain not in gymnasium.registry:
        raise UserError(f"{name}: no environment of this id is registered{did_you_mean_id(plain)}")
    config = _described(name, kwargs or {})
    native = family.make_vector(config, 1)
    if native is not None:
        native.close()
        return _checked_vector(config, None, steps, on_remark)
    # As training would show it: a family's own class and wrappers, where it has any.
    return Checker(
        lambda: make_copy(config),
        steps=steps,
        bare=family.module is None,
        reward_range=config.spec.reward_range,
        on_remark=on_remark,
    ).run()


def _described(name: str, kwargs: Mapping[str, Any]) -> EnvironmentConfig:
    """Return the environment of this id with the facts of its preset; those given as environment.spec lie over them."""
    facts = environment_preset(name).get("environment", {}).get("spec", {})
    given = kwargs.get("environment")
    if isinstance(given, Mapping) and set(given) == {"spec"} and isinstance(given["spec"], Mapping):
        facts = overlay(facts, given["spec"])
        kwargs = {key: value for key, value in kwargs.items() if key != "environment"}
    data = {"id": name, "num_envs": COPIES, "kwargs": kwargs, "spec": facts}
    return Validator().build(EnvironmentConfig, data, "environment")


def _checked_vector(
    config: EnvironmentConfig, device: torch.device | None, steps: int, on_remark: Callable[[Remark], None] | None
) -> list[Remark]:
    """Check what training steps, with fewer copies."""

    def make(limit: int | None) -> VectorEnvironment:
        chosen = config if limit is None else replace(config, max_episode_steps=limit)
        captures = device is not None and device.type == "cuda"
        return make_environment(chosen, num_envs=COPIES, training=True, device=device, capture=captures)

    return VectorChecker(make, steps=steps, reward_range=config.spec.reward_range, on_remark=on_remark).run()


def _difference(one: tuple[Any, ...], two: tuple[Any, ...]) -> str | None:
    """Return in what two moments differ, or None."""
    what = differing(one[0], two[0]) or (differing(one[1], two[1]) and "the reward")
    return what or ("how the episode ends" if (bool(one[2]), bool(one[3])) != (bool(two[2]), bool(two[3])) else None)
