"""A step is the same step, eager, compiled or captured."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from etude.compute.accelerate import SETTINGS, Mode, choose_mode
from etude.config.compose import compose
from etude.learning import compiled
from etude.learning.execute import make_executor
from etude.learning.update import Stage, Update
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from etude.training.remarks import remarks

CASES = {
    "discrete": ("CartPole-v1:ppo", "algorithm.entropy_coef=0.01"),
    "continuous": (
        "Pendulum-v1:ppo",
        "algorithm.target_kl=0.02",
        "algorithm.adaptive_kl=0.01",
        "algorithm.clip_value_loss=0.2",
        "algorithm.critic_learning_rate=5e-4",
        "algorithm.accumulate=3",
        "environment.normalize_observations=rolling",
    ),
}
SMALL = ("algorithm.rollout_steps=16", "algorithm.batch_size=1.0", "algorithm.epochs=2", "environment.num_envs=4",
         "evaluation.every_steps=0", "training.total_steps=512", "network.actor.hidden_dims=[16]")  # fmt: skip


def _build(settings: tuple[str, ...], compiling: str, device: str) -> Orchestrator:
    words = (*SMALL, *settings[1:], f"experiment.compile={compiling}", f"experiment.device={device}")
    orchestrator = assembly.build(assembly.resolve(compose(settings[0], words=words).config))
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    return orchestrator


def _numbers(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree.detach().cpu().double().flatten()]
    values = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else []
    return [tensor for value in values for tensor in _numbers(value)]


def _compare(settings: tuple[str, ...], device: str, mode: Mode) -> None:
    """From equal states, after one update each: parameters, moments, rates and metrics within 1e-5."""
    eager, fast = _build(settings, "off", device), _build(settings, SETTINGS[mode], device)
    for _ in range(3):
        for orchestrator in (eager, fast):
            orchestrator._run_cycle()
        one, other = eager.workflow.state_dict(), fast.workflow.state_dict()
        for key in ("actor", "critic", "head", "optimizer", "metrics", "_hyper"):
            for left, right in zip(_numbers(one[key]), _numbers(other[key]), strict=True):
                torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-5)
        fast.load_state_dict(eager.state_dict())  # so that rounding of earlier cycles does not add up
    assert fast.workflow._executor.mode == mode


@pytest.mark.parametrize(
    "settings", [CASES["discrete"], pytest.param(CASES["continuous"], marks=pytest.mark.slow)], ids=["discrete", "continuous"]
)
def test_a_compiled_update_equals_an_eager_one_from_equal_state(settings: tuple[str, ...]) -> None:
    _compare(settings, "cpu", "compiled")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("mode", ["captured", "compiled and captured"])
def test_a_captured_update_equals_an_eager_one_from_equal_state(settings: tuple[str, ...], mode: Mode) -> None:
    _compare(settings, "cuda", mode)


def test_the_mode_is_a_pure_function_of_settings_device_and_length() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert choose_mode("auto", cpu, 1000) == "eager"
    assert choose_mode("auto", cpu, 10**6) == "compiled"
    assert choose_mode("on", cpu, 1) == "compiled"
    assert choose_mode("off", cpu, 10**9) == "eager"
    assert choose_mode("auto", cuda, 10**9) == "captured"
    assert choose_mode("capture", cuda, 1) == "captured"
    assert choose_mode("on", cuda, 1) in ("captured", "compiled and captured")  # with Triton here, or without
    assert choose_mode("capture", cpu, 10**9) == "eager"
    assert choose_mode("off", cuda, 10**9) == "eager"


def test_without_a_compiler_the_cpu_is_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert choose_mode("on", torch.device("cpu"), 10**9) == "eager"


def test_what_can_not_be_had_here_is_said() -> None:
    words = ("experiment.device=cpu", "experiment.compile=capture")
    asked = compose("CartPole-v1:ppo", words=words).config
    (note,) = remarks(assembly.resolve(asked), asked)
    assert note == "experiment.compile=capture is read as off: only what runs on CUDA is captured"


def test_an_optimiser_that_can_not_be_compiled_runs_eager() -> None:
    orchestrator = _build((CASES["discrete"][0], "algorithm.optimizer=sgd"), "on", "cpu")
    assert orchestrator.workflow._executor.mode == "eager"


def test_an_optimiser_allows_what_it_allows_of_a_mode() -> None:
    layer = nn.Linear(1, 1)
    on_device = torch.optim.Adam(layer.parameters(), torch.tensor(0.1))
    uncompiled = torch.optim.SGD(layer.parameters(), torch.tensor(0.1))
    on_host = torch.optim.Adam([{"params": layer.parameters(), "rate": torch.tensor(0.1)}], 0.1)

    def mode(optimizer: torch.optim.Optimizer, wanted: Mode, **options: bool) -> str:
        update = Update([Stage("", lambda batch: (layer(batch).mean(), {}), optimizer)], **options)
        return make_executor(update, {"layer": layer}, mode=wanted).mode

    assert mode(on_device, "compiled and captured") == "compiled and captured"
    assert mode(uncompiled, "compiled and captured") == "captured"
    assert mode(on_host, "compiled and captured") == "eager"
    assert mode(uncompiled, "compiled") == "eager"
    assert mode(on_host, "compiled") == "compiled"
    assert mode(on_host, "captured") == "eager"
    assert mode(on_device, "compiled", is_eager=True) == "eager"
    assert mode(on_device, "compiled", is_compilable=False) == "eager"
    assert mode(on_device, "compiled and captured", is_compilable=False) == "captured"


def test_the_numpy_twin_of_an_actor_acts_like_it_and_follows_its_weights() -> None:
    from etude.components.networks.mlp import HostMLP

    workflow: Any = _build(CASES["discrete"], "off", "cpu").workflow
    twin = HostMLP.of(workflow.actor, workflow.context.observation_space)
    assert twin is not None
    observation = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        torch.testing.assert_close(twin(observation), workflow.actor(observation).detach(), rtol=1e-5, atol=1e-6)
        with torch.no_grad():
            for parameter in workflow.actor.parameters():
                parameter.add_(0.1)


@pytest.mark.parametrize("optimizer", ["{type: adam, fused: false}", "{type: adamw, fused: false, weight_decay: 0.1}", "adam"])
def test_the_compiled_form_reads_the_rate_of_now(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Defect 27: without fused kernels the rate was a number to the compiler, the same for ever. What is compiled, as it is:
    monkeypatch.setattr(
        compiled, "compile_apart", lambda function, device, *fixed, kept=None: lambda *given: function(*given, *fixed)
    )
    case = (
        "CartPole-v1:ppo",
        f"algorithm.optimizer={optimizer}",
        "algorithm.learning_rate=lin_1e-2",
        "training.total_steps=192",
    )
    _compare(case, "cpu", "compiled")
