"""The loop carries workflows and devices it has never heard of, unmodified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.config.compose import compose
from etude.config.schema import Config
from etude.errors import ConfigError, EtudeError
from etude.orchestration.orchestrator import Orchestrator
from etude.telemetry.names import deterministic_items
from etude.training import assembly
from tests.device_double import DEVICE, DeviceTensor, HostReadError, pretend_device
from tests.doubles import Phased, WalkEnvironment
from tests.runs_compared import assert_same_state

PHASES = [
    {"name": "seed", "hooks": ["collect", "empty"], "duration_steps": 40, "buffer": "play"},
    {"name": "gather", "hooks": [{"collect": {"count": 3}}], "duration_steps": 32, "buffer": "model_data"},
    {"name": "model", "type": "offline", "hooks": ["update_world_model"], "duration_updates": 25, "buffer": "model_data"},
    {
        "repeat": 2,
        "phases": [
            {
                "name": "joint",
                "hooks": ["collect", {"update_discriminator": {"every": 2}}, {"update_world_model": {"ratio": 0.3}}],
                "duration_steps": 64,
                "buffer": "play",
            },
            {"name": "look", "type": "eval_only"},
        ],
    },
    {"name": "rest", "hooks": ["collect", "update_discriminator"], "buffer": "play"},
]


def _config(algorithm: str, *words: str, phases: Any = (), **sections: Any) -> Config:
    config = compose(
        f"CartPole-v1:{algorithm}",
        words=["environment.num_envs=4", "evaluation.every_steps=0", "experiment.device=cpu", *words],
    ).config
    return assembly.resolve(replace(config, training=replace(config.training, phases=tuple(phases)), **sections))


def _start(config: Config, environment: Any) -> Orchestrator:
    orchestrator = assembly.build(config, environment=environment)
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    return orchestrator


def test_an_algorithm_of_two_methods_from_outside_the_package_learns() -> None:
    config = _config("tests.doubles.TwoMethods", "training.total_steps=20000", "algorithm.rollout_steps=16")
    orchestrator = _start(config, WalkEnvironment(4))
    rows = list(orchestrator.rows())
    assert rows[-1]["train/right"] > 0.9
    assert rows[-1]["updates"] == 20000 // 64
    assert {"train/advantage", "decisions", "env_steps", "updates", "episodes", "cycles"} <= rows[-1].keys()


def _phased(phases: Any = PHASES) -> Orchestrator:
    words = ["training.total_steps=400", "logging.every_steps=16", "logging.every_updates=5"]
    return _start(_config("tests.doubles.Phased", *words, phases=phases), WalkEnvironment(4))


def test_a_phased_workflow_runs_its_own_hooks_over_its_own_buffers() -> None:
    orchestrator = _phased()
    rows = list(orchestrator.rows())
    workflow = orchestrator.workflow
    assert isinstance(workflow, Phased)
    called = {(hook, phase) for hook, phase, _ in workflow.trace}
    assert ("update_world_model", "model") in called
    assert ("update_discriminator", "joint") in called
    assert ("update_discriminator", "rest") in called
    assert orchestrator.counters.env_steps == 400
    offline = sum(count for hook, phase, count in workflow.trace if phase == "model" and hook == "update_world_model")
    assert offline == 25
    assert any("train/seen" in row for row in rows)
    # 64 steps are 64 decisions of this phase; the buffer is large enough to learn from only now and then, and what was
    # due while it was not is forgiven, so at most floor(0.3 * 64) updates were granted in each of the two passes.
    joint = sum(count for hook, phase, count in workflow.trace if phase == "joint" and hook == "update_world_model")
    assert 0 < joint <= 2 * int(0.3 * 64)


def test_transitions_land_only_in_the_buffer_the_phase_names() -> None:
    orchestrator = _phased(PHASES[:1])
    orchestrator.run()
    assert orchestrator.buffers["model_data"].size == 0
    assert orchestrator.buffers["play"].columns


def test_a_phased_workflow_resumes_mid_phase_to_the_same_end() -> None:
    whole = _phased()
    expected = [deterministic_items(row) for row in whole.rows()]
    for stop in range(1, 60, 7):
        first = _phased()
        rows = []
        original = first._run_cycle
        count = 0

        def counted(original: Any = original, stop: int = stop, first: Orchestrator = first) -> bool:
            nonlocal count
            alive = original()
            count += 1
            if count == stop:
                first.interrupt("SIGTERM")
            return alive

        first._run_cycle = counted  # type: ignore[method-assign]
        rows += [deterministic_items(row) for row in first.rows()]
        saved = _through_disk(first.state_dict())
        second = assembly.build(_config_of(first), environment=WalkEnvironment(4))
        assert second.load_state_dict(saved) == []
        if first.stop_reason == "SIGTERM":
            rows += [deterministic_items(row) for row in second.rows()]
        assert rows == expected, f"stopped after {stop} cycles"
        final, other = whole.state_dict(), second.state_dict()
        final["shared"].pop("elapsed_s"), other["shared"].pop("elapsed_s")
        assert_same_state(other, final)


def _config_of(orchestrator: Orchestrator) -> Config:
    return orchestrator.workflow.context.config


def _through_disk(state: dict[str, Any]) -> dict[str, Any]:
    import tempfile

    from etude.runs.checkpoint import CheckpointStore

    store = CheckpointStore(Path(tempfile.mkdtemp()), keep=1)
    return store.save(state, counters={"env_steps": 0, "updates": 0}, metadata={}).load()  # type: ignore[return-value]


def test_an_unknown_hook_or_buffer_is_found_before_anything_runs() -> None:
    phase = {"name": "x", "hooks": ["update_discriminatr"], "buffer": "play"}
    with pytest.raises(ConfigError, match="no hook 'update_discriminatr'; did you mean 'update_discriminator'"):
        _start(_config("tests.doubles.Phased", phases=[phase]), None)
    with pytest.raises(ConfigError, match="no buffer 'pley'; did you mean 'play'"):
        _start(_config("tests.doubles.Phased", phases=[{"name": "x", "buffer": "pley"}]), None)


def test_an_offline_phase_on_an_empty_buffer_is_an_error_that_says_so() -> None:
    phases = [{"name": "model", "type": "offline", "hooks": ["update_world_model"], "duration_updates": 5, "buffer": "play"}]
    orchestrator = _start(_config("tests.doubles.Phased", phases=phases), WalkEnvironment(4))
    with pytest.raises(EtudeError, match="phase 'model' is offline and its buffer holds too little"):
        orchestrator.run()


@pytest.mark.parametrize("normalize", ["off", "rolling"])
def test_ppo_trains_on_a_device_without_reading_it_or_mixing_it_with_the_host(
    normalize: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["training.total_steps=512", "algorithm.rollout_steps=16", "algorithm.batch_size=32", "algorithm.epochs=2",
             "algorithm.target_kl=0.5", "algorithm.adaptive_kl=0.01", f"environment.normalize_observations={normalize}",
             f"environment.normalize_rewards={'true' if normalize == 'rolling' else 'false'}"]  # fmt: skip
    config = _config("ppo", *words)
    config = replace(config, experiment=replace(config.experiment, device=str(DEVICE)))
    config = replace(config, logging=replace(config.logging, every_steps=512))
    with pretend_device(monkeypatch) as device:
        orchestrator = _start(config, WalkEnvironment(4, DEVICE))
        assert isinstance(orchestrator.workflow.actor.layers[0].weight, DeviceTensor)  # type: ignore[attr-defined]
        before = device.transfers
        while orchestrator.counters.env_steps < 448:
            orchestrator._run_cycle()
        assert device.transfers == before, "hooks moved data between host and device"
        rows = list(orchestrator.rows())
        assert device.transfers > before, "a row is where the device is read"
    assert rows[-1]["env_steps"] == 512
    assert rows[-1]["train/entropy"] > 0


def test_the_device_double_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretend_device(monkeypatch):
        tensor = torch.zeros(3, device=DEVICE)
        assert tensor.device == DEVICE
        for read in (tensor.sum().item, tensor.numpy, tensor.tolist, lambda: bool(tensor.sum())):
            with pytest.raises(HostReadError):
                read()
        with pytest.raises(AssertionError, match="mixes"):
            tensor + torch.ones(3)
        assert (tensor + torch.ones(())).device == DEVICE
        assert tensor.to("cpu").tolist() == [0.0, 0.0, 0.0]
