"""Measures a policy on environments of its own, without touching training."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from etude.acting.actor import Actor
from etude.compute.random_streams import derive_seed, global_generators_kept, isolated_global_generators
from etude.compute.trees import map_tree
from etude.environments.vector import RAW_REWARD, VectorEnvironment
from etude.errors import EnvironmentFailureError, EtudeError, NonFiniteError

Attend = Callable[[int, int, int], bool]
"""Hears at every step of an evaluation of the episodes done, of how many, and of decisions; says whether to go on."""
MAX_ENVS = 16
SECONDS_BETWEEN_NEWS = 15
"""Of an evaluation that takes long."""
MEASURES = (
    "return_mean",
    "return_std",
    "return_min",
    "return_max",
    "raw_return_mean",
    "raw_return_std",
    "length_mean",
    "episodes",
)
"""What an evaluation can say of a policy; raw returns only where wrappers change rewards."""


@dataclass(frozen=True)
class EvaluationResult:
    """Finished episodes, in order of environment and then of time."""

    returns: np.ndarray
    lengths: np.ndarray
    mode: str
    timed_out: bool = False
    raw_returns: np.ndarray | None = None
    """What the task itself paid, where wrappers that stay in evaluations change rewards."""

    def metrics(self, prefix: str = "eval/") -> dict[str, float]:
        """Return the row of metrics of this evaluation."""
        if len(self.returns) == 0:
            return {f"{prefix}episodes": 0.0}
        raw = {}
        if self.raw_returns is not None:
            raw[f"{prefix}raw_return_mean"] = float(self.raw_returns.mean())
            raw[f"{prefix}raw_return_std"] = float(self.raw_returns.std())
        return {
            f"{prefix}return_mean": float(self.returns.mean()),
            f"{prefix}return_std": float(self.returns.std()),
            f"{prefix}return_min": float(self.returns.min()),
            f"{prefix}return_max": float(self.returns.max()),
            **raw,
            f"{prefix}length_mean": float(self.lengths.mean()),
            f"{prefix}episodes": float(len(self.returns)),
        }

    def confidence_interval(self) -> tuple[float, float] | None:
        """Return where the mean return lies with 95% confidence; None for fewer than two episodes."""
        return confidence_interval(self.returns)


def confidence_interval(values: np.ndarray, coverage: float = 0.95, resamples: int = 10_000) -> tuple[float, float] | None:
    """Return the interval of the mean by bootstrap percentiles: no shape of the distribution is assumed.

    The same values always give the same interval. With very few it is too narrow, as any such interval is.
    """
    if len(values) < 2:
        return None
    generator = np.random.default_rng(0)
    # In blocks: all resamples of a large evaluation at once would take gigabytes.
    block = max(1, 2**20 // len(values))
    counts = [min(block, resamples - begun) for begun in range(0, resamples, block)]
    means = np.concatenate([generator.choice(values, (count, len(values))).mean(axis=1) for count in counts])
    low, high = np.quantile(means, [(1 - coverage) / 2, (1 + coverage) / 2])
    return float(low), float(high)


class EvaluationAbandonedError(EtudeError):
    """Whoever attended an evaluation ended it; nothing was measured."""


def evaluate_episodes(
    policy: Any,
    environment: VectorEnvironment,
    episodes: int,
    *,
    mode: Literal["sample", "greedy"],
    seed: int,
    device: torch.device | str = "cpu",
    timeout_s: float | None = None,
    on_progress: Callable[[int], None] | None = None,
    attend: Callable[[int, int], bool] | None = None,
    captured: bool = False,
) -> EvaluationResult:
    """Run exactly `episodes` episodes to their end, the same number in every environment (give or take one).

    Taking whichever episodes finish first would favour short ones: each environment has its quota instead. The global
    generators are seeded too, for environments of other people that read them, and put back. `attend` is asked at every
    step, with the episodes and decisions until then, whether to go on: if not, `EvaluationAbandonedError` is raised.
    `captured` has a policy on a GPU act as CUDA graphs, where it can.
    """
    device, count = torch.device(device), environment.num_envs
    quota = np.array([episodes // count + (i < episodes % count) for i in range(count)])
    returns: list[list[float]] = [[] for _ in range(count)]
    lengths: list[list[int]] = [[] for _ in range(count)]
    generator = torch.Generator(device).manual_seed(derive_seed(seed, "action"))
    actor = Actor(policy, mode, generator, captured=captured)
    running_return, running_length = np.zeros(count), np.zeros(count, np.int64)
    raw_returns: list[list[float]] = [[] for _ in range(count)]
    running_raw, has_raw = np.zeros(count), False
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    finished = decisions = 0
    with torch.no_grad(), isolated_global_generators(seed):
        observation, _ = environment.reset([derive_seed(seed, "env", i) for i in range(count)])
        state = actor.initial_state(count)
        is_first = torch.ones(count, dtype=torch.bool, device=environment.device)
        first = map_tree(lambda t: t.to(device, copy=True), observation), state, is_first.to(device)
        while finished < episodes:
            if deadline is not None and time.monotonic() > deadline:
                break
            if attend is not None and not attend(finished, decisions):
                raise EvaluationAbandonedError(f"stopped after {finished} of {episodes} episodes")
            decisions += 1
            seen = map_tree(lambda t: t.to(device), observation)
            action, state, _ = actor(seen, state, is_first.to(device))
            step = environment.step(action.to(environment.device))
            ended_here = step.terminated | step.truncated
            reward, ended = step.reward.to("cpu").numpy(), ended_here.to("cpu").numpy()
            running_return += reward
            running_length += 1
            raw = step.info.get(RAW_REWARD)
            if raw is not None:
                has_raw = True
                running_raw += raw.to("cpu").numpy()
            for i in np.flatnonzero(ended):
                if not np.isfinite(running_return[i]):
                    again = actor(*first).action
                    if not torch.isfinite(again).all():
                        raise NonFiniteError(
                            "the policy answers an evaluation's first observation with an action that is NaN or infinite; "
                            "a lower learning rate may prevent it"
                        )
                    raise EnvironmentFailureError(
                        f"copy {i} of the environment paid a return of {running_return[i]:g} in an evaluation: one of its "
                        "rewards is NaN or infinite"
                    )
                if len(returns[i]) < quota[i]:
                    returns[i].append(float(running_return[i]))
                    raw_returns[i].append(float(running_raw[i]))
                    lengths[i].append(int(running_length[i]))
                    finished += 1
                running_return[i], running_raw[i], running_length[i] = 0.0, 0.0, 0
            if on_progress is not None and ended.any():
                with global_generators_kept():
                    on_progress(finished)
            observation, is_first = step.observation, ended_here
    return EvaluationResult(
        _flat(returns),
        _flat(lengths, np.int64),
        mode,
        timed_out=finished < episodes,
        raw_returns=_flat(raw_returns) if has_raw else None,
    )


def _flat(by_copy: Sequence[Sequence[float]], dtype: Any = np.float64) -> np.ndarray:
    return np.array([value for each in by_copy for value in each], dtype=dtype)


def metric_names(modes: Sequence[str]) -> list[str]:
    """Return every metric that evaluations in these modes may log; the first mode is the one that counts."""
    prefixes = [f"eval/{mode}_" if position else "eval/" for position, mode in enumerate(modes)]
    return [f"{prefix}{measure}" for prefix in prefixes for measure in MEASURES]


def attending(now: Callable[[], float], say: Callable[[str], None] | None, goes_on: Callable[[], bool]) -> Attend:
    """Return who attends an evaluation: `say` hears how far it has come every now and then, `goes_on` may end it."""
    said_at = now()

    def attend(done: int, episodes: int, decisions: int) -> bool:
        nonlocal said_at
        if say is not None and now() - said_at >= SECONDS_BETWEEN_NEWS:
            said_at = now()
            with global_generators_kept():
                say(f"evaluating: {done} of {episodes} episodes, {decisions:,} decisions")
        return goes_on()

    return attend


class Evaluator:
    """Evaluates during training. Seeds derive from the run's seed and the steps done, so nothing else is disturbed."""

    def __init__(
        self,
        make: Callable[[int], VectorEnvironment],
        *,
        episodes: int,
        modes: tuple[Literal["sample", "greedy"], ...],
        seed: int,
        device: torch.device,
        num_envs: int | None = None,
        timeout_s: float | None = None,
        captured: bool = False,
    ) -> None:
        self._make, self._environment = make, None
        self._episodes, self._modes, self._timeout_s = episodes, modes, timeout_s
        self._num_envs = num_envs or min(episodes, MAX_ENVS)
        self._seed, self._device, self._captured = seed, device, captured

    def evaluate(self, policy: Any, env_steps: int, updates: int, attend: Attend | None = None) -> dict[str, float]:
        """Return the eval/ metrics of the policy as it is; a second mode gets its own prefix.

        If `attend` ends it, the result is empty.
        """
        if self._environment is None:
            # The same ones whenever they are made: a resumed run makes them at another moment.
            with isolated_global_generators(derive_seed(self._seed, "evaluate")):
                self._environment = self._make(self._num_envs)
        metrics: dict[str, float] = {}
        seed = derive_seed(self._seed, "evaluate", env_steps, updates)
        for position, mode in enumerate(self._modes):
            try:
                result = evaluate_episodes(
                    policy,
                    self._environment,
                    self._episodes,
                    mode=mode,
                    seed=seed,
                    device=self._device,
                    timeout_s=self._timeout_s,
                    attend=None if attend is None else lambda done, decisions: attend(done, self._episodes, decisions),
                    captured=self._captured,
                )
            except EvaluationAbandonedError:
                return {}
            metrics |= result.metrics("eval/" if position == 0 else f"eval/{mode}_")
        return metrics

    def close(self) -> None:
        """Close the evaluation environments, if any were made."""
        if self._environment is not None:
            self._environment.close()
