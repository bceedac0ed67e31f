"""A run's state from a checkpoint on disk into its loop."""

from __future__ import annotations

import json

from etude.compute.devices import lack_of_memory_told
from etude.config.schema import Config
from etude.errors import EtudeError
from etude.orchestration.orchestrator import Orchestrator
from etude.runs import provenance
from etude.runs.saved_checkpoint import Checkpoint, fitting


def load_checkpoint(orchestrator: Orchestrator, found: Checkpoint, config: Config, *, force: bool = False) -> list[str]:
    """Go on from a checkpoint; returns what a user would want to know of it, a line each."""
    workflow = found.metadata.get("workflow")
    if workflow != config.algorithm.name and not force:
        raise EtudeError(
            f"checkpoint {found.name} is of {workflow}, this run's config says {config.algorithm.name}; "
            "--force loads it all the same, if it fits"
        )
    with fitting(found, "this config"), lack_of_memory_told():
        notes = orchestrator.load_state_dict(found.load(device="cpu"))
    then, now = found.metadata.get("fingerprint"), provenance.fingerprint()
    differing = [key for key in now if isinstance(then, dict) and json.dumps(then.get(key)) != json.dumps(now[key])]
    if differing:
        notes.append(f"saved under another {', '.join(differing)}: the run goes on, but its last bits may differ")
    return notes
