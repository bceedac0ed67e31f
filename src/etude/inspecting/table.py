"""A recorded episode as rows: for people, for spreadsheets and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from etude.environments.gymnasium import GymnasiumVector
from etude.environments.vector import VectorEnvironment
from etude.files.csv_text import csv_text
from etude.inspecting.driving import NAMES
from etude.inspecting.inspector import Inspector
from etude.inspecting.recording import Columns, InspectedStep, Recording
from etude.using.stored_policy import StoredPolicy

FORMAT, VERSION = "etude inspection", 1
MOST_ENTRIES = 64
"""Of an observation that has columns of its own: pictures have none."""


def action_labels(inspector: Inspector) -> tuple[str, ...]:
    """Return a word for each discrete action, or for each entry of a continuous one; empty where nobody says."""
    environment = inspector.environment
    said = inspector.performer.stored.config.environment.spec.action_labels or _own_labels(environment)
    return tuple(said) if len(said) == _action_size(environment) else ()


def observation_labels(inspector: Inspector) -> tuple[str, ...]:
    """Return a word for each entry of a vector; empty where nobody says."""
    environment = inspector.environment
    said = inspector.performer.stored.config.environment.spec.observation_labels or _terms(environment)
    space: Any = environment.single_observation_space
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    return tuple(said) if len(said) == sum(int(np.prod(part.shape or (0,))) for part in parts) else ()


def step_row(inspector: Inspector, recording: Recording, index: int, columns: Columns | None = None) -> dict[str, Any]:
    """Return one step, in plain values; keys that mean nothing for this algorithm are absent."""
    step, found = recording.steps[index], columns or recording.columns()
    row: dict[str, Any] = {
        "step": index,
        "done": step.terminated or step.truncated,
        "terminated": step.terminated,
        "truncated": step.truncated,
        "action": step.action.tolist(),
        **_label(inspector, step),
        "forced": step.is_forced,
        "reward": step.reward,
        "return": float(found.returns[index]),
        "mc_return": float(found.mc_returns[index]),
    }
    insight = step.insight
    if found.values is not None and found.advantages is not None:
        row |= {"value": float(found.values[index]), "advantage": float(found.advantages[index])}
    said = {
        "probabilities": insight.probabilities,
        "mean": insight.mean,
        "std": insight.std,
        "q": insight.q_taken,
        "q_values": insight.q_values,
        "predicted_reward": insight.predicted_reward,
        "predicted_continue": insight.predicted_continue,
    }
    row |= {name: plain(value) for name, value in said.items() if value is not None}
    if step.command is not None:
        row["command"] = list(step.command)
    if step.is_forced:
        row["policy_action"] = step.chosen.tolist()
    return row


def as_csv(inspector: Inspector, recordings: Iterable[Recording]) -> str:
    """Return every step of every episode: a column for each number, and cells that no spreadsheet takes for formulas."""
    rows = [
        {"episode": number, "seed": recording.seed, **_flat(inspector, recording, index, columns)}
        for number, recording in enumerate(recordings, 1)
        for columns in [recording.columns()]
        for index in range(len(recording.steps))
    ]
    return csv_text(list(dict.fromkeys(name for row in rows for name in row)), rows)


def as_json(inspector: Inspector, recordings: Sequence[Recording]) -> dict[str, Any]:
    """Return everything but the pictures."""
    units = inspector.performer.reader.units
    return {
        "format": FORMAT,
        "version": VERSION,
        **about(inspector),
        "gamma": units.gamma,
        "gae_lambda": units.gae_lambda,
        "action_labels": list(action_labels(inspector)),
        "notes": list(inspector.notes),
        "episodes": [episode(inspector, recording, with_observations=True) for recording in recordings],
    }


def about(inspector: Inspector) -> dict[str, Any]:
    """Return whose episodes these are."""
    stored = inspector.performer.stored
    at: dict[str, Any] = {}
    if isinstance(stored, StoredPolicy):
        at = {"checkpoint": stored.checkpoint.name, "counters": dict(stored.checkpoint.counters)}
    return {
        "run": stored.name,
        "environment": stored.config.environment.id,
        "algorithm": stored.config.algorithm.name,
        "mode": inspector.performer.mode,
        **at,
    }


def episode(inspector: Inspector, recording: Recording, *, with_observations: bool = False) -> dict[str, Any]:
    """Return an episode with its steps, in plain values."""
    columns = recording.columns()
    steps = [step_row(inspector, recording, index, columns) for index in range(len(recording.steps))]
    if with_observations:
        for row, step in zip(steps, recording.steps, strict=True):
            row["observation"] = plain(step.observation)
            if step.seen is not None:
                row["seen"] = plain(step.seen)
            if step.insight.predicted_observation is not None:
                row["predicted_observation"] = plain(step.insight.predicted_observation)
    return {
        "seed": recording.seed,
        "policy": recording.performer.name,
        "mode": recording.performer.mode,
        "return": recording.total_reward,
        "length": len(recording.steps),
        "ending": recording.ending,
        "branched_at": None if recording.origin is None else recording.origin.step,
        "final_value": recording.final_value,
        "steps": steps,
    }


def plain(value: Any) -> Any:
    """Return arrays as lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    return value


