"""Records episodes of a run's policy with all that can be said of each step, and branches other futures off them.

    record      seed ──→ step 0 ──→ step 1 ──→ … ──→ step T-1                  a mark every so many steps: the environment's
                              ▲ mark                  ▲ mark                   state, the policy's, and its random numbers
    branch      at step t: back to the mark before it, the steps up to t again, then another action, checkpoint or policy
    steer       a robot that is driven: a few steps more, as it is commanded

Everybody acts through `etude.orchestration.player.Player`: an episode here is the one that `etude play` plays with its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from etude.acting.policy import PartsPolicy, Policy
from etude.compute.random_streams import derive_seed, isolated_global_generators
from etude.compute.trees import map_tree
from etude.environments.rendering import Camera
from etude.environments.vector import Observation, VectorEnvironment
from etude.environments.wrappers.options import RewardConfig
from etude.errors import EtudeError, UserError
from etude.files.printable import one_line
from etude.inspecting.driving import Command, Pilot
from etude.inspecting.insights import Reader
from etude.inspecting.readers import make_reader
from etude.inspecting.recording import Budget, Ending, InspectedStep, Mark, Origin, Recording
from etude.inspecting.worlds import World
from etude.orchestration.player import Array, Decision, Moment, Player
from etude.runs.run import Run
from etude.training.assembly import acts_captured
from etude.using.play import PLAY_SEEDS, set_stage
from etude.using.stored_policy import Mode, OpenPolicy, StoredPolicy, open_policy

MARK_EVERY = 32
"""Steps between marks: going back to any step takes at most so many again."""
MOST_STEPS = 10_000
"""Of an episode that nobody has set a limit for."""
MOST_BYTES = 512 * 2**20
"""Of pictures and observations that an inspection keeps."""

ROBOT_PICTURES = {"width": 400, "height": 300}
"""Where no GPU draws them, larger ones take seconds each."""
MOST_POLICIES = 4
"""That stay loaded besides the run's own."""
_NO_WAY_BACK = (
    "{}: its state can't be saved (its snapshot is 'restart'), so no other future can begin amid an episode; "
    "docs/environments.md says what makes a state known"
)

WantsMore = Callable[[int], bool]
"""Asked before each step, with how many there are: whether to go on."""


@dataclass(frozen=True)
class Performer:
    """A policy in the environment of an inspection, and what reads its decisions."""

    stored: OpenPolicy
    mode: Mode
    policy: Policy
    player: Player
    reader: Reader

    @property
    def name(self) -> str:
        """What it is called: the run and the checkpoint."""
        return name_of(self.stored)


