from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from etude.runs.checkpoint import Checkpoint, CheckpointStore


def _same(left: object, right: object) -> bool:
    if isinstance(left, torch.Tensor):
        if not isinstance(right, torch.Tensor) or left.dtype != right.dtype or left.shape != right.shape:
            return False
        bits = [tensor.detach().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for tensor in (left, right)]
        return torch.equal(*bits)
    if isinstance(left, dict):
        # The order counts too: optimisers and modules rely on it.
        return isinstance(right, dict) and _same(list(left.items()), list(right.items()))
    if isinstance(left, list | tuple):
        if not isinstance(right, list | tuple):
            return False
        return type(left) is type(right) and len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, float):
        return type(right) is float and repr(left) == repr(right)
    return type(left) is type(right) and left == right


@pytest.fixture(scope="session")
def same() -> Callable[[object, object], bool]:
    """Equality without mercy: types, order, dtypes, shapes and bits."""
    return _same


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", keep=3)


@pytest.fixture
def save(store: CheckpointStore) -> Callable[..., Checkpoint]:
    """Save a small full checkpoint (or a policy alone) at `env_steps`."""

    def save_at(env_steps: int, *, policy_only: bool = False, **options: bool) -> Checkpoint:
        weight = torch.full((4, 3), float(env_steps))
        parts: dict[str, object] = {"policy": {"weight": weight}}
        if not policy_only:
            parts["shared"] = {"weight": weight, "optimizer": {0: {"step": torch.tensor(env_steps)}}}
            parts["rank/0"] = {"rng": torch.arange(16, dtype=torch.uint8), "counters": {"env_steps": env_steps}}
        return store.save(parts, counters={"env_steps": env_steps, "updates": 2}, metadata={"note": "x"}, **options)

    return save_at
