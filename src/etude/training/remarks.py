"""What a user would want to know about a run before it begins."""

from __future__ import annotations

from etude.components.networks.conv_encoder import is_image
from etude.config.registry import algorithms
from etude.config.schema import Config
from etude.environments.spaces import leaf_spaces
from etude.workflows.base import Workflow

MANY_WEIGHTS = 10_000_000
"""More than a network of this field needs to read a picture; convolutions over 84 × 84 pixels take 2 million."""


def remarks(config: Config, asked: Config) -> list[str]:
    """Return what a user would want to know about settings that do less than they say, of a resolved config and of its own."""
    environment, notes = config.environment, []
    if environment.normalize_rewards and environment.normalize_observations == "static":
        notes += [
            "environment.normalize_rewards is ignored: observations are scaled by static bounds, rewards left as they are"
        ]
    if environment.free_running and environment.samplers:
        notes += ["environment.free_running: which weights act depends on timing: the run is not exact, and can't be repeated"]
    elif environment.free_running:
        notes += ["environment.free_running is ignored: nothing is collected beside the learner; set environment.samplers too"]
    wanted, found = asked.experiment.compile, config.experiment.compile
    if wanted in _NOT_COMPILED and wanted != found:
        notes += [f"experiment.compile={wanted} is read as {found}: {_NOT_COMPILED[wanted]}"]
    return notes + algorithms.resolve(config.algorithm.name).remarks(config)


def size_remarks(workflow: Workflow) -> list[str]:
    """Return which networks take many weights to read pictures that could be smaller."""
    context = workflow.context
    shapes = [space.shape for space in leaf_spaces(context.observation_space).values() if is_image(space)]
    if not shapes:
        return []
    pictures = " and ".join(str(shape) for shape in shapes)
    sizes = {role: sum(weights.numel() for weights in part.parameters()) for role, part in vars(context.components).items()}
    return [
        f"network.{role} has {size:,} weights to read pictures of {pictures}; "
        "the wrapper resize makes them smaller, and learning faster"
        for role, size in sizes.items()
        if size > MANY_WEIGHTS
    ]


_NOT_COMPILED = {
    "on": "there is no compiler for this device here",
    "capture": "only what runs on CUDA is captured",
    "numpy": "only PPO, A2C, DQN, SAC and TD3 with plain networks (mlp; tanh or relu) on a CPU are written out in NumPy",
}
