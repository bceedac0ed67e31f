"""The processes that collect beside the learner: whether settings allow them, and how they are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from etude.buffers.rollout import RolloutConfig
from etude.compute.random_streams import RandomStreams
from etude.config.schema import Config
from etude.config.validate import to_plain
from etude.environments.make import make_environment
from etude.workflows.base import Workflow
from etude.workflows.sampling.collector import RemoteCollector
from etude.workflows.sampling.environment import SampledEnvironment
from etude.workflows.sampling.link import Sampler, end_all

SERVICE = "etude.training.sampling_process"


def sampler_problems(config: Config, workflow: type[Workflow]) -> Iterator[str]:
    """Yield what is wrong with samplers and these settings together."""
    environment = config.environment
    key, copies = f"environment.samplers={environment.samplers}", environment.num_envs
    if not workflow.supports_samplers:
        yield f"{key}: {config.algorithm.name} decides itself how its episodes go; set it to 0"
    if environment.robot is not None or environment.backend == "envpool":
        yield f"{key}: not for simulators that step all copies at once; set it to 0"
    if environment.workers:
        yield f"{key}: samplers step their copies themselves; leave out environment.workers={environment.workers}"
    if copies % environment.samplers:
        yield f"{key}: environment.num_envs={copies} must be a multiple of it"
    if len(config.buffers) > 1:
        yield f"{key}: not with several buffers ({', '.join(config.buffers)})"


def unit_of(config: Config) -> int:
    """Return how many vector steps are asked of samplers at a time: a rollout, or what is collected between updates."""
    (buffer,) = config.buffers.values()
    steps = buffer.steps if isinstance(buffer, RolloutConfig) else None
    return int(steps or config.algorithm.rollout_steps or config.algorithm.train_every or 1)


def build_remote_collector(config: Config, streams: RandomStreams, device: torch.device) -> RemoteCollector:
    """Start the samplers of a resolved config, and return what takes in what they collect."""
    environment = config.environment
    samplers = [Sampler(number, SERVICE) for number in range(environment.samplers)]
    one = make_environment(environment, num_envs=1, training=True, device=torch.device("cpu"))
    sampled = SampledEnvironment(one, environment.num_envs, lambda: end_all(samplers))
    here = replace(config.experiment, device="cpu", compile="off")
    described = {
        "settings": to_plain(replace(config, experiment=here)),
        "samplers": environment.samplers,
        "free_running": environment.free_running,
    }
    options = {"unit": unit_of(config), "free_running": environment.free_running, "keep_paths": config.training.keep_paths}
    try:
        return RemoteCollector(sampled, samplers, streams, device, described=described, **options)
    except BaseException:
        sampled.close()
        raise
