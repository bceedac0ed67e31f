"""On an accelerator nothing in adding, sampling and writing back asks for a number: the host never waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from etude.buffers.columns import leaves, map_columns
from etude.buffers.places import Priority
from etude.buffers.replay import ReplayBuffer
from etude.compute.row import Row
from tests.buffers.test_hindsight import make as make_hindsight
from tests.buffers.test_hindsight import row as goal_row
from tests.buffers.transitions import transition
from tests.device_double import DEVICE, DeviceTensor, HostReadError, pretend_device

N = 2
MAKERS: dict[str, Callable[..., ReplayBuffer]] = {
    "replay": ReplayBuffer,
    "n_step": lambda *args, **options: ReplayBuffer(*args, n_step=3, gamma=0.9, **options),
    "prioritized": lambda *args, **options: ReplayBuffer(*args, priority=Priority(), **options),
    "sequence": lambda *args, **options: ReplayBuffer(*args, sequence=3, **options),
    "hindsight": lambda capacity, n, **options: make_hindsight(capacity // n, n, **options),
}


def row(kind: str, t: int) -> dict[str, Any]:
    if kind == "hindsight":
        return goal_row(t, N, [t % 4 == 3] * N, [t % 4 == 0] * N)
    return transition(t, N, truncated=[t % 4 == 3] * N, is_first=[t % 4 == 0] * N)


def known(columns: dict[str, Any], begins: bool | None) -> Row:
    """Return a step with what the host knows of it."""
    step = Row(columns)
    step.begins = begins
    return step


def run(kind: str, device: Any, steps: int = 13, *, host_knows: bool = False) -> list[dict[str, Any]]:
    """Fill a ring more than once around, sampling on the way, and return the batches."""
    buffer = MAKERS[kind](14, N, device=device)
    generator = torch.Generator(device)
    generator.manual_seed(0)
    batches = []
    for t in range(steps):
        step = map_columns(row(kind, t), lambda column: column.to(device))
        buffer.add(known(step, begins=t % 4 == 0) if host_knows else step)
        if not buffer.bounds.count:
            continue
        batches.append(buffer.sample_many(2, 8, generator))
        if kind == "prioritized":
            batch = batches[-1]
            buffer.learned(batch["index"], batch["generation"], priority=batch["reward"] / 1000)
    buffer.clear()
    return batches


@pytest.mark.parametrize("host_knows", [False, True])
@pytest.mark.parametrize("kind", MAKERS)
def test_the_host_is_never_asked_to_wait(kind: str, host_knows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(kind, "cpu")
    with pretend_device(monkeypatch) as device:
        made = run(kind, DEVICE, host_knows=host_knows)
        assert device.transfers == 13 * len(list(leaves(row(kind, 0)))), "rows went in, and nothing came out"
        assert all(isinstance(column, DeviceTensor) for batch in made for column in leaves(batch))
    for one, other in zip(made, expected, strict=True):
        assert all(torch.equal(a.as_subclass(Tensor), b) for a, b in zip(leaves(one), leaves(other), strict=True))


def test_the_double_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretend_device(monkeypatch):
        buffer = ReplayBuffer(14, N, priority=Priority(), device=DEVICE)
        buffer.add(map_columns(row("replay", 0), lambda column: column.to(DEVICE)))
        buffer.sample(1, torch.Generator(DEVICE))
        with pytest.raises(HostReadError):
            float(buffer.places.tree.total)  # type: ignore[attr-defined]


def test_a_buffer_on_the_host_gives_batches_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretend_device(monkeypatch):
        buffer = ReplayBuffer(14, N, priority=Priority(), device="cpu")
        buffer.add(row("replay", 0))
        batch = buffer.sample(4, torch.Generator(DEVICE))
        assert all(isinstance(column, DeviceTensor) for column in leaves(batch))
        buffer.learned(batch["index"], batch["generation"], priority=batch["reward"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # is a prototype, torch says
@pytest.mark.parametrize("kind", MAKERS)
def test_the_same_on_a_gpu(kind: str) -> None:
    run(kind, "cuda")  # warm-up: the first calls of some kernels wait
    torch.cuda.synchronize()
    rows = [map_columns(row(kind, t), lambda column: column.cuda()) for t in range(13)]
    buffer = MAKERS[kind](14, N, device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    buffer.add(rows[0])
    torch.cuda.set_sync_debug_mode("error")
    try:
        for t in range(1, 13):
            buffer.add(rows[t])
            if not buffer.bounds.count:
                continue
            batch = buffer.sample_many(2, 8, generator)
            if kind == "prioritized":
                buffer.learned(batch["index"], batch["generation"], priority=batch["reward"])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    fresh = MAKERS[kind](14, N, device="cuda")
    fresh.load_state_dict(buffer.state_dict())
    seeds = [torch.Generator("cuda").manual_seed(1) for _ in range(2)]
    one, other = buffer.sample(20, seeds[0]), fresh.sample(20, seeds[1])
    assert all(torch.equal(a, b) for a, b in zip(leaves(one), leaves(other), strict=True))


def test_a_device_by_its_kind_and_by_its_number_is_one_device() -> None:
    """What is captured reads the numbers under one of these names, and they are brought up to date under the other."""
    buffer = ReplayBuffer(8, 1)
    short, long = (buffer.bounds.on(torch.device(name))["written"] for name in ("cpu", "cpu:0"))
    assert short is long
