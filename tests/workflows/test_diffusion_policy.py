"""Diffusion Policy: chunks from noise, carried out in part, exactly resumed; and both ways around a wall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.cli import run as command
from etude.components.diffusion import Diffusion
from etude.components.networks.denoisers import (
    ACTIONS,
    CONDITION,
    STEP,
    DenoisingTransformer,
    DenoisingTransformerConfig,
    DenoisingUNet,
    DenoisingUNetConfig,
    denoiser_space,
)
from etude.compute.captured import Captured
from etude.datasets.convert import read_foreign
from etude.datasets.dataset import Dataset
from etude.datasets.places import folder_of
from etude.datasets.writer import writing
from etude.errors import ConfigError, UserError
from tests.capture_double import pretend_capture
from tests.datasets.episodes import DONE, episode, manifest, seen
from tests.runs_compared import assert_resumes_again_and_again, train
from tests.workflows.tiny_replay_runs import assert_compiled_equals_eager, start

PICTURES = spaces.Dict({"camera": spaces.Box(0, 255, (12, 12, 3), np.uint8), "arm": spaces.Box(-10.0, 10.0, (3,))})
VECTOR = spaces.Box(-10.0, 10.0, (3,))
TINY = (
    *("algorithm.batch_size=4", "algorithm.updates=12", "algorithm.embedding=4", "network.encoder.hidden_dims=[8]"),
    *("network.denoiser.widths=[8,8]", "network.denoiser.step_features=4", "algorithm.horizon=4", "algorithm.action_steps=2"),
    *("algorithm.sampling_steps=3", "algorithm.diffusion_steps=5", "experiment.compile=off"),
    *("evaluation.every_steps=0", "evaluation.every_updates=0", "buffers.data.dataset=demos", "environment.num_envs=1"),
)
TRANSFORMER = "network.denoiser={type: denoising_transformer, width: 8, heads: 2, layers: 1}"
CAMERA = (
    "network.encoder={type: mlp, hidden_dims: [8], encoders: {camera: {type: cnn, channels: [2], kernels: [4], strides: [4]}}}"
)


def without(prefix: str) -> list[str]:
    return [word for word in TINY if not word.startswith(prefix)]


def record(root: Path, monkeypatch: pytest.MonkeyPatch, observation: spaces.Space = VECTOR) -> None:
    monkeypatch.setenv("ETUDE_DATASETS", str(root))
    with writing(folder_of("demos", root), manifest(observation, DONE)) as writer:
        writer.add(*(episode(9, seed, observation=observation) for seed in range(3)))


@pytest.mark.parametrize("way", ["ddim", "ddpm"])
def test_whoever_knows_the_noise_gets_the_clean_back(way: str) -> None:
    diffusion, generator = Diffusion(20), torch.Generator().manual_seed(0)
    clean = torch.rand(4, 6, 2, generator=generator) * 2 - 1

    def predict(value: torch.Tensor, step: int) -> torch.Tensor:
        kept = diffusion.kept[step]
        return (value - kept.sqrt() * clean) / (1 - kept).sqrt()

    noise = torch.randn(4, 6, 2, generator=generator)
    more = torch.randn(19, 4, 6, 2, generator=generator)
    found = diffusion.ddim(predict, noise, 5) if way == "ddim" else diffusion.ddpm(predict, noise, more)
    assert torch.allclose(found, clean, atol=1e-4)


def test_noise_grows_from_almost_none_to_almost_all() -> None:
    diffusion = Diffusion(50)
    clean, noise = torch.ones(50, 3), torch.zeros(50, 3)
    kept = diffusion.noised(clean, noise, torch.arange(50))[:, 0]
    assert kept[0] > 0.99
    assert kept[-1] < 0.05
    assert (kept.diff() < 0).all()


@pytest.mark.parametrize("horizon", [8, 16])
def test_denoisers_put_out_what_they_read(horizon: int) -> None:
    space = denoiser_space(horizon, 2, 2, 5)
    given = {ACTIONS: torch.randn(3, horizon, 2), STEP: torch.rand(3, 1), CONDITION: torch.randn(3, 2, 5)}
    generator = torch.Generator().manual_seed(0)
    unet = DenoisingUNet(DenoisingUNetConfig(widths=(8, 12, 16)), space, 2 * horizon, generator=generator)
    small = DenoisingTransformerConfig(width=8, heads=2, layers=2)
    transformer = DenoisingTransformer(small, space, 2 * horizon, generator=generator)
    for network in (unet, transformer):
        found = network(given)
        assert found.shape == (3, 2 * horizon)
        for part in (STEP, CONDITION):
            assert not torch.allclose(network({**given, part: given[part] + 1}), found)
    later = given[ACTIONS].clone()
    later[:, 5:] += 1
    before, after = (transformer({**given, ACTIONS: part}).view(3, horizon, 2) for part in (given[ACTIONS], later))
    assert torch.allclose(before[:, :5], after[:, :5], atol=1e-6)  # no action sees a later one
    assert not torch.allclose(before[:, 5:], after[:, 5:])
    with pytest.raises(UserError, match=r"a horizon that is a multiple of 4, not 6"):
        DenoisingUNet(DenoisingUNetConfig(), denoiser_space(6, 2, 2, 5), 12, generator=generator)
    with pytest.raises(UserError, match="for diffusion_policy"):
        DenoisingUNet(DenoisingUNetConfig(), VECTOR, 12, generator=generator)


def test_acting_for_few_is_what_acting_for_many_is() -> None:
    space, generator = denoiser_space(8, 2, 2, 5), torch.Generator().manual_seed(0)
    unet = DenoisingUNet(DenoisingUNetConfig(widths=(8, 12)), space, 16, generator=generator)
    given = {ACTIONS: torch.randn(9, 8, 2), STEP: torch.rand(9, 1), CONDITION: torch.randn(9, 2, 5)}
    learnt = unet(given)
    with torch.no_grad():
        many = unet(given)
        few = torch.cat([unet({name: part[3 * k : 3 * k + 3] for name, part in given.items()}) for k in range(3)])
    assert torch.allclose(learnt, many, atol=1e-5)
    assert torch.allclose(few, many, atol=1e-5)


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (VECTOR, TINY),
        (PICTURES, (*without("network."), TRANSFORMER, CAMERA, "algorithm.sampler=ddpm", "algorithm.ema=0.5")),
    ],
    ids=["unet", "transformer-pictures"],
)
def test_it_resumes_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observation: spaces.Space, words: tuple[str, ...]
) -> None:
    record(tmp_path / "data", monkeypatch, observation)
    assert_resumes_again_and_again("Nowhere-v0:diffusion_policy", tmp_path / "runs", *words, most=3)


def test_a_chunk_is_carried_out_and_then_the_next_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, monkeypatch)
    workflow: Any = start("Nowhere-v0:diffusion_policy", TINY).workflow
    policy, made = workflow.policy(), []
    own = policy.make
    policy.make = lambda seen, noise, more: made.append(seen) or own(seen, noise, more)
    generator = torch.Generator().manual_seed(0)
    state, first = policy.initial_state(2), torch.tensor([True, True])
    chunks, asked = [], []
    for t in range(5):
        observation = torch.full((2, 3), float(t))
        action, state, _ = policy.act(observation, state, first, mode="sample", generator=generator)
        chunks.append(state["chunk"])
        asked.append(len(made))
        assert torch.equal(action, workflow.head.to_environment(state["chunk"][[0, 1], state["done"] - 1]))
        first = torch.tensor([False, t == 2])
    assert asked == [1, 1, 2, 3, 4]  # at 0 and 2; at 3 the second begins anew, at 4 the first is through
    assert [len(part) for part in made] == [2, 2, 1, 1]
    assert made[0][0].flatten().tolist() == [0] * 6  # alone at the beginning
    assert made[1][0][:, 0].tolist() == [1, 2]
    assert made[2][0][:, 0].tolist() == [3, 3]
    assert made[3][0][:, 0].tolist() == [3, 4]
    assert torch.equal(chunks[3][0], chunks[2][0])


def test_on_a_gpu_a_chunk_is_a_graph_for_each_number_of_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, monkeypatch)
    workflow: Any = start("Nowhere-v0:diffusion_policy", (*TINY, "algorithm.sampler=ddpm", "algorithm.action_steps=1")).workflow
    policy = workflow.policy()
    policy._on_gpu = True

    def acted() -> list[torch.Tensor]:
        generator, found = torch.Generator().manual_seed(0), []
        for n in (2, 3):
            state, first = policy.initial_state(n), torch.ones(n, dtype=torch.bool)
            for t in range(6):
                observation = torch.full((n, 3), float(t))
                action, state, _ = policy.act(observation, state, first, mode="sample", generator=generator)
                found.append(action.clone())
                first = torch.arange(n) == t
        return found

    eager, graphs = acted(), pretend_capture(monkeypatch)
    monkeypatch.setattr("etude.workflows.diffusion_policy.at_once", lambda function, device: Captured(function))
    policy._graphs.clear()
    captured = acted()
    assert [graph.replays for graph in graphs] == [3, 3]  # the calls before them warm up
    for one, other in zip(eager, captured, strict=True):
        assert torch.equal(one, other)


def test_what_acts_are_averages_of_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, monkeypatch)
    orchestrator = start("Nowhere-v0:diffusion_policy", (*TINY, "algorithm.ema=0.9"))
    workflow: Any = orchestrator.workflow
    before = [p.detach().clone() for p in workflow.denoiser.parameters()]
    batch = workflow.gathered(orchestrator.buffers["data"], orchestrator.buffers["data"].columns, torch.arange(4))
    workflow.learn(batch)
    learnt, acting = list(workflow.denoiser.parameters()), list(workflow.mean_denoiser.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, learnt, strict=True))
    for old, new, mean in zip(before, learnt, acting, strict=True):
        assert torch.allclose(mean, 0.9 * old + 0.1 * new, atol=1e-6)
    assert set(map(id, workflow.policy().parts["denoiser"].parameters())) == set(map(id, acting))


def test_wrong_requests_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match=r"a chunk has only algorithm\.horizon=4 actions"):
        start("Nowhere-v0:diffusion_policy", (*TINY, "algorithm.action_steps=5"))
    with pytest.raises(ConfigError, match=r"there are only algorithm\.diffusion_steps=5"):
        start("Nowhere-v0:diffusion_policy", (*TINY, "algorithm.sampling_steps=6"))
    with pytest.raises(UserError, match="multiple of 2, not 5"):
        start("Nowhere-v0:diffusion_policy", (*TINY, "algorithm.horizon=5"))


def test_demonstrations_go_both_ways_and_arrive(tmp_path: Path) -> None:
    dataset, _ = read_foreign("script:TwoWays-v0", "two-ways", tmp_path, scripted_episodes=40)
    assert dataset.manifest.returns == [1.0] * 40
    assert 0.25 < np.mean([_side(each) for each in dataset.episodes()]) < 0.75
    with pytest.raises(UserError, match="nobody has written down how it is done"):
        read_foreign("script:CartPole-v1", "none", tmp_path)


def _side(each: Any) -> bool:
    """Whether an episode passes the wall on the right."""
    path = seen(each)
    return bool(path[path[:, 1].abs().argmin(), 0] > 0)


@pytest.mark.slow
def test_both_ways_around_the_wall_where_the_mean_hits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(["dataset", "convert", "script:TwoWays-v0", "two-ways"]) == 0
    learnt = {"diffusion_policy": (), "bc": ("algorithm.head=deterministic", "algorithm.updates=3000")}
    off = ("evaluation.every_steps=0", "evaluation.every_updates=0", "buffers.data.dataset=two-ways")
    share, right = {}, {}
    for name, words in learnt.items():
        run = train(f"TwoWays-v0:{name}", tmp_path / "runs", *off, *words)
        assert command(["dataset", "record", str(run.path), "--episodes", "100", "--name", name]) == 0
        episodes = list(Dataset.open(name).episodes())
        arrived = [each for each in episodes if each.total == 1.0]
        share[name], right[name] = len(arrived) / 100, sum(map(_side, arrived)) / max(1, len(arrived))
    assert share["diffusion_policy"] >= 0.95
    assert 0.25 <= right["diffusion_policy"] <= 0.75
    assert share["bc"] < 0.5


@pytest.mark.slow
def test_compiled_learns_what_eager_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, monkeypatch)
    words = [word for word in TINY if "compile" not in word]
    assert_compiled_equals_eager("Nowhere-v0:diffusion_policy", words, ("encoder", "denoiser"))
