"""The loop of a viewer: a robot that moves in real time or at another speed, whoever acts, and the screen that shows it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from etude.robots.driving.driving import KEYS as DRIVING_KEYS
from etude.robots.driving.driving import WISHES, Ask, Press
from etude.viewing.checkpoints import Checkpoints
from etude.viewing.live_robot import LiveRobot
from etude.viewing.performers import PolicyPerformer

SPEEDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
FRAME_S = 1 / 50
"""Seconds between pictures at least; a robot may take several steps between two, or none."""
LOOK_EVERY_S = 1.0
"""Seconds between looks for a newer checkpoint."""
MOST_STEPS_BEHIND = 20
"""Steps that are taken at once at most: time that was lost beyond that is not made up for."""
LAYERS = {
    "velocity": "velocity, asked and done",
    "forces": "contact forces",
    "scan": "height scan",
    "goal": "place to go to",
    "motion": "motion to follow",
}
"""What may be drawn beside the robot."""
LAYER_KEYS = {"v": "velocity", "f": "forces", "h": "scan", "g": "goal", "m": "motion"}
VIEWER_KEYS = ("p", ".", "-", "=", "c", "b", "n", *LAYER_KEYS)
KEYS = (*DRIVING_KEYS, *VIEWER_KEYS)
HELP = (
    "w s: forward, back · a d: sideways · q e: turn · space: stand · c: as the task says · r: begin again · p: pause\n"
    ".: one step · - =: slower, faster · b n: checkpoint before, next · x: stop\n"
    "v f h g m: show or hide velocity, contact forces, height scan, place to go to, motion"
)


class Screen(ABC):
    """Where a robot is seen."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether somebody may still be looking."""

    @abstractmethod
    def draw(self, show: Show) -> None:
        """Show the present."""

    def close(self) -> None:  # noqa: B027 # some have nothing to give back
        """Give back what was taken."""


@dataclass
class Layers:
    """Which marks are drawn."""

    shown: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(LAYERS, True))

    def __getitem__(self, name: str) -> bool:
        return self.shown[name]

    def switch(self, name: str) -> None:
        """Draw what was not drawn, or the other way round."""
        self.shown[name] = not self.shown[name]


class Show:
    """A robot, whoever acts, and what somebody wants of both. All of it happens in the thread that calls `run`.

    Screens that hear of keys in a thread of their own put what is to be done into `later`.
    """

    def __init__(
        self,
        live: LiveRobot,
        title: str,
        *,
        checkpoints: Checkpoints | None = None,
        speed: float = 1.0,
        paused: bool = False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.live, self.title, self.checkpoints = live, title, checkpoints
        self.speed, self.paused, self.layers = speed, paused, Layers()
        self.later: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.status = checkpoints.status() if checkpoints is not None else ""
        """How the run is."""
        self.rate = 0.0
        """Seconds of the robot's own time for each second here, lately."""
        self.is_over = False
        self._tell, self._told_problem = tell, None

    # ---- what somebody wants -------------------------------------------------------------------------------------------

    def press(self, key: str) -> None:
        """Do what a key means; a key that means nothing is ignored."""
        if key in LAYER_KEYS:
            self.layers.switch(LAYER_KEYS[key])
        elif key in ("-", "="):
            self.speed = _next_speed(self.speed, faster=key == "=")
        elif key in ("b", "n"):
            self.choose_beside(-1 if key == "b" else 1)
        elif key == "p":
            self.paused = not self.paused
        elif key == ".":
            self.step_once()
        elif key == "c":
            self.live.hand_back()
        elif WISHES.get(key) == "stop":
            self.is_over = True
        elif WISHES.get(key) == "begin again":
            self.live.begin()
        elif key in DRIVING_KEYS:
            self.live.take(Press(key))

    def ask(self, forward: float, sideways: float, turn: float) -> None:
        """Ask the robot for a velocity, or for a place where the task is to go to places."""
        self.live.take(Ask((forward, sideways, turn)))

    def step_once(self) -> None:
        """Pause, and take one step."""
        self.paused = True
        self.live.step()

    def choose(self, name: str) -> None:
        """Let a checkpoint act, by its name."""
        if self.checkpoints is not None:
            self._replace(self.checkpoints.choose(name))

    def choose_beside(self, way: int) -> None:
        """Let the checkpoint before (−1) or after (1) act."""
        if self.checkpoints is not None:
            self.choose(self.checkpoints.beside(way))

    def follow(self, *, on: bool = True) -> None:
        """Let the newest checkpoint act, also of those to come; or keep the one that acts."""
        if self.checkpoints is not None:
            self.checkpoints.follows = on
            self.look()

    # ---- checkpoints ----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """See whether there is a newer checkpoint, and how the run is."""
        if self.checkpoints is None:
            return
        self._replace(self.checkpoints.newer())
        status = self.checkpoints.status()
        if status != self.status and self.status == "running":
            self._tell(f"run {self.checkpoints.run.id}: {status}")
        self.status = status

    def _replace(self, policy: object) -> None:
        checkpoints, performer = self.checkpoints, self.live.performer
        assert checkpoints is not None
        if policy is not None and isinstance(performer, PolicyPerformer):
            performer.replace(policy)  # type: ignore[arg-type] # a policy
            self._tell(f"checkpoint {checkpoints.label}")
        if checkpoints.problem not in (None, self._told_problem):
            self._tell(f"{checkpoints.problem}; {checkpoints.shown.name} goes on")
        self._told_problem = checkpoints.problem

    # ---- time ---------------------------------------------------------------------------------------------------------

    def run(self, screen: Screen) -> None:
        """Go on until somebody wants no more, or nobody looks any longer."""
        looked = began = time.perf_counter()
        due, steps = began, 0
        dt = self.live.robots.dt
        while not self.is_over and screen.is_open:
            frame_ends = time.perf_counter() + FRAME_S
            self.do_later()
            now = time.perf_counter()
            if now - looked > LOOK_EVERY_S:
                self.look()
                now = time.perf_counter()
                self.rate, steps, looked = steps * dt / (now - looked), 0, now
            if self.paused:
                due = now
            due = max(due, now - MOST_STEPS_BEHIND * dt / self.speed)
            while not self.paused and due <= time.perf_counter() < frame_ends:
                self.live.step()
                steps += 1
                due += dt / self.speed
            screen.draw(self)
            time.sleep(max(0.0, frame_ends - time.perf_counter()))

    def do_later(self) -> None:
        """Do what screens want done."""
        while True:
            try:
                self.later.get_nowait()()
            except Empty:
                return


def _next_speed(speed: float, *, faster: bool) -> float:
    if faster:
        return next((each for each in SPEEDS if each > speed), SPEEDS[-1])
    return next((each for each in reversed(SPEEDS) if each < speed), SPEEDS[0])