def _flat(inspector: Inspector, recording: Recording, index: int, columns: Columns) -> dict[str, Any]:
    row, actions = step_row(inspector, recording, index, columns), action_labels(inspector)
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if not isinstance(value, list):
            flat[name] = value
            continue
        numbers = np.asarray(value).flatten()
        if name == "command":
            flat |= {f"command_{word}": number for word, number in zip(NAMES, value, strict=True)}
            continue
        names = _names(actions, len(numbers)) if name != "policy_action" or len(numbers) > 1 else [""]
        flat |= {f"{name}_{word}".rstrip("_"): number for word, number in zip(names, numbers.tolist(), strict=True)}
    observation = recording.steps[index].observation
    parts = observation if isinstance(observation, dict) else {"": observation}
    for part, value in parts.items():
        if value.size <= MOST_ENTRIES:
            prefix = "_".join(word for word in ("observation", part) if word)
            names = _names(observation_labels(inspector) if not part else (), value.size)
            flat |= {f"{prefix}_{word}": number for word, number in zip(names, value.flatten().tolist(), strict=True)}
    return flat


def _names(labels: Sequence[str], count: int) -> list[str]:
    """Labels where each says something of its own, and numbers elsewhere."""
    return list(labels) if len(labels) == count == len(set(labels)) else [str(number) for number in range(count)]


def _label(inspector: Inspector, step: InspectedStep) -> dict[str, str]:
    labels = action_labels(inspector)
    if not labels or not isinstance(inspector.environment.single_action_space, spaces.Discrete):
        return {}
    return {"action_label": labels[int(step.action)]}


def _action_size(environment: VectorEnvironment) -> int:
    space: Any = environment.single_action_space
    return int(space.n) if isinstance(space, spaces.Discrete) else int(np.prod(space.shape or ()))


def _own_labels(environment: VectorEnvironment) -> tuple[str, ...]:
    """What an environment itself calls its actions, as Atari's games and MiniGrid's worlds do."""
    base: Any = environment.base
    if hasattr(base, "groups"):
        return tuple(base.scene.joints[joint] for joint in base.scene.acted)  # a robot's actions are targets of its joints
    if not isinstance(base, GymnasiumVector):
        return ()
    task: Any = base.copies[0].unwrapped
    if callable(getattr(task, "get_action_meanings", None)):
        return tuple(str(word) for word in task.get_action_meanings())
    named = getattr(task, "actions", None)
    return tuple(named.__members__) if isinstance(named, type) and hasattr(named, "__members__") else ()


def _terms(environment: VectorEnvironment) -> tuple[str, ...]:
    """What a robot's task calls what is seen: a term for each number, of joints with their names."""
    base: Any = environment.base
    groups = getattr(base, "groups", {})
    joints = base.scene.joints if groups else ()
    return tuple(
        f"{term['term']} {joints[number] if count == len(joints) else number}" if count > 1 else term["term"]
        for group in groups.values()
        for term in group.layout()
        for count in [term["size"] * term["history"]]
        for number in range(count)
    )
