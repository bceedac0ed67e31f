"""Networks with memory: a sequence is its steps, resets forget, nothing looks ahead, and the state is plain tensors."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.networks.groups import reads_group
from etude.components.networks.memory import Memory, MemoryNetwork, has_memory, is_capturable
from etude.components.networks.mlp import MLP
from etude.components.networks.recurrent import GRU, LSTM, GRUConfig, LSTMConfig
from etude.components.networks.transformer import Transformer, TransformerConfig, visibility
from etude.compute.captured import to_be_captured
from etude.compute.trees import at, leaves, map_tree
from etude.config.validate import Validator
from etude.errors import ConfigError
from tests.capture_double import no_host_reads

BOX = spaces.Box(-1, 1, (3,), np.float32)
DICT = spaces.Dict(
    {
        "state": BOX,
        "room": spaces.Discrete(4),
        "pixels": spaces.Box(0, 255, (40, 40, 1), np.uint8),
        "action_mask": spaces.MultiBinary(2),
    }
)
KINDS: dict[str, Any] = {
    "gru": (GRU, GRUConfig(hidden_dims=(8,), memory_size=8)),
    "gru of two layers": (GRU, GRUConfig(hidden_dims=(), memory_size=8, memory_layers=2)),
    "lstm": (LSTM, LSTMConfig(hidden_dims=(8,), memory_size=8)),
    "transformer": (Transformer, TransformerConfig(window=5, width=8, heads=2)),
    "transformer of two layers": (Transformer, TransformerConfig(window=4, width=8, heads=2, layers=2)),
    "a class of one's own": (None, None),
}
T, N = 23, 6


class Summing(MemoryNetwork):
    """Remembers the sum of what it saw; a sequence is the loop that every such network has."""

    def initial_state(self, n: int) -> Memory:
        return torch.zeros(n, 3)

    def forward(self, observation: Any, state: Any, is_first: torch.Tensor) -> tuple[torch.Tensor, Memory]:
        seen = observation["state"] if isinstance(observation, dict) else observation
        state = state * ~is_first[:, None] + seen
        return state[:, :2], state


def network(kind: str, space: Any = BOX, seed: int = 0) -> MemoryNetwork:
    cls, config = KINDS[kind]
    return Summing() if cls is None else cls(config, space, 2, generator=torch.Generator().manual_seed(seed))


def observations(space: Any, seed: int = 0) -> Any:
    draw = torch.Generator().manual_seed(seed)
    state = torch.randn(T, N, 3, generator=draw)
    if space is BOX:
        return state
    room = torch.randint(4, (T, N), generator=draw)
    pixels = torch.randint(256, (T, N, 40, 40, 1), generator=draw, dtype=torch.uint8)
    return {"state": state, "room": room, "pixels": pixels, "action_mask": torch.ones(T, N, 2, dtype=torch.int8)}


def resets(share: float, seed: int = 0) -> torch.Tensor:
    return torch.rand(T, N, generator=torch.Generator().manual_seed(seed)) < share


def by_steps(net: MemoryNetwork, seen: Any, state: Any, first: torch.Tensor) -> tuple[torch.Tensor, Any]:
    outputs = []
    for t in range(len(first)):
        output, state = net(at(seen, t), state, first[t])
        outputs.append(output)
    return torch.stack(outputs), state


def assert_close(one: Any, other: Any) -> None:
    for mine, theirs in zip(leaves(one), leaves(other), strict=True):
        torch.testing.assert_close(mine.float(), theirs.float(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("space", [BOX, DICT], ids=["vector", "dict"])
@pytest.mark.parametrize("share", [0.0, 0.15, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_is_its_steps_one_after_another(kind: str, share: float, space: Any) -> None:
    net, seen, first = network(kind, space), observations(space), resets(share)
    with torch.no_grad():
        _, state = by_steps(net, observations(space, seed=9), net.initial_state(N), resets(0.1, seed=9))  # amid an episode
        outputs, after = by_steps(net, seen, state, first)
        sequence, after_sequence = net.unroll(seen, state, first)
    assert outputs.shape == (T, N, 2)
    assert_close(sequence, outputs)
    if isinstance(after, dict) and "valid" in after:  # what is not valid is never looked at
        assert torch.equal(after["valid"], after_sequence["valid"])  # type: ignore[index]
        keep = after["valid"][:, None, :, None]
        after, after_sequence = after["features"] * keep, after_sequence["features"] * keep  # type: ignore[index]
    assert_close(after_sequence, after)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_remembered_across_a_reset(kind: str) -> None:
    net, seen = network(kind), observations(BOX)
    first = torch.zeros(T, N, dtype=torch.bool)
    first[7, 2] = True
    with torch.no_grad():
        before, _ = net.unroll(seen, net.initial_state(N), first)
        changed = seen.clone()
        changed[:7] += 5.0
        after, _ = net.unroll(changed, net.initial_state(N), first)
        alone, _ = net.unroll(seen[7:], net.initial_state(N), torch.zeros(T - 7, N, dtype=torch.bool))
    assert_close(after[7:, 2], before[7:, 2])
    assert_close(alone[:, 2], before[7:, 2])
    others = [i for i in range(N) if i != 2]
    assert not torch.allclose(after[7, others], before[7, others], atol=1e-3), "and only there is it forgotten"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_looks_ahead(kind: str) -> None:
    net, seen, first = network(kind), observations(BOX), resets(0.1)
    with torch.no_grad():
        before, _ = net.unroll(seen, net.initial_state(N), first)
        for t in (1, 10, T - 1):
            changed = seen.clone()
            changed[t:] = 3.0
            after, _ = net.unroll(changed, net.initial_state(N), first)
            assert_close(after[:t], before[:t])
            assert not torch.allclose(after[t], before[t], atol=1e-4)


def test_the_causal_mask_is_a_band_within_an_episode() -> None:
    """Two remembered, of which one is of this episode; a new episode begins at the third of five steps."""
    valid = torch.tensor([[False, True]])
    is_first = torch.tensor([[False, False, True, False, False]])
    visible, kept = visibility(valid, is_first)
    expected = [
        #  memory | sequence
        [0, 1, 1, 0, 0, 0, 0],
        [0, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1, 1, 1],
    ]
    assert visible[0].int().tolist() == expected
    assert kept.tolist() == [[True, True]]
    assert visibility(valid, is_first[:, :3])[1].tolist() == [[False, True]]


def test_a_transformer_of_one_layer_sees_its_window_and_no_further() -> None:
    net, seen = network("transformer"), observations(BOX)  # window 5
    never = torch.zeros(T, N, dtype=torch.bool)
    with torch.no_grad():
        before, _ = net.unroll(seen, net.initial_state(N), never)
        changed = seen.clone()
        changed[10] += 3.0
        after, _ = net.unroll(changed, net.initial_state(N), never)
    differs = (after - before).abs().amax((1, 2)) > 1e-6
    assert differs.nonzero().flatten().tolist() == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("kind", KINDS)
def test_each_environment_remembers_for_itself_and_a_state_can_be_taken_apart(kind: str) -> None:
    net, seen, first = network(kind), observations(BOX), resets(0.1)
    with torch.no_grad():
        together, state = net.unroll(seen, net.initial_state(N), first)
        some = [4, 1]
        part = at(net.initial_state(N), some)
        outputs, after = net.unroll(seen[:, some], part, first[:, some])
    assert_close(outputs, together[:, some])
    assert_close(after, at(state, some))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind][0]])
def test_weights_come_from_the_generator_alone(kind: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = network(kind, seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    same, other = network(kind, seed=3).state_dict(), network(kind, seed=4).state_dict()
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    assert all(torch.isfinite(value).all() for value in one.values())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind][0]])
def test_gradients_reach_every_weight_and_the_first_step(kind: str) -> None:
    net, seen = network(kind), observations(BOX)[:4].requires_grad_()
    outputs, _ = net.unroll(seen, net.initial_state(N), torch.zeros(4, N, dtype=torch.bool))
    outputs[-1].square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters() if p.numel() > 1)
    assert seen.grad is not None
    assert seen.grad[0].abs().sum() > 0


def test_the_forget_gate_of_an_lstm_begins_open() -> None:
    cells = network("lstm").cells
    assert cells.bias_ih_l0[8:16].tolist() == [1.0] * 8  # type: ignore[union-attr]
    assert cells.bias_hh_l0.abs().sum() == 0  # type: ignore[union-attr]


def test_who_remembers_is_known_from_the_class() -> None:
    assert all(has_memory(cls) for cls in (GRU, LSTM, Transformer, Summing))
    assert not has_memory(MLP)


@pytest.mark.parametrize(
    ("config", "options", "complaint"),
    [
        (TransformerConfig, {"width": 10, "heads": 4}, "network: width=10 can't be shared among heads=4"),
        (TransformerConfig, {"window": 1}, "network.window=1: must be at least 2"),
        (GRUConfig, {"memory_size": 0}, "network.memory_size=0: must be at least 1"),
        (LSTMConfig, {"memory": 3}, "network.memory: unknown key"),
    ],
)
def test_a_wrong_option_is_refused_by_name(config: type, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Validator().build(config, options, "network")


@pytest.mark.parametrize("space", [BOX, DICT], ids=["vector", "dict"])
@pytest.mark.parametrize("share", [0.0, 0.15, 1.0])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind][0]])
def test_what_is_captured_asks_nothing_of_the_device_and_is_the_same_sequence(kind: str, share: float, space: Any) -> None:
    net, seen, first = network(kind, space), observations(space), resets(share)
    assert net.capturable
    begin = by_steps(net, observations(space, seed=9), net.initial_state(N), resets(0.1, seed=9))[1]  # amid an episode
    begin = map_tree(torch.Tensor.detach, begin)
    said = []
    for within in (nullcontext, to_be_captured):
        with within(), no_host_reads() if within is to_be_captured else nullcontext():
            outputs, after = net.unroll(seen, begin, first)
            step, _ = net(at(seen, 0), begin, first[0])
        net.zero_grad()
        outputs.square().mean().backward()
        gradients = {name: weights.grad.clone() for name, weights in net.named_parameters() if weights.grad is not None}
        said.append({"outputs": outputs, "step": step, "after": after, "gradients": gradients})
    assert_close(*said)


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_that_reads_a_group_remembers_as_the_network_does(kind: str) -> None:
    net, seen, first = network(kind), observations(BOX), resets(0.2)
    reader: Any = reads_group(net, "actor")
    with torch.no_grad():
        sequence, state = reader.unroll({"actor": seen, "critic": seen * 2}, reader.initial_state(N), first)
        expected, after = net.unroll(seen, net.initial_state(N), first)
    assert_close([sequence, state], [expected, after])
    assert is_capturable(reader) == is_capturable(net) == (kind != "a class of one's own")
