"""Pictures of what a network sees, and of what in it decides.

A stack of frames lies side by side, the newest at the right. Saliency covers a patch of the picture at a time and looks how
much less likely the chosen action becomes, or how much its value changes: it asks the policy itself, whatever its networks are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.acting.policy import ActorPolicy
from etude.components.networks.conv_encoder import is_channels_last
from etude.components.networks.encoder import ACTION_MASK
from etude.components.networks.memory import has_memory
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.world_encoder import is_picture
from etude.compute.trees import map_tree
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import VectorEnvironment
from etude.errors import UserError
from etude.inspecting.inspector import Inspector
from etude.inspecting.recording import Recording
from etude.orchestration.player import Array
from etude.workflows.q_policy import QPolicy

PATCHES = 12
"""Patches across and down the picture that saliency covers, one at a time."""


def picture_part(environment: VectorEnvironment) -> str | None:
    """Return the name of the part of an observation that is a picture, empty for the whole; None where none is."""
    parts = leaf_spaces(environment.single_observation_space)
    return next((name for name, part in parts.items() if is_picture(part)), None)


def stack_picture(environment: VectorEnvironment, observation: Array) -> np.ndarray | None:
    """Return the picture in an observation as people see it, frames of a stack side by side: (H, W, 3) bytes."""
    part = picture_part(environment)
    if part is None:
        return None
    value = observation[part] if isinstance(observation, dict) else observation
    return np.concatenate(frames_of(value), axis=1)


def frames_of(value: np.ndarray) -> list[np.ndarray]:
    """Return the frames of a picture or of a stack of them, oldest first, each (H, W, 3) bytes."""
    stacked = list(value) if value.ndim == 4 else [value]
    frames: list[np.ndarray] = []
    for picture in stacked:
        last = picture if is_channels_last(picture.shape, "auto") else np.moveaxis(picture, 0, -1)
        scaled = last if last.dtype == np.uint8 else (np.clip(last.astype(np.float64), 0, 1) * 255).astype(np.uint8)
        channels = scaled.shape[-1]
        step = 3 if channels % 3 == 0 else 1
        for first in range(0, channels, step):
            frame = scaled[..., first : first + step]
            frames.append(np.broadcast_to(frame, (*frame.shape[:2], 3)))
    return frames


@torch.no_grad()
def saliency(inspector: Inspector, recording: Recording, index: int) -> np.ndarray:
    """Return the newest frame at a step with what decided the action in red: (H, W, 3) bytes."""
    part = picture_part(inspector.environment)
    if part is None:
        raise UserError("saliency is of pictures, and this policy sees none")
    step, performer = recording.steps[index], recording.performer
    device = torch.device(performer.stored.config.experiment.device)
    whole = map_tree(lambda array: torch.as_tensor(array, device=device), _as_tensors(step.observation))
    image: Tensor = whole[part] if isinstance(whole, dict) else whole
    covered, places = _covered(image)
    rows = torch.cat([image.unsqueeze(0), covered])
    batch = rows
    if isinstance(whole, dict):
        batch = {name: rows if name == part else value.expand(len(rows), *value.shape) for name, value in whole.items()}
    action = torch.as_tensor(step.chosen, device=device)
    scores = _scores(performer, batch, action).double()
    heat = np.zeros(places.shape[1:], np.float64)
    changes = (scores[0] - scores[1:]).abs().cpu().numpy()
    for change, place in zip(changes, places, strict=True):
        heat[place] = np.maximum(heat[place], change)
    return _overlaid(frames_of(step.observation[part] if isinstance(step.observation, dict) else step.observation)[-1], heat)


def _scores(performer: Any, batch: Any, action: Tensor) -> Tensor:
    """How much each observation (N, ...) speaks for the action: its log-probability, or what it or the state is worth. (N,)"""
    policy, workflow = performer.policy, performer.reader.workflow
    if isinstance(policy, QPolicy):
        return policy.values(batch)[:, int(action)]
    if isinstance(policy, ActorPolicy) and not has_memory(policy.parts["actor"]):
        parts: Any = policy.parts
        mask = batch.get(ACTION_MASK) if isinstance(batch, dict) else None
        with evaluating(mode_dependent(policy.parts)):
            distribution = parts["head"](parts["actor"](parts["normalizer"](batch)), mask)
        if action.ndim == 0:
            return distribution.log_prob(action.expand(len(distribution.log_probs)))
        if performer.reader.has_values:
            return workflow.values(batch)
        return distribution.mode().double().norm(dim=-1)
    if performer.reader.has_values and callable(getattr(workflow, "values", None)):
        return workflow.values(batch)
    raise UserError("saliency needs a policy or critic that judges one picture by itself; this one remembers or plans")


def _covered(image: Tensor) -> tuple[Tensor, np.ndarray]:
    """Return the picture with each patch in turn covered by its mean, (P, ...), and where each patch is, (P, H, W) bool."""
    shape = tuple(image.shape)[-3:]
    last = is_channels_last(shape, "auto")
    height, width = (shape[0], shape[1]) if last else (shape[1], shape[2])
    rows, columns = (np.linspace(0, size, PATCHES + 1).round().astype(int) for size in (height, width))
    places = np.zeros((PATCHES * PATCHES, height, width), bool)
    for number in range(PATCHES * PATCHES):
        down, across = divmod(number, PATCHES)
        places[number, rows[down] : rows[down + 1], columns[across] : columns[across + 1]] = True
    mean = image.float().mean((-3, -2) if last else (-2, -1), keepdim=True).to(image.dtype)
    mask = torch.as_tensor(places, device=image.device)
    mask = mask.unsqueeze(-1) if last else mask.unsqueeze(1)
    mask = mask.reshape(len(places), *[1] * (image.ndim - 3), *mask.shape[1:])
    return torch.where(mask, mean, image), places


def _overlaid(frame: np.ndarray, heat: np.ndarray) -> np.ndarray:
    strength = heat / heat.max() if heat.max() > 0 else heat
    red = np.array([230.0, 40.0, 30.0])
    weight = 0.75 * strength[..., None]
    return (frame * (1 - weight) + red * weight).round().astype(np.uint8)


def _as_tensors(observation: Array) -> Any:
    if isinstance(observation, dict):
        return {name: torch.as_tensor(part) for name, part in observation.items()}
    return torch.as_tensor(observation)
