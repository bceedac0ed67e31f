"""Learning from an environment's mirror image: as more data, or as a demand on the actor.

For locomotion, data seen from both sides gives gaits without a limp, and a mirror loss most of it (Mittal et al. 2024,
"Symmetry considerations for learning task symmetric robot policies"). Statistics of observations take in both sides, so that
a normalised observation is mirrored as a raw one is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from etude.buffers.base import Batch
from etude.compute.trees import joined
from etude.environments.mirror import Mirror
from etude.environments.vector import Observation, VectorEnvironment
from etude.errors import UserError

How = Literal["off", "augment", "loss"]


def find_mirror(environment: VectorEnvironment | None, how: How, name: str, device: torch.device) -> Mirror | None:
    """Return an environment's mirror where one is asked for; one that has none is an error. Without learning none is needed."""
    if how == "off" or environment is None:
        return None
    base = environment.base
    mirror = base.mirror()
    if mirror is None:
        raise UserError(f"algorithm.symmetry={how}: {name} has no mirror image; robots have")
    if environment is not base:
        raise UserError(f"algorithm.symmetry={how}: nobody knows how an observation of environment.wrappers looks in a mirror")
    return mirror.to(device)


def with_image(observation: Observation, mirror: Mirror) -> Observation:
    """Return observations (B, ...) and after them their mirror images, (2·B, ...)."""
    return joined([observation, mirror.observe(observation)])


def with_images(rows: Mapping[str, Any], mirror: Mirror) -> Batch:
    """Return a minibatch (B, ...) and its mirror image, (2·B, ...): mirrored actions are as good there as these are here."""
    twice = {key: torch.cat([value, value]) for key, value in rows.items() if isinstance(value, Tensor)}
    sample = torch.cat([rows["sample"], mirror.action(rows["sample"])])
    return {**twice, "observation": with_image(rows["observation"], mirror), "sample": sample}


def mirror_error(action: Tensor, action_in_mirror: Tensor, mirror: Mirror) -> Tensor:
    """Mean square distance of what the actor does in the mirror from the mirror image of what it does, which is the target."""
    return (action_in_mirror - mirror.action(action).detach()).square().mean()
