"""Tensors that cross together arrive as they were, and stay so until the second next crossing."""

from __future__ import annotations

import pytest
import torch

from etude.compute.packed_transfer import PackedTransfer

CPU = torch.device("cpu")
DEVICES = [CPU, pytest.param(torch.device("cuda"), marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def _tree(seed: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "observation": {
            "image": torch.randint(256, (2, 3, 5), generator=generator).to(torch.uint8),
            "state": torch.randn(2, 7, generator=generator),
        },
        "reward": torch.randn(2, generator=generator),
        "ended": torch.rand(2, generator=generator) < 0.5,
        "count": torch.randint(2**40, (2,), generator=generator),
        "nothing": torch.zeros(2, 0),
    }


@pytest.mark.parametrize("device", DEVICES)
def test_everything_arrives_as_it_was_and_holds_for_two_more_calls(device: torch.device) -> None:
    transfer = PackedTransfer(_tree(0), device)
    arrived = []
    for seed in range(8):
        arrived.append(transfer(_tree(seed)))
        for back in range(min(3, len(arrived))):
            expected, found = _tree(seed - back), arrived[-1 - back]
            assert list(found) == list(expected)
            for ours, theirs in zip(_flat(found), _flat(expected), strict=True):
                assert ours.device.type == device.type
                assert ours.dtype == theirs.dtype
                assert torch.equal(ours.cpu(), theirs)


def test_what_changed_its_shape_or_type_is_an_error_and_not_a_wrong_number() -> None:
    transfer = PackedTransfer({"a": torch.zeros(2)}, CPU)
    with pytest.raises(TypeError):
        transfer({"a": torch.zeros(2, dtype=torch.float64)})
    with pytest.raises(ValueError, match="broadcast"):
        transfer({"a": torch.zeros(3)})
    with pytest.raises(ValueError, match="shorter"):
        transfer({})


def _flat(tree: dict[str, object]) -> list[torch.Tensor]:
    flat = []
    for value in tree.values():
        flat += _flat(value) if isinstance(value, dict) else [value]
    return flat  # type: ignore[return-value] # tensors by now
