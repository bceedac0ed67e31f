"""Videos of a policy while it learns: `training.callbacks: [{type: video, every_steps: 50000}]`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from etude.config.constraints import PositiveFloat, PositiveInt
from etude.errors import EtudeError
from etude.files.printable import printable
from etude.orchestration.cadences import Cadence
from etude.orchestration.callbacks import Callback, Progress, Row


@dataclass(frozen=True)
class VideoConfig:
    """What to record, and when."""

    type: str = "video"
    """video."""
    every_steps: PositiveInt | None = None
    """Environment steps between videos; each is made with the first row of metrics from then on. Default: after every
    evaluation."""
    episodes: PositiveInt | None = None
    """How many episodes a video shows. Default: 1."""
    length: PositiveInt | None = None
    """Or how many frames it has, over as many episodes as that takes."""
    fps: PositiveFloat | None = None
    """Frames per second. Default: the environment's own."""
    render_options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the environment that is recorded, such as width and height."""

    def __post_init__(self) -> None:
        """Episodes or frames, not both."""
        if self.episodes is not None and self.length is not None:
            raise ValueError("episodes and length can't both be kept; give one of them")


class RecordingError(EtudeError):
    """A video could not be made, for whatever reason."""


class RecordVideos(Callback):
    """Records the current policy in an environment of its own, into the run's videos/; training can't notice.

    If it can't be recorded, that is a line in run.log, there are no more videos, and the run goes on.
    """

    Config: ClassVar[type] = VideoConfig

    def __init__(self, options: VideoConfig) -> None:
        from etude.files.video import find_ffmpeg

        find_ffmpeg()  # what is missing is said before the run begins
        self._options = options
        self._cadence = Cadence(options.every_steps or 0)
        self._is_off = False

    def on_row(self, progress: Progress, row: Row) -> str | None:
        """Record if it is time to."""
        steps = progress.counters["env_steps"]
        due = self._cadence.is_due(steps) if self._options.every_steps else any(name.startswith("eval/") for name in row)
        if due and not self._is_off:
            self._cadence.done(steps)
            try:
                self.record(progress)
            except RecordingError as error:
                self._is_off = True
                print(printable(f"no videos from {steps:,} environment steps on: {error}"), file=sys.stderr)
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return when the next video is due."""
        return self._cadence.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the videos where they were."""
        self._cadence.load_state_dict(state)

    def record(self, progress: Progress) -> Path:
        """Record the policy as it is now, and return the video; RecordingError if that can't be done."""
        if progress.run_dir is None or progress.policy is None:
            raise RecordingError("there is no run to put a video into")
        try:
            return self._play(progress, progress.run_dir)
        except Exception as error:
            # Renderers, drivers, encoders and other people's environments: none of them may end a training.
            said = str(error) if isinstance(error, EtudeError) else f"{type(error).__name__}: {error}"
            raise RecordingError(said) from error

    def _play(self, progress: Progress, run_dir: Path) -> Path:
        from etude.compute.random_streams import derive_seed, isolated_global_generators
        from etude.environments.rendering import Camera, frames_per_second, make_to_show
        from etude.orchestration.player import Player
        from etude.runs.run import Run
        from etude.telemetry.recorder import Recorder
        from etude.training import stored_config
        from etude.training.assembly import acts_captured
        from etude.training.evaluation import evaluation_modes
        from etude.using.play import play_episodes

        options, run = self._options, Run(run_dir)
        config = stored_config.load_config(run, trusted=True)  # the run that is training: its code is running already
        counters = progress.counters
        seed = derive_seed(config.experiment.seed, "video", counters["env_steps"], counters["updates"])
        with ExitStack() as stack:
            stack.enter_context(isolated_global_generators(seed))
            environment = make_to_show(config.environment, "pictures", options=options.render_options, fps=options.fps)
            stack.callback(environment.close)
            camera = Camera(environment, config.environment.id)
            (mode, *_) = evaluation_modes(config)
            assert progress.policy is not None
            how: Any = {"mode": mode, "device": config.experiment.device, "captured": acts_captured(config)}
            player = Player(progress.policy(), environment, camera=camera, **how)
            file = run.videos / f"steps-{counters['env_steps']:010d}.mp4"
            recorder = stack.enter_context(
                Recorder(file, fps=options.fps or frames_per_second(environment), length=options.length)
            )
            episodes = None if options.length else options.episodes or 1
            for _ in play_episodes([player], episodes, root_seed=seed, recorder=recorder):
                pass  # the recorder has seen it
        return file
