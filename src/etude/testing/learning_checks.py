"""What an algorithm must learn on tasks whose right answer is known: time limits, ends, and which action earned what."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from etude.orchestration.evaluator import evaluate_episodes
from etude.testing.probes import LENGTH
from etude.testing.subject import FailedError, SkippedError, Subject

TOLERANCE = 0.05
GOOD_ENOUGH = 0.9
EPISODES = 20


def time_limit(subject: Subject) -> str:
    """A reward of 1 for ever is worth 1/(1-γ), however often a time limit cuts the episode."""
    return _values(subject, "TimeLimit", lambda gamma: [1 / (1 - gamma)])


def termination(subject: Subject) -> str:
    """A reward of 1 until a real end is worth a finite sum, at every distance from it."""
    return _values(subject, "Termination", lambda gamma: [(1 - gamma**left) / (1 - gamma) for left in range(LENGTH, 0, -1)])


def next_observation(subject: Subject) -> str:
    """What a time limit cuts is worth the value of the final observation, not of the next episode's first one."""
    return _values(subject, "FinalObservation", lambda gamma: [5 * gamma, 5.0])


def action_now(subject: Subject) -> str:
    """An action is credited with the reward of its own step, in the observation it was chosen in."""
    # With a discount of 0, nothing but the step's own reward counts.
    return _learns(subject, "Now", 10, *(["algorithm.gamma=0"] if subject.has("gamma") else []))


def action_later(subject: Subject) -> str:
    """An action is credited with the reward of the step after it."""
    return _learns(subject, "Later", 9)


def _values(subject: Subject, probe: str, expected: Callable[[float], list[float]]) -> str:
    """Compare the learnt values of a probe's first states with what the discount makes of them."""
    if not hasattr(subject.workflow_class, "values"):
        raise SkippedError("it has no method values(observation)")
    right = torch.tensor(expected(subject.gamma))
    run = subject.build(probe, f"logging.every_steps={max(1, subject.steps // 40)}")
    observation = subject.observation(probe)[: len(right)]

    def learnt() -> Tensor:
        return run.workflow.values(observation).to("cpu", torch.float32)  # type: ignore[attr-defined] # asked for above

    def is_right() -> bool:
        return bool(((learnt() - right).abs() <= TOLERANCE * right.abs()).all())

    try:
        done = subject.train_until(run, is_right)
    finally:
        run.close()
    found, wanted = (", ".join(f"{value:.3g}" for value in numbers) for numbers in (learnt().tolist(), right.tolist()))
    if not done:
        raise FailedError(f"values are {found} after {run.counters.env_steps:,} steps; they should be {wanted}")
    return f"values {found} after {run.counters.env_steps:,} steps (right: {wanted})"


def _learns(subject: Subject, probe: str, steps_paid: int, *words: str) -> str:
    run = subject.build(probe, f"logging.every_steps={max(1, subject.steps // 20)}", *words)
    environment = subject.environment(probe, EPISODES)
    mode = "greedy" if subject.workflow_class.evaluation_mode == "greedy" else "sample"

    def share() -> float:
        result = evaluate_episodes(run.workflow.policy(), environment, EPISODES, mode=mode, seed=subject.seed)
        return float(result.returns.mean()) / steps_paid

    try:
        done = subject.train_until(run, lambda: share() >= GOOD_ENOUGH)
        found = share()
    finally:
        run.close()
        environment.close()
    if not done:
        steps = f"{run.counters.env_steps:,} steps"
        raise FailedError(f"it earns {found:.0%} of what can be earned after {steps}; chance earns 50%")
    return f"it earns {found:.0%} of what can be earned after {run.counters.env_steps:,} steps"
