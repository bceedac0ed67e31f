"""Rebuilds an environment whose state can't be captured: from its last reset and the actions since.

That needs an environment that does the same again when its random generators and the actions are the same. Gymnasium's
own Box2D classes do, and so does ours, which is one of theirs but faster. Any other says so itself, with a class attribute
`rewindable = True`: after a reset, nothing of earlier episodes is left, and all randomness comes from `self.np_random` and its
spaces. Its wrappers must be plain data, which is captured as it was before the reset, and one of them must be a TimeLimit:
without an end the list of actions has none.
"""

from __future__ import annotations

import hashlib
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from etude.environments.snapshots import snapshot
from etude.errors import EtudeError

_BOX2D = ("gymnasium.envs.box2d.", "etude.environments.box2d.")
_REUSE_THEIR_WORLD = frozenset(
    ["gymnasium.envs.box2d.bipedal_walker", "gymnasium.envs.box2d.car_racing", "etude.environments.box2d.car_racing"]
)


_CLAIMS = ("rewindable", "replayable")
"""The class attribute that says so, and what it was called before."""


class RewindError(EtudeError):
    """The same actions from the same start led elsewhere: another version or another processor, most likely."""


def is_rewindable(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether `env` may be rebuilt from actions."""
    *wrappers, base = snapshot.layers(env)
    known = type(base).__module__.startswith(_BOX2D) or any(
        getattr(type(base), name, False) is True for name in ("rewindable", "replayable")
    )
    if not known or not any(isinstance(wrapper, TimeLimit) for wrapper in wrappers):
        return False
    try:
        snapshot.capture_layers(wrappers, beside=base)
    except snapshot.NotPlainError:
        return False
    return True


def renew_world(env: gymnasium.Env[Any, Any]) -> None:
    """Give the Box2D classes that keep their world a new one, to be called before each reset.

    What is left in a used world changes the order of contacts, and with it the last bits of all that follows.
    """
    base: Any = env.unwrapped
    if type(base).__module__ in _REUSE_THEIR_WORLD:
        base._destroy()
        base.world = type(base.world)(gravity=base.world.gravity)


class EpisodeLog:
    """What one copy needs to get back to where it is: how its episode began, and the actions since."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env
        *self._wrappers, self._base = snapshot.layers(env)
        self._beginning: dict[str, Any] = {}
        self._actions: list[np.ndarray] = []
        self._observation: Any = None

    def begin(self, seed: int | None) -> None:
        """Note how the episode begins; to be called before the reset. Raises NotPlainError if that can't be known."""
        self._beginning = {
            "seed": seed,
            "wrappers": snapshot.capture_layers(self._wrappers),
            "generators": snapshot.capture_generators(self._base),
        }
        self._actions = []

    def act(self, action: Any) -> None:
        """Note an action; to be called before the step, which may change it."""
        self._actions.append(np.array(action))

    def observe(self, observation: Any) -> None:
        """Note what a reset or step returned."""
        self._observation = observation

    def state_dict(self) -> dict[str, Any]:
        """Return the episode so far."""
        actions = snapshot.encode(np.stack(self._actions)) if self._actions else None
        return {**self._beginning, "actions": actions, "fingerprint": self._fingerprint()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Live through the episode again; raises RewindError if it went another way."""
        snapshot.restore_layers(self._wrappers, state["wrappers"])
        snapshot.restore_generators(self._base, state["generators"])
        self._beginning = {key: state[key] for key in ("seed", "wrappers", "generators")}
        self._actions = [] if state["actions"] is None else list(snapshot.decode(state["actions"]))
        renew_world(self._env)
        self._observation, _ = self._env.reset(seed=state["seed"])
        for count, action in enumerate(self._actions, 1):
            given = int(action) if isinstance(self._env.action_space, gymnasium.spaces.Discrete) else np.array(action)
            self._observation, _, terminated, truncated, _ = self._env.step(given)
            if terminated or truncated:
                raise RewindError(f"the episode lived again ended after {count} of {len(self._actions)} steps")
        if self._fingerprint() != state["fingerprint"]:
            raise RewindError(f"{len(self._actions)} steps taken again did not lead to where the saved environment was")

    def _fingerprint(self) -> str:
        """A digest of the last observation and of the generator: who drew more or less is somewhere else."""
        digest = hashlib.sha256()
        parts: Any = self._observation
        for part in parts.values() if isinstance(parts, dict) else parts if isinstance(parts, tuple) else (parts,):
            digest.update(np.ascontiguousarray(part).tobytes())
        generator = vars(self._base).get("_np_random")
        digest.update(repr(None if generator is None else generator.bit_generator.state).encode())
        return digest.hexdigest()
