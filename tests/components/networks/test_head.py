"""A critic that is a head on the actor: one set of convolutions, trained by both losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.networks.build import build_network
from etude.components.networks.cnn import CNNConfig
from etude.components.networks.head import Head, HeadConfig, outputs_of_both
from etude.components.networks.recurrent import GRU
from etude.config.compose import compose
from etude.errors import UserError
from etude.training import assembly
from tests.runs_compared import assert_same_state, resume, state, stopped_after, train

IMAGE = spaces.Box(0, 255, (4, 36, 36), np.uint8)
WORDS = ("network.critic.type=head", "training.total_steps=2048", "algorithm.epochs=2", "evaluation.every_steps=0")


def pair() -> tuple[torch.nn.Module, Head]:
    actor = build_network(CNNConfig(), IMAGE, 6, seed=1)
    head = build_network(HeadConfig(hidden_dims=(8,)), actor, 1, seed=2)  # type: ignore[arg-type] # a head reads a network
    assert isinstance(head, Head)
    return actor, head


def test_a_head_reads_the_features_of_the_other_network_and_has_only_its_own_weights() -> None:
    actor, head = pair()
    assert {tuple(weight.shape) for weight in head.parameters()} == {(8, 512), (8,), (1, 8), (1,)}
    pictures = torch.randint(0, 255, (5, 4, 36, 36), dtype=torch.uint8)
    outputs, values = outputs_of_both(actor, head, pictures)
    torch.testing.assert_close(outputs, actor(pictures))
    torch.testing.assert_close(values, head(pictures))
    head(pictures).sum().backward()
    assert all(weight.grad is not None for name, weight in actor.named_parameters() if not name.startswith("layers.2"))


def test_ppo_with_a_head_goes_on_exactly_after_a_stop(tmp_path: Path) -> None:
    whole = train("CartPole-v1:ppo", tmp_path / "whole", *WORDS)
    with stopped_after(5):
        run = train("CartPole-v1:ppo", tmp_path / "cut", *WORDS)
    assert resume(run).status == "finished"
    assert_same_state(state(run), state(whole))


@pytest.mark.parametrize(
    ("spec", "words", "said"),
    [
        ("CartPole-v1:ppo", ["network.critic={type: head, of: nobody}"], "network.critic.of=nobody"),
        ("CartPole-v1:ppo", ["network.actor.type=head"], "no such network before it"),
        ("Pendulum-v1:sac", ["network.critic.type=head"], "sac trains its networks apart"),
    ],
)
def test_a_head_on_nothing_is_one_clear_line(spec: str, words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        assembly.build(assembly.resolve(compose(spec, words=words).config))


def test_a_head_does_not_stand_on_memory() -> None:
    space = spaces.Box(-1, 1, (3,), np.float32)
    memory = build_network(GRU.Config(), space, 2, seed=1)
    with pytest.raises(UserError, match="a head stands on a cnn or an mlp, and the actor is a gru"):
        build_network(HeadConfig(), memory, 1, seed=2)  # type: ignore[arg-type] # a head reads a network
