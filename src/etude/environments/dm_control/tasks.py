"""The tasks of the suite by name, so that listing them imports nothing."""

from __future__ import annotations

_TASKS = {
    "acrobot": ("swingup", "swingup_sparse"),
    "ball_in_cup": ("catch",),
    "cartpole": ("balance", "balance_sparse", "swingup", "swingup_sparse", "two_poles", "three_poles"),
    "cheetah": ("run",),
    "dog": ("stand", "walk", "trot", "run", "fetch"),
    "finger": ("spin", "turn_easy", "turn_hard"),
    "fish": ("upright", "swim"),
    "hopper": ("stand", "hop"),
    "humanoid": ("stand", "walk", "run", "run_pure_state"),
    "humanoid_CMU": ("stand", "walk", "run"),
    "lqr": ("lqr_2_1", "lqr_6_2"),
    "manipulator": ("bring_ball", "bring_peg", "insert_ball", "insert_peg"),
    "pendulum": ("swingup",),
    "point_mass": ("easy", "hard"),
    "quadruped": ("walk", "run", "escape", "fetch"),
    "reacher": ("easy", "hard"),
    "stacker": ("stack_2", "stack_4"),
    "swimmer": ("swimmer6", "swimmer15"),
    "walker": ("stand", "walk", "run"),
}
IDS = tuple(f"dmc/{domain}-{task}" for domain, tasks in _TASKS.items() for task in tasks)
"""Every id, as in dm_control 1.0.50."""
MAX_EPISODE_STEPS = 1000
"""Of every task: the suite's own limits in seconds come to this, and lqr has none of its own."""


def domain_and_task(name: str) -> tuple[str, str]:
    """Return the two parts of an id; no domain has a hyphen in it."""
    domain, _, task = name.removeprefix("dmc/").partition("-")
    return domain, task