class Inspector:
    """One environment, and the policies that act in it. One thing at a time: it is not for several threads."""

    def __init__(
        self, performer: Performer, camera: Camera | None, notes: tuple[str, ...], most_bytes: int, *, world: bool = False
    ) -> None:
        self.performer, self.notes = performer, notes
        self._camera, self._budget = camera, Budget(most_bytes)
        self.world = World.of(self.environment) if world else None
        """Where a simulated world's shapes are, if that is recorded too."""
        self.pilot = Pilot.of(self.environment)
        """Who commands the robot, if it is one."""
        self._decision: Decision | None = None
        self._others: dict[tuple[str, Mode], Performer] = {}
        self._listen(performer)

    @classmethod
    def open(
        cls,
        source: Run | str | Path,
        checkpoint: str | None = None,
        *,
        mode: Literal["auto", "greedy", "sample"] = "auto",
        pictures: bool = True,
        world: bool = False,
        root: Path | str | None = None,
        trusted: bool = False,
        device: str | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> Inspector:
        """Load a policy into an environment like the one it was trained in; the last checkpoint unless another is named.

        Where the environment can't be drawn there are no pictures, and a note says why. `world` records where the shapes of
        a simulated world are, which needs no pictures.
        """
        how: dict[str, Any] = {"mode": mode, "root": root, "trusted": trusted, "device": device, "prefer": "last"}
        stored = open_policy(source, checkpoint, root=root, trusted=trusted, device=device)
        options = ROBOT_PICTURES if stored.config.environment.robot is not None else None
        notes = []
        try:
            stage = set_stage(source, checkpoint, show="pictures" if pictures else "nothing", render_options=options, **how)
            if pictures:
                with isolated_global_generators(0):
                    stage.players[0].begin(0)  # the first picture may be what fails
        except EtudeError as error:
            if not pictures:
                raise
            stage = set_stage(source, checkpoint, show="nothing", **how)  # what else is wrong is said here
            notes.append(f"no pictures: {one_line(str(error))}")
        with ExitStack() as stack:
            stack.callback(stage.close)
            (player,) = stage.players
            reader = make_reader(stage.policy, player.policy, player.environment)
            stack.pop_all()
        performer = Performer(stage.policy, stage.mode, player.policy, player, reader)
        told = [stage.policy.note] if stage.policy.note else []
        if reader.has_values:
            notes += _unlike_training(stage.policy)
        return cls(performer, player.camera, (*told, *notes, *reader.notes), most_bytes, world=world)

    @property
    def environment(self) -> VectorEnvironment:
        """What everybody here acts in."""
        return self.performer.player.environment

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()

    # ---- recording ----------------------------------------------------------------------------------------------------

    def record(self, seed: int = 0, *, max_steps: int | None = None, wants_more: WantsMore | None = None) -> Recording:
        """Play the episode of a seed from its beginning."""
        performer = self.performer
        recording = Recording(performer, seed, performer.reader.units)
        self._hold(None)
        with isolated_global_generators(seed):
            performer.player.begin(self._purpose(seed))
            performer.reader.begin()
            self._keep_frame(recording)
            self._go_on(recording, max_steps, wants_more)
        return recording

    def go_on(self, recording: Recording, *, max_steps: int | None = None, wants_more: WantsMore | None = None) -> None:
        """Play an episode further that was cut, to a limit of steps in all."""
        if recording.is_over:
            raise UserError(f"this episode was {recording.ending} after {len(recording.steps)} steps: nothing follows")
        with isolated_global_generators(recording.seed):
            self._reach(recording, len(recording.steps))
            self._go_on(recording, max_steps, wants_more)

    def drive(self, recording: Recording, step: int) -> Recording:
        """Return another future of an episode, of which nothing is known but that somebody drives: `steer` goes on with it."""
        self.steered()
        if not 0 <= step <= len(recording.steps) or (recording.is_over and step == len(recording.steps)):
            raise UserError(f"step {step}: a drive begins at one of the steps 0 to {len(recording.steps) - recording.is_over}")
        performer = recording.performer
        with isolated_global_generators(recording.seed):
            self._reach(recording, step)
            future = Recording(performer, recording.seed, performer.reader.units, origin=Origin(recording, step))
            future.steps, future.poses = recording.steps[:step], recording.poses[: step + 1]
            mark = self._mark(performer)
            assert mark is not None, "it was just returned to"
            future.marks[step] = mark
        return future

    def steer(self, recording: Recording, command: Command, steps: int) -> None:
        """Go on with a drive for some steps, with a command in force; no pictures are drawn meanwhile."""
        self.steered()
        if recording.is_over:
            raise UserError(f"this drive was {recording.ending} after {len(recording.steps)} steps; begin another")
        begin, player = len(recording.steps), recording.performer.player
        camera, player.camera, self._camera = self._camera, None, None
        try:
            with isolated_global_generators(recording.seed):
                self._reach(recording, begin)
                self._go_on(recording, begin + steps, None, command=command)
        finally:
            player.camera = self._camera = camera

    def steered(self) -> Pilot:
        """Return who commands the robot; UserError where there is nothing to drive."""
        if self.pilot is None:
            raise UserError(f"{self.performer.stored.config.environment.id} can't be driven; robots can")
        return self.pilot

    def branch(
        self,
        recording: Recording,
        step: int,
        *,
        action: Any = None,
        by: OpenPolicy | None = None,
        mode: Mode | None = None,
        max_steps: int | None = None,
        wants_more: WantsMore | None = None,
    ) -> Recording:
        """Return another future of an episode from a step on: with another action there, by another policy, or the same again.

        Another policy begins with the same random numbers, and has followed all that was seen and done until then.
        """
        if not 0 <= step < len(recording.steps):
            raise UserError(f"step {step}: this episode has the steps 0 to {len(recording.steps) - 1}")
        forced = None if action is None else self.read_action(action)
        chosen = recording.performer.mode if mode is None else mode
        performer = recording.performer if by is None and chosen == recording.performer.mode else None
        with isolated_global_generators(recording.seed):
            self._reach(recording, step)
            if performer is None:
                stored = recording.performer.stored if by is None else by
                performer = self._hand_over(recording, step, self._perform(stored, chosen))
            future = Recording(performer, recording.seed, performer.reader.units, origin=Origin(recording, step))
            future.steps, future.frames = recording.steps[:step], recording.frames[: step + 1]
            future.poses = recording.poses[: step + 1]
            mark = self._mark(performer)
            assert mark is not None, "it was just returned to"
            future.marks[step] = mark
            self._go_on(future, max_steps, wants_more, instead=forced)
        return future

    def forget(self, recording: Recording) -> None:
        """Make room: the recording is no longer needed, but for what others that branch off it share."""
        self._budget.take(-recording.kept)
        recording.kept = 0

    def read_action(self, action: Any) -> Tensor:
        """Return an action (1, ...) from numbers; UserError where the environment has no such action."""
        space: Any = self.environment.single_action_space
        try:
            array = np.asarray(action, dtype=np.float64).reshape(space.shape)
        except (TypeError, ValueError, OverflowError):
            raise UserError(f"action {one_line(str(action))}: must be numbers of shape {space.shape}, of {space}") from None
        is_whole = not hasattr(space, "low")
        if not np.isfinite(array).all() or (is_whole and np.abs(array).max(initial=0) > 2**31):
            raise UserError(f"action {one_line(str(action))}: is not in {space}")
        if is_whole and not np.array_equal(array, np.rint(array)):
            raise UserError(f"action {one_line(str(action))}: must be whole numbers, of {space}")
        # Our own actions count from 0, whatever the space does.
        given = array.astype(np.int64) + np.asarray(getattr(space, "start", 0)) if is_whole else array.astype(space.dtype)
        if not space.contains(given.astype(space.dtype) if space.shape else given[()]):
            raise UserError(f"action {one_line(str(action))}: is not in {space}")
        return torch.from_numpy(array).to(torch.int64 if is_whole else torch.float32).unsqueeze(0)

    # ---- the steps themselves -----------------------------------------------------------------------------------------

    def _go_on(
        self,
        recording: Recording,
        max_steps: int | None,
        wants_more: WantsMore | None,
        instead: Tensor | None = None,
        command: Command | None = None,
    ) -> None:
        self._hold(command)
        performer, limit = recording.performer, max_steps or MOST_STEPS
        ending: Ending | None = None
        moment: Moment | None = None
        while ending is None:
            done = len(recording.steps)
            if done >= limit:
                ending = "max steps"
            elif self._budget.is_spent:
                ending = "memory full"
            elif wants_more is not None and not wants_more(done):
                ending = "stopped"
            else:
                self._mark_if_due(recording)
                moment = performer.player.step(instead)
                self._keep(recording, moment, is_forced=instead is not None, command=command)
                instead = None
                if moment.ended:
                    ending = "terminated" if moment.terminated else "truncated"
        recording.ending = ending
        if moment is not None:
            recording.final_observation = moment.next_observation
            self._mark_the_end(recording, command)
            self._value_the_end(recording)

    def _mark_the_end(self, recording: Recording, command: Command | None) -> None:
        """A drive goes on from its end, again and again: a mark there, in the place of the one at its end before."""
        if command is None or recording.is_over:
            return
        mark = self._mark(recording.performer)
        if mark is not None:
            last = max((step for step in recording.marks if step % MARK_EVERY), default=0)
            if last and (recording.origin is None or last != recording.origin.step):
                del recording.marks[last]
            recording.marks[len(recording.steps)] = mark

    def _keep(self, recording: Recording, moment: Moment, *, is_forced: bool, command: Command | None) -> None:
        performer = recording.performer
        insight, decision = performer.reader.last, self._decision
        assert insight is not None
        assert decision is not None
        step = InspectedStep(
            observation=moment.observation,
            seen=_seen(performer.policy, decision.observation),
            action=moment.action,
            chosen=decision.chosen.action[0].detach().cpu().numpy().copy(),
            is_forced=is_forced,
            reward=moment.reward,
            terminated=moment.terminated,
            truncated=moment.truncated,
            insight=insight,
            command=command,
        )
        recording.steps.append(step)
        self._count(recording, step.size)
        self._keep_frame(recording, ended=moment.ended)

    def _keep_frame(self, recording: Recording, *, ended: bool = False) -> None:
        if self._camera is not None and len(recording.frames) == len(recording.steps):  # a drive has none
            self._count(recording, recording.add_frame(recording.performer.player.picture))
        if self.world is not None:
            pose = self.world.take_after_step(ended=ended) if recording.steps else self.world.take()
            self._count(recording, recording.add_pose(pose))

    def _hold(self, command: Command | None) -> None:
        if self.pilot is not None:
            self.pilot.hold(command)

    def _count(self, recording: Recording, size: int) -> None:
        recording.kept += size
        self._budget.take(size)

    def _value_the_end(self, recording: Recording) -> None:
        recording.final_value = None
        if recording.ending != "terminated" and recording.final_observation is not None and self._decision is not None:
            device = self._decision.is_first.device
            final = _as_rows(recording.final_observation, device)
            recording.final_value = recording.performer.reader.final_value(self._decision, final)

    # ---- going back ---------------------------------------------------------------------------------------------------

    def _mark_if_due(self, recording: Recording) -> None:
        done = len(recording.steps)
        if done % MARK_EVERY == 0 and done not in recording.marks:
            mark = self._mark(recording.performer)
            if mark is not None:
                recording.marks[done] = mark

    def _mark(self, performer: Performer) -> Mark | None:
        place = performer.player.place()
        return None if place is None else Mark(place, performer.reader.memory())

    def _reach(self, recording: Recording, step: int) -> None:
        """Bring the environment, the policy and its random numbers to where they stood before a step."""
        if recording.origin is not None and step < recording.origin.step:
            self._reach(recording.origin.recording, step)
            return
        before = [place for place in recording.marks if place <= step]
        if not before:
            raise UserError(_NO_WAY_BACK.format(self.performer.stored.config.environment.id))
        performer, start = recording.performer, max(before)
        performer.player.return_to(recording.marks[start].place)
        performer.reader.restore(recording.marks[start].memory)
        # Its pictures are there already; drawing them again would take most of the time.
        camera, performer.player.camera = performer.player.camera, None
        try:
            self._again(recording, start, step)
        finally:
            performer.player.camera = camera

    def _again(self, recording: Recording, start: int, step: int) -> None:
        performer = recording.performer
        for count, recorded in enumerate(recording.steps[start:step], start):
            instead = _as_rows(recorded.action, torch.device("cpu")) if recorded.is_forced else None
            self._hold(recorded.command)
            again = performer.player.step(instead)  # type: ignore[arg-type] # an action is one tensor
            if again.reward != recorded.reward or not np.array_equal(again.action, recorded.action):
                raise EtudeError(
                    f"step {count} did not do the same again: this environment depends on something that its state does not "
                    "hold, so other futures can't be compared with this one"
                )

    def _hand_over(self, recording: Recording, step: int, performer: Performer) -> Performer:
        """Let another policy go on from where the environment is now, with all that it would know by then."""
        place = recording.performer.player.place()
        assert place is not None, "it was just returned to"
        player, reader = performer.player, performer.reader
        player.begin_watching(self._purpose(recording.seed))
        reader.begin()
        for recorded in recording.steps[:step]:
            seen, action = _as_rows(recorded.observation, torch.device("cpu")), _as_rows(recorded.action, torch.device("cpu"))
            player.watch(seen, action)  # type: ignore[arg-type] # an action is one tensor
        player.return_to(place, keep_state=True)
        return performer

    def _perform(self, stored: OpenPolicy, mode: Mode) -> Performer:
        """Return another policy in this environment; UserError where it was made for another one."""
        here = self.performer.stored.config.environment
        if stored.config.environment.id != here.id:
            raise UserError(f"{stored.name} was trained in {stored.config.environment.id}, and this episode is of {here.id}")
        key = (f"{name_of(stored)} on {stored.config.experiment.device}", mode)
        if key not in self._others:
            policy = stored.build(self.environment)
            device, captured = stored.config.experiment.device, acts_captured(stored.config)
            camera = self._camera
            player = Player(policy, self.environment, mode=mode, device=device, camera=camera, captured=captured)
            reader = make_reader(stored, policy, self.environment)
            if len(self._others) >= MOST_POLICIES:
                self._others.pop(next(iter(self._others)))
            self._others[key] = Performer(stored, mode, policy, player, reader)
            self._listen(self._others[key])
        return self._others[key]

    def _listen(self, performer: Performer) -> None:
        def note(decision: Decision) -> None:
            performer.reader.read(decision)
            self._decision = decision

        performer.player.on_decision = note

    def _purpose(self, seed: int) -> int:
        return derive_seed(self.performer.stored.config.experiment.seed, PLAY_SEEDS, seed)


def name_of(stored: OpenPolicy) -> str:
    """Return what a policy is called: the run and the checkpoint, or the file."""
    return f"{stored.run.id} · {stored.checkpoint.name}" if isinstance(stored, StoredPolicy) else stored.name


def _unlike_training(stored: OpenPolicy) -> list[str]:
    """Say where a critic knows other rewards than those that are shown."""
    own = [one.id for one in stored.config.environment.wrappers if isinstance(one, RewardConfig) and one.training_only]
    return (
        [f"values and advantages are of training's rewards, by {', '.join(own)}; those shown are the task's own"] if own else []
    )


def _seen(policy: Policy, observation: Observation) -> Array | None:
    """What a network reads of an observation, where the policy's statistics change it."""
    parts: Any = policy.parts if isinstance(policy, PartsPolicy) else {}
    if "normalizer" not in parts or parts["normalizer"].mode == "off":
        return None
    with torch.no_grad():
        scaled = parts["normalizer"](observation)
    return map_tree(lambda tensor: tensor[0].detach().cpu().numpy().copy(), scaled)


def _as_rows(array: Array, device: torch.device) -> Observation:
    """Arrays of one copy as tensors (1, ...)."""
    if isinstance(array, dict):
        return {name: torch.as_tensor(part, device=device).unsqueeze(0) for name, part in array.items()}
    return torch.as_tensor(array, device=device).unsqueeze(0)
