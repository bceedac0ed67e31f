"""Captured updates read and write the memory that they were captured with: what they are given must stay where it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from etude.compute.noise import Noise
from etude.compute.trees import at
from etude.learning.execute import Eager, Table, draws, tables_of
from etude.learning.sources import Source
from tests.datasets.episodes import write_lines
from tests.runs_compared import train

TINY = (
    *("algorithm.batch_size=4", "environment.num_envs=1", "experiment.compile=off", "logging.report=false"),
    *("evaluation.every_steps=0", "evaluation.every_updates=0", "checkpoint.every_updates=8"),
    *("buffers.data.dataset=pendulum", "algorithm.updates=24"),
)
SMALL = {
    "diffusion_policy": ("network.denoiser.widths=[8,8]", "algorithm.horizon=4", "algorithm.action_steps=2"),
    "iql": ("algorithm.finetune_steps=16", "training.total_steps=16"),
}


class Given(TorchDispatchMode):
    """Notes what is read or written within and was not made within."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[int] = set()
        self._made: dict[int, torch.Tensor] = {}
        """Kept, or its memory would be another tensor's."""

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.places |= {place for place in _places([args, kwargs or {}]) if place not in self._made}
        found = func(*args, **(kwargs or {}))
        self._made |= {place: tensor for place, tensor in _places(found).items() if place not in self.places}
        return found


def _places(tree: Any) -> dict[int, torch.Tensor]:
    tensors = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.numel()]
    return {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors}


@pytest.mark.parametrize("name", ["bc", "diffusion_policy", "iql"])
def test_what_an_update_is_given_stays_where_it_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "data")
    monkeypatch.setenv("ETUDE_DATASETS", str(tmp_path / "data"))
    found: dict[Any, list[set[int]]] = {}

    def run(self: Eager, source: Source, count: int, before: Callable[[int], None] | None = None) -> dict[str, Table]:
        reports = []
        for drawn in draws(source, count, 1, before):
            (due,) = self.due(1)
            with Given() as given:
                reports.append(self.once(source.gather(source.columns, at(drawn, 0)), due, Noise(self.generator)))
            self.taken.value += 1
            found.setdefault((due, source.identity), []).append(given.places - set(_places(drawn)))
        return tables_of(self.update.stages, reports)

    monkeypatch.setattr(Eager, "run", run)
    train(f"Pendulum-v1:{name}", tmp_path, *TINY, *SMALL.get(name, ()))
    assert sum(map(len, found.values())) >= 24
    for updates in found.values():
        _, *later = updates  # the first makes gradients and moments
        assert all(places == later[0] for places in later)
