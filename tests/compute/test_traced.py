"""Functions that are compiled by what they do: the same numbers, the same draws, the same changes in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

import etude.compute.traced
from etude.compute.accelerate import has_compiler
from etude.compute.traced import Traced

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")


class Walker:
    """Counts its steps, drifts by what it draws, and remembers in a cache what a step has computed."""

    def __init__(self) -> None:
        self.generator = Generator().manual_seed(1)
        self.place, self.age = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
        self.cache: dict[str, Tensor] = {}
        self.calls = 0

    def step(self, push: Tensor) -> dict[str, Any]:
        self.calls += 1
        self.cache.clear()
        self.age.add_(1)
        noise = torch.rand(4, 2, generator=self.generator)
        self.place[:, :1] += push[:, None] + noise[:, :1]
        self.cache["far"] = self.place.norm(dim=-1)
        late = torch.randint(3, (4,), generator=self.generator)
        return {"far": self.cache["far"], "late": late + self.age, "both": (noise, self.age)}

    def drift(self) -> Tensor:
        self.place.uniform_(generator=self.generator)
        return self.place * 2


@needs_compiler
def test_traced_steps_are_the_steps_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etude.compute.traced, "kernels_up_to", lambda *_: {})  # which are compiled sooner
    ours, plain = Walker(), Walker()
    traced = Traced(ours.step, "a walker's step", forget=ours.cache.clear)
    for k in range(5):
        push = torch.full((4,), float(k))
        told, expected = traced(push), plain.step(push)
        torch.testing.assert_close(told, expected)
        torch.testing.assert_close((ours.place, ours.age), (plain.place, plain.age))
        assert torch.equal(ours.generator.get_state(), plain.generator.get_state())
    assert (traced.is_compiled, ours.calls) == (True, 2)  # as it is, and once to be traced


def test_what_cant_be_traced_runs_as_it_is_and_says_so() -> None:
    ours, plain = Walker(), Walker()
    traced = Traced(ours.drift, "a walker's drift")
    traced()
    with pytest.warns(UserWarning, match="a walker's drift is not compiled: CantBeTracedError: aten.uniform_"):
        traced()
    for _ in range(2):
        plain.drift()
    assert torch.equal(traced(), plain.drift())
    assert not traced.is_compiled


@pytest.mark.parametrize("changed", [0, 1])
def test_tensors_in_each_others_memory_are_refused_where_one_changes(changed: int) -> None:
    whole = torch.zeros(4)
    parts = (whole[:3], whole[1:])

    def step() -> Tensor:
        parts[changed][:1].add_(1.0)
        return parts[0].sum() + parts[1].sum()

    traced = Traced(step, "a step")
    traced()
    with pytest.warns(UserWarning, match="lie in the same memory"):
        assert float(traced()) == (2.0 if changed == 0 else 4.0)
