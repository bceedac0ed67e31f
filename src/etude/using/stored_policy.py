"""The one way to open a policy: of a run, of a checkpoint in it or from a file of its own, on a device that is here."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, overload

from etude.acting.policy import Policy
from etude.components.recipes import recipe_of
from etude.compute.devices import lack_of_memory_told, pick_device
from etude.config.schema import Config
from etude.environments.make import make_environment
from etude.environments.vector import VectorEnvironment
from etude.errors import UserError
from etude.files.printable import one_line
from etude.runs import own_code, trust
from etude.runs.places import default_root
from etude.runs.run import Run
from etude.runs.run_selection import Selection, select_run
from etude.runs.saved_checkpoint import Checkpoint, fitting
from etude.saved_components.component_file import SUFFIX, load_component
from etude.training import assembly, hub_models, stored_config
from etude.training.evaluation import evaluation_modes
from etude.workflows.base import Workflow

Mode = Literal["sample", "greedy"]


@dataclass(frozen=True)
class OpenPolicy(ABC):
    """What acting needs: the policy and its settings. Nothing here depends on today's presets and defaults."""

    name: str
    """What it is called: the run's id, or the file's name."""
    config: Config
    """Its settings, with the device that it acts on here."""
    note: str | None = None
    """What differs from the training, if anything."""

    @abstractmethod
    def build(self, environment: VectorEnvironment) -> Policy:
        """Return the policy, ready to act in an environment like the one it was trained in."""

    def with_environment(self, num_envs: int | None = None) -> tuple[Policy, VectorEnvironment]:
        """Return the policy, and an environment like the one it was trained in."""
        environment = make_environment(self.config.environment, num_envs=num_envs)
        try:
            return self.build(environment), environment
        except BaseException:
            environment.close()
            raise

    def modes(self, wanted: Literal["auto", "greedy", "sample", "both"]) -> tuple[Mode, ...]:
        """Return the ways of acting that `wanted` means for this algorithm, the one that counts first."""
        config = self.config
        asked = config if wanted == "auto" else replace(config, evaluation=replace(config.evaluation, mode=wanted))
        return evaluation_modes(asked)


@dataclass(frozen=True, kw_only=True)
class StoredPolicy(OpenPolicy):
    """A run's policy, as one of its checkpoints has it."""

    run: Run
    checkpoint: Checkpoint

    def build(self, environment: VectorEnvironment) -> Policy:
        """Return the policy; CheckpointError where the checkpoint does not fit this run's settings."""
        with fitting(self.checkpoint, "this run's config"), lack_of_memory_told():
            state: Any = self.checkpoint.load(["policy"])["policy"]
            return assembly.build_policy(self.config, dict(state), environment)

    def workflow(self, environment: VectorEnvironment) -> Workflow:
        """Return the algorithm with all its networks, of a checkpoint that has more than the policy."""
        if self.checkpoint.kind != "full":
            raise UserError(f"checkpoint {self.checkpoint.name} holds the policy alone; take 'last'")
        spaces = environment.single_observation_space, environment.single_action_space
        workflow = assembly.build_workflow(self.config, *spaces)
        shared: Any = self.checkpoint.load(["shared"])["shared"]
        workflow.load_state_dict(shared["workflow"])
        return workflow


@dataclass(frozen=True, kw_only=True)
class PolicyInFile(OpenPolicy):
    """A policy that `etude.save_component` wrote. Of its environment it knows little more than the name."""

    policy: Policy

    def build(self, environment: VectorEnvironment) -> Policy:
        """Return the policy, if the environment has the spaces that it was made for."""
        recipe, task = recipe_of(self.policy), self.config.environment.id
        assert recipe is not None, "a file says what its policy was made of"
        here = {"observation": environment.single_observation_space, "action": environment.single_action_space}
        for what, space in here.items():
            if recipe.spaces[f"{what}_space"] != space:
                made_for, found = (one_line(str(each)) for each in (recipe.spaces[f"{what}_space"], space))
                raise UserError(f"{self.name}: was made for {what}s of {made_for}, and those of {task} are {found}")
        return self.policy


@overload
def open_policy(
    source: Run, checkpoint: str | None = None, *, prefer: str = "last", trusted: bool = False, device: str | None = None
) -> StoredPolicy: ...
@overload
def open_policy(
    source: Run | str | os.PathLike[str],
    checkpoint: str | None = None,
    *,
    prefer: str = "last",
    root: Path | str | None = None,
    trusted: bool = False,
    device: str | None = None,
) -> OpenPolicy: ...
def open_policy(
    source: Run | str | os.PathLike[str],
    checkpoint: str | None = None,
    *,
    prefer: str = "last",
    root: Path | str | None = None,
    trusted: bool = False,
    device: str | None = None,
) -> OpenPolicy:
    """Open the policy of a run, of what names one below `root`, of a path to a checkpoint, of a file or of hub:OWNER/NAME.

    Where no checkpoint is named it is the last; `prefer="best"` takes the best one if there is one. A run of a device that is
    not here acts on the CPU, and a note says so.
    """
    if isinstance(source, str) and source.startswith(hub_models.PREFIX):
        source = Run.open(hub_models.download(source.removeprefix(hub_models.PREFIX)))
    if not isinstance(source, Run) and Path(source).suffix == SUFFIX and checkpoint is None:
        return _in_file(Path(source), trusted, device)
    found = Selection(source) if isinstance(source, Run) else select_run(source, default_root() if root is None else Path(root))
    run, named = found.run, checkpoint or found.checkpoint
    if named is None:
        named = "best" if prefer == "best" and any(saved.is_best for saved in run.checkpoints().list()) else "last"
    config, notes = stored_config.load_config(run, trusted=trusted), []
    trained_on = config.experiment.device
    try:
        here = str(pick_device(device or trained_on))
    except UserError:
        if device is not None:
            raise
        here = "cpu"
        notes += [f"trained on {trained_on}, which is not here: acting on the CPU, whose last bits may differ"]
    changed = own_code.changed_modules(own_code.newest_provenance(run.path)[0]) if trusted or trust.is_own(run.path) else []
    notes += [own_code.describe(changed, run.id)] if changed else []
    notes += stored_config.use_robot_of(run, config)
    return StoredPolicy(run.id, _on(config, here), "\n".join(notes) or None, run=run, checkpoint=run.checkpoints().find(named))


def _in_file(path: Path, trusted: bool, device: str | None) -> PolicyInFile:
    here = str(pick_device(device or "cpu"))
    policy = load_component(path, "policy", trust=trusted, device=here)
    recipe = recipe_of(policy)
    assert recipe is not None, "a file says what its policy was made of"
    return PolicyInFile(path.name, _on(recipe.settings, here), policy=policy)


def _on(config: Config, device: str) -> Config:
    return replace(config, experiment=replace(config.experiment, device=device))
