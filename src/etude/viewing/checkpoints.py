"""The checkpoints of a run that may still train: which there are, which one acts, and which is newer.

A training writes each under another name and renames it, so that it is there whole or not at all; but a copy over a network
need not be whole, and old ones are deleted at any time. What can't be loaded is left alone: the policy that acts goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etude.acting.policy import Policy
from etude.environments.vector import VectorEnvironment
from etude.errors import EtudeError
from etude.files.printable import one_line
from etude.runs.checkpoint_selection import CheckpointOutline, checkpoint_folders, outline_checkpoints
from etude.runs.run import Run
from etude.runs.saved_checkpoint import Checkpoint
from etude.using.stored_policy import StoredPolicy


class Checkpoints:
    """Which policy of a run acts, and how it changes."""

    def __init__(self, stored: StoredPolicy, environment: VectorEnvironment, *, follows: bool) -> None:
        self._stored, self._environment = stored, environment
        self.run: Run = stored.run
        self.follows = follows
        """Whether the newest takes the place of the one that acts."""
        self.shown: Checkpoint = stored.checkpoint
        self.problem: str | None = None
        """Why the newest one does not act, if it should."""
        self._folders: frozenset[str] = frozenset()
        self._outlines: tuple[CheckpointOutline, ...] = ()

    @property
    def label(self) -> str:
        """What acts, in words."""
        best = " · best" if self.shown.is_best else ""
        return f"{self.shown.counters['env_steps']:,} steps{best} · {self.shown.name}"

    @property
    def is_gone(self) -> bool:
        """Whether the checkpoint that acts has been deleted meanwhile; its policy is in memory."""
        return bool(self._folders) and self.shown.name not in self._folders

    def list(self) -> Sequence[CheckpointOutline]:
        """Return those that can be read, oldest first; manifests are read again only where folders have come or gone."""
        try:
            folders = frozenset(path.name for path in checkpoint_folders(self.run.checkpoints_path))
            # One that could not be read may be whole by now: its folder was there before.
            if folders != self._folders or len(folders) != len(self._outlines):
                found = outline_checkpoints(self.run.checkpoints_path)
                self._outlines = tuple(each for each in found if each.kind != "damaged")
                self._folders = folders
        except (EtudeError, OSError):
            self._folders, self._outlines = frozenset(), ()  # the run itself was deleted
        return self._outlines

    def newer(self) -> Policy | None:
        """Return the policy of a newer checkpoint than the one that acts, if there is one and this follows."""
        found = self.list()
        if not self.follows:
            return None
        self.problem = None
        for outline in reversed(found):
            if outline.sequence <= self.shown.sequence:
                break
            policy = self._load(outline)
            if policy is not None:
                return policy
        return None

    def choose(self, name: str) -> Policy | None:
        """Return the policy of a checkpoint by its name, which acts from here on; None where it can't be loaded."""
        self.follows, self.problem = False, None
        outline = next((each for each in self.list() if each.name == name), None)
        if outline is None:
            self.problem = f"checkpoint {name} is no longer there"
            return None
        return None if outline.name == self.shown.name else self._load(outline)

    def beside(self, way: int) -> str:
        """Return the name of the one before (−1) or after (1) that which acts."""
        names = [each.name for each in self.list()]
        if self.shown.name in names:
            return names[min(max(names.index(self.shown.name) + way, 0), len(names) - 1)]
        later = [each.name for each in self._outlines if each.sequence > self.shown.sequence]
        earlier = [each.name for each in self._outlines if each.sequence < self.shown.sequence]
        near = later[:1] if way > 0 else earlier[-1:]
        return near[0] if near else self.shown.name

    def status(self) -> str:
        """Return how the run is: running, finished, crashed and so on; gone if it was deleted."""
        try:
            return self.run.status
        except (EtudeError, OSError):
            return "gone"

    def _load(self, outline: CheckpointOutline) -> Policy | None:
        try:
            checkpoint = replace(Checkpoint.open(outline.path), is_best=outline.is_best)
            policy = replace(self._stored, checkpoint=checkpoint).build(self._environment)
        except (EtudeError, OSError) as error:
            # Half written, or deleted while it was read.
            self.problem = one_line(f"checkpoint {outline.name} can't be loaded: {error}")
            return None
        self.shown, self.problem = checkpoint, None
        return policy


def short_label(checkpoint: Checkpoint | CheckpointOutline) -> str:
    """Return a checkpoint's number and steps, which no other one of its run has both of."""
    return f"{checkpoint.sequence}: {checkpoint.counters['env_steps']:,} steps" + (" · best" if checkpoint.is_best else "")
