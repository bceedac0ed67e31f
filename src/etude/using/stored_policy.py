"""A run's policy as it was saved, with its settings and statistics, on the device that this machine has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from etude.acting.policy import Policy
from etude.compute.devices import lack_of_memory_told, pick_device
from etude.config.schema import Config
from etude.environments.make import make_environment
from etude.environments.vector import VectorEnvironment
from etude.errors import UserError
from etude.runs import own_code, trust
from etude.runs.run import Run
from etude.runs.saved_checkpoint import Checkpoint, fitting
from etude.training import assembly, stored_config

Mode = Literal["sample", "greedy"]


@dataclass(frozen=True)
class StoredPolicy:
    """What evaluating and playing need of a run. Nothing here depends on today's presets and defaults."""

    run: Run
    config: Config
    checkpoint: Checkpoint
    note: str | None = None
    """What differs from the training, if anything."""

    def build(self, environment: VectorEnvironment) -> Policy:
        """Return the policy, ready to act in an environment like the one it was trained in."""
        return build_stored_policy(self.config, self.checkpoint, environment)

    def with_environment(self, num_envs: int | None = None) -> tuple[Policy, VectorEnvironment]:
        """Return the policy, and an environment like the one it was trained in."""
        environment = make_environment(self.config.environment, num_envs=num_envs)
        return self.build(environment), environment

    def modes(self, wanted: Literal["auto", "greedy", "sample", "both"]) -> tuple[Mode, ...]:
        """Return the ways of acting that `wanted` means for this algorithm, the one that counts first."""
        return assembly.evaluation_modes(_with_mode(self.config, wanted))


def open_policy(run: Run, checkpoint: str, *, trusted: bool = False, device: str | None = None) -> StoredPolicy:
    """Find a run's policy. A run of a device that is not here acts on the CPU, and a note says so."""
    config, note = stored_config.load_config(run, trusted=trusted), None
    trained_on = config.experiment.device
    try:
        here = str(pick_device(device or trained_on))
    except UserError:
        if device is not None:
            raise
        here, note = "cpu", f"trained on {trained_on}, which is not here: acting on the CPU, whose last bits may differ"
    config = replace(config, experiment=replace(config.experiment, device=here))
    changed = own_code.changed_modules(own_code.newest_provenance(run.path)[0]) if trusted or trust.is_own(run.path) else []
    notes = [note] if note else []
    notes += [own_code.describe(changed, run.id)] if changed else []
    return StoredPolicy(run, config, run.checkpoints().find(checkpoint), "\n".join(notes) or None)


def build_stored_policy(config: Config, checkpoint: Checkpoint, environment: VectorEnvironment) -> Policy:
    """Return the policy that a checkpoint holds; CheckpointError where it is not one of this config's."""
    with fitting(checkpoint, "this run's config"), lack_of_memory_told():
        state: Any = checkpoint.load(["policy"])["policy"]
        return assembly.build_policy(config, dict(state), environment)


def best_or_last(run: Run) -> str:
    """Return `best` where there is a best checkpoint, else `last`."""
    return "best" if any(saved.is_best for saved in run.checkpoints().list()) else "last"


def _with_mode(config: Config, wanted: Any) -> Config:
    return config if wanted == "auto" else replace(config, evaluation=replace(config.evaluation, mode=wanted))
