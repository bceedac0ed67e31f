"""Begin a run with the networks of another one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from etude.compute.devices import lack_of_memory_told
from etude.errors import UserError
from etude.files.regular import read_bytes
from etude.runs.manifest import MANIFEST_NAME, MAX_JSON
from etude.runs.run import Run
from etude.runs.run_selection import select_run
from etude.runs.saved_checkpoint import Checkpoint, fitting
from etude.training import hub_models
from etude.training.wandb_artifacts import PREFIX, download
from etude.workflows.base import Workflow


def find_source(selector: str, root: Path) -> Checkpoint:
    """Return the checkpoint that RUN, RUN:CHECKPOINT, a path, wandb:ARTIFACT or hub:OWNER/NAME names; by default the last."""
    for prefix, fetch in ((PREFIX, lambda name: download(name, root)), (hub_models.PREFIX, hub_models.download)):
        if selector.startswith(prefix):
            kept = Run.open(fetch(selector.removeprefix(prefix))).checkpoints().list()
            return max(kept, key=lambda checkpoint: checkpoint.sequence)
    run_word, colon, checkpoint = selector.rpartition(":")
    found = select_run(run_word if colon else selector, root)
    return found.run.checkpoints().find(checkpoint if colon else found.checkpoint or "last")


def take_over(workflow: Workflow, source: Checkpoint) -> list[str]:
    """Copy the source's networks and statistics into a workflow that has not begun; returns what to tell the user.

    Every network of this workflow that the source has too must fit. Optimisers, counters and streams begin anew.
    """
    with fitting(source, "this run's networks"), lack_of_memory_told():
        return _take_over(workflow, source)


def _take_over(workflow: Workflow, source: Checkpoint) -> list[str]:
    parts = source.load(device="cpu")
    saved: dict[str, Any] = dict(parts["shared"]["workflow"]) if "shared" in parts else {}  # type: ignore[index, call-overload]
    if not saved:
        workflow.policy().load_state_dict(_checked(parts["policy"], workflow.policy().state_dict(), source))
        return [f"begins with the policy of {source.path}"]
    taken, begun = [], []
    roles = vars(workflow.context.components)
    for name, part in workflow.stateful_parts().items():
        if not isinstance(part, nn.Module) or not part.state_dict():
            continue
        if name in roles and name in saved:
            part.load_state_dict(_checked(saved[name], part.state_dict(), source, f"{name}."))
            taken.append(name)
        elif name in saved and _shapes(saved[name]) == _shapes(part.state_dict()):
            part.load_state_dict(saved[name])
            taken.append(name)
        elif not name.startswith("_"):
            begun.append(name)
    if not taken:
        raise UserError(
            f"experiment.init_from: checkpoint {source.name} has none of the networks this run has ({', '.join(roles)})"
        )
    notes = [f"begins with {', '.join(taken)} of {source.path}"]
    return [*notes, f"not in there, begun anew: {', '.join(begun)}"] if begun else notes


def identity(source: Checkpoint) -> str:
    """Return the hash of the source's manifest, which holds the hash of each of its files."""
    return hashlib.sha256(read_bytes(source.path / MANIFEST_NAME, MAX_JSON)).hexdigest()


def _checked(saved: Any, ours: Mapping[str, Tensor], source: Checkpoint, prefix: str = "") -> dict[str, Tensor]:
    theirs = _shapes(saved)
    for name, shape in _shapes(ours).items():
        if theirs.get(name) != shape:
            there = f"is {list(theirs[name])}" if name in theirs else "does not exist"
            raise UserError(
                f"experiment.init_from: {prefix}{name} is {list(shape)} here and {there} in {source.path}; "
                "the networks must have the same shape"
            )
    return {name: saved[name] for name in ours}


def _shapes(state: Any) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in dict(state).items() if isinstance(value, Tensor)}
