"""Playing a run's policy: episodes to look at, to record and to keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from etude.compute.random_streams import derive_seed
from etude.environments.rendering import Camera, Show, frames_per_second, make_to_show
from etude.errors import UserError
from etude.orchestration.player import Array, Moment, Player
from etude.robots.driving.driving import Wish
from etude.runs.run import Run
from etude.telemetry.recorder import Recorder
from etude.training.assembly import acts_captured
from etude.using.stored_policy import Mode, OpenPolicy, StoredPolicy, open_policy

PLAY_SEEDS = "play command"
"""The purpose that seeds of played episodes derive from; training and evaluations use others."""

ENDLESS = 2**31
"""Steps of an episode that nobody will wait for."""

Ending = Literal["terminated", "truncated", "max steps", "cut"]


@dataclass(frozen=True)
class Episode:
    """An episode that was played."""

    number: int
    """From 1 on."""
    seed: int
    """Playing with this seed plays this episode again."""
    total_reward: float
    length: int
    ending: Ending
    """max steps: by the limit given; cut: because the video was full or nobody wanted to see more."""
    path: dict[str, Any] | None
    """Every step of it, where that was asked for."""

    @property
    def is_whole(self) -> bool:
        """Whether its return means something."""
        return self.ending != "cut"

    def as_json(self) -> dict[str, Any]:
        """Return all of it but the steps."""
        return {
            "episode": self.number,
            "seed": self.seed,
            "return": self.total_reward,
            "length": self.length,
            "terminated": self.ending == "terminated",
            "truncated": self.ending in ("truncated", "max steps"),
            "ending": self.ending,
        }


@dataclass(frozen=True)
class Stage:
    """A policy in as many environments as are played side by side."""

    policy: OpenPolicy
    mode: Mode
    players: Sequence[Player]
    fps: float
    """How fast the environment runs by its own clock, or as asked."""

    @property
    def stored(self) -> StoredPolicy:
        """The policy, of a stage that was set for a run."""
        assert isinstance(self.policy, StoredPolicy)
        return self.policy

    @property
    def root_seed(self) -> int:
        """What the seeds of its episodes derive from."""
        return self.policy.config.experiment.seed

    def close(self) -> None:
        """Close the environments."""
        for player in self.players:
            player.close()


def set_stage(
    source: Run | str | Path,
    checkpoint: str | None = None,
    *,
    mode: Literal["auto", "greedy", "sample"] = "auto",
    show: Show = "nothing",
    copies: int = 1,
    render_options: Mapping[str, Any] | None = None,
    fps: float | None = None,
    endless: bool = False,
    root: Path | str | None = None,
    trusted: bool = False,
    device: str | None = None,
    prefer: Literal["best", "last"] = "best",
) -> Stage:
    """Load a policy into environments like those it was trained in, from stored settings and statistics.

    `checkpoint` is the best one by default, or the last one if none was ever evaluated. `endless`: without a time limit.
    """
    stored = open_policy(source, checkpoint, prefer=prefer, root=root, trusted=trusted, device=device)
    (chosen, *_) = stored.modes(mode)
    shown = stored.config.environment
    if endless:
        shown = replace(shown, max_episode_steps=ENDLESS)
    with ExitStack() as stack:
        environments = []
        for _ in range(copies):
            environments.append(make_to_show(shown, show, options=render_options, fps=fps))
            stack.callback(environments[-1].close)
        policy, players = stored.build(environments[0]), []
        how: Any = {"mode": chosen, "device": stored.config.experiment.device, "captured": acts_captured(stored.config)}
        for environment in environments:
            camera = Camera(environment, stored.config.environment.id) if show == "pictures" else None
            players.append(Player(policy, environment, camera=camera, **how))
        stack.pop_all()
    return Stage(stored, chosen, players, fps or frames_per_second(environments[0]))


def play_episodes(
    players: Sequence[Player],
    episodes: int | None,
    *,
    root_seed: int,
    seed: int = 0,
    max_steps: int | None = None,
    recorder: Recorder | None = None,
    keep_paths: bool = False,
    before_step: Callable[[], Wish] | None = None,
    on_step: Callable[[Moment], None] | None = None,
) -> Iterator[Episode]:
    """Play episodes and yield each as it ends; without a number, until the recorder is full.

    Several players play side by side, one episode each, and begin the next ones together. Episode i has the seed
    `seed + i`, and depends on `root_seed` and that alone. `before_step` says whether to go on.
    """
    begun = 0
    while episodes is None or begun < episodes:
        count = len(players) if episodes is None else min(len(players), episodes - begun)
        acts = [_Act(player, begun + i + 1, seed + begun + i, keep_paths) for i, player in enumerate(players[:count])]
        begun += count
        for act in acts:
            act.player.begin(derive_seed(root_seed, PLAY_SEEDS, act.seed))
        if recorder is not None:
            recorder.begin(acts[0].number)
            recorder.add([act.player.picture for act in acts])
        wants_more = True
        while wants_more and any(act.ending is None for act in acts):
            wish = "go on" if before_step is None else before_step()
            if wish != "go on":
                wants_more = wish == "begin again"
                if recorder is not None and wants_more:
                    recorder.end()
                break
            playing = [act for act in acts if act.ending is None]
            for act in playing:
                moment = act.step(max_steps)
                if on_step is not None:
                    on_step(moment)
            if recorder is not None:
                recorder.add([act.player.picture for act in acts])
                wants_more = not recorder.is_full
                if all(act.ending is not None for act in acts):
                    recorder.end()
            yield from (act.episode() for act in playing if act.ending is not None)
        yield from (act.episode() for act in acts if act.ending is None)
        if not wants_more:
            return


def play(
    run: Run | str | Path,
    episodes: int | None = None,
    *,
    checkpoint: str | None = None,
    mode: Literal["auto", "greedy", "sample"] = "auto",
    seed: int = 0,
    max_steps: int | None = None,
    video: Path | str | None = None,
    grid: tuple[int, int] = (1, 1),
    fps: float | None = None,
    record_length: int | None = None,
    render_options: Mapping[str, Any] | None = None,
    runs: Path | str | None = None,
    trust: bool = False,
) -> list[dict[str, Any]]:
    """Play the policy of a run or a file, as `etude play` does, and return each episode's path: arrays over its steps.

    `video` is a file (.mp4 or .gif) or a folder; `grid` the rows and columns of environments in it. `trust` follows import
    paths in the config of somebody else's run.
    """
    check_numbers(episodes=episodes, max_steps=max_steps, record_length=record_length)
    if fps is not None and not fps > 0:
        raise UserError(f"fps={fps:g}: must be above 0")
    if video is None and (record_length is not None or grid != (1, 1) or fps is not None):
        raise UserError("record_length, grid and fps are of a video: give one")
    with ExitStack() as stack:
        ready = set_stage(
            run,
            checkpoint,
            mode=mode,
            show="nothing" if video is None else "pictures",
            copies=grid[0] * grid[1],
            render_options=render_options,
            fps=fps,
            root=runs,
            trusted=trust,
        )
        stack.callback(ready.close)
        recorder = None
        if video is not None:
            recorder = Recorder(video, fps=ready.fps, rows=grid[0], columns=grid[1], length=record_length)
            stack.enter_context(recorder)
        played = play_episodes(
            ready.players,
            number_of_episodes(episodes, record_length),
            root_seed=ready.root_seed,
            seed=seed,
            max_steps=max_steps,
            recorder=recorder,
            keep_paths=True,
        )
        in_order = sorted(played, key=lambda episode: episode.number)
        return [episode.path for episode in in_order if episode.path is not None]


def number_of_episodes(episodes: int | None, record_length: int | None) -> int | None:
    """Return how many to play: 5 by default, and as many as needed for a video of a given length."""
    if record_length is not None and episodes is not None:
        raise UserError("a number of episodes and a number of frames can't both be kept; give one of them")
    return 5 if episodes is None and record_length is None else episodes


def check_numbers(**values: float | None) -> None:
    """Refuse what must be at least 1 and is not."""
    for name, value in values.items():
        if value is not None and not value >= 1:
            raise UserError(f"{name}={value}: must be at least 1")


@dataclass
class _Act:
    """An episode while it is played."""

    player: Player
    number: int
    seed: int
    keeps_moments: bool
    total_reward: float = 0.0
    length: int = 0
    ending: Ending | None = None
    moments: list[Moment] = field(default_factory=list)

    def step(self, max_steps: int | None) -> Moment:
        moment = self.player.step()
        self.total_reward += moment.reward
        self.length += 1
        if moment.ended:
            self.ending = "terminated" if moment.terminated else "truncated"
        elif max_steps is not None and self.length >= max_steps:
            self.ending = "max steps"
            moment = replace(moment, truncated=True)
        if self.keeps_moments:
            self.moments.append(moment)
        return moment

    def episode(self) -> Episode:
        ending: Ending = self.ending or "cut"
        path = self._path(ending) if self.moments else None
        return Episode(self.number, self.seed, self.total_reward, self.length, ending, path)

    def _path(self, ending: Ending) -> dict[str, Any]:
        return {
            "observations": _stack([moment.observation for moment in self.moments]),
            "actions": np.stack([moment.action for moment in self.moments]),
            "rewards": np.array([moment.reward for moment in self.moments]),
            "next_observations": _stack([moment.next_observation for moment in self.moments]),
            "terminated": np.array([moment.terminated for moment in self.moments]),
            "truncated": np.array([moment.truncated for moment in self.moments]),
            "return": self.total_reward,
            "length": self.length,
            "seed": self.seed,
            "ending": ending,
        }


def _stack(observations: Sequence[Array]) -> Array:
    first = observations[0]
    if isinstance(first, dict):
        return {name: np.stack([each[name] for each in observations]) for name in first}  # type: ignore[call-overload] # as the first
    return np.stack(observations)  # type: ignore[arg-type] # as the first
