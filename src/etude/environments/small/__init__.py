"""Small tasks that show one thing each: memory, exploration, goals, several optima. Importing this registers them.

Each is written once, for many copies at a time; Gymnasium gets the same task, one copy at a time.
"""

from __future__ import annotations

from typing import Any

import gymnasium

_HERE = "etude.environments.small"
# id: (module, task, time limit, return at which it counts as solved, arguments)
_TASKS: dict[str, tuple[str, str, int | None, float | None, dict[str, Any]]] = {
    "MemoryCorridor-v0": ("memory_corridor", "MemoryCorridor", None, 0.9, {}),
    "Bandit-v0": ("bandit", "Bandit", None, 9.0, {}),
    "Bandit/Gaussian-v0": ("bandit", "Bandit", None, 9.0, {}),
    "Bandit/Bernoulli-v0": ("bandit", "Bandit", None, 0.85, {"rewards": "bernoulli"}),
    "PointReach-v0": ("point_reach", "PointReach", 50, None, {}),
    "MultiGoal-v0": ("multi_goal", "MultiGoal", 30, None, {}),
    "TwoWays-v0": ("two_ways", "TwoWays", 80, 0.95, {}),
}
NO_VELOCITY = "CartPoleNoVelocity-v0"
NATIVE = frozenset([*_TASKS, NO_VELOCITY])


def make_native(name: str, num_envs: int, kwargs: dict[str, Any], max_episode_steps: int | None) -> Any:
    """Return many copies of one of these tasks; raises TypeError or ValueError for arguments it does not take."""
    if name == NO_VELOCITY:
        from etude.environments.small.cartpole_no_velocity import CartPoleNoVelocity

        return CartPoleNoVelocity(name, num_envs, max_episode_steps=max_episode_steps)
    from importlib import import_module

    module, task, limit, threshold, arguments = _TASKS[name]
    made = getattr(import_module(f"{_HERE}.{module}"), task)(**{**arguments, **kwargs})
    return made.vector(num_envs, max_episode_steps=max_episode_steps or limit, return_threshold=threshold)


def register() -> None:
    """Make them known to Gymnasium, unless they are."""
    if NO_VELOCITY in gymnasium.registry:
        return
    gymnasium.register(
        NO_VELOCITY,
        f"{_HERE}.cartpole_no_velocity:CartPoleNoVelocityEnv",
        max_episode_steps=500,
        reward_threshold=475.0,
    )
    for name, (module, task, limit, threshold, arguments) in _TASKS.items():
        entry = f"{_HERE}.{module}:{task}Env"
        gymnasium.register(name, entry, max_episode_steps=limit, reward_threshold=threshold, kwargs=arguments)


register()
