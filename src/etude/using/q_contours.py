"""Pictures of what an algorithm has learnt: its Q-function over two-dimensional actions, and what its policy does.

training.callbacks: [{type: q_contours, observations: [[-2.5, 0], [0, 0]]}]
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from torch import Tensor

from etude.config.constraints import NonNegativeInt
from etude.config.schema import Config
from etude.errors import UserError
from etude.files.regular import own_folder
from etude.orchestration.callbacks import Callback, Progress
from etude.using.stored_policy import Mode, StoredPolicy

GRID = 41
"""Actions across and up at which the Q-function is looked at."""
MOST_STEPS = 1000
"""Of an episode that is drawn."""


@dataclass(frozen=True)
class QContoursConfig:
    """Where to look, and how much to draw."""

    type: str = "q_contours"
    """q_contours."""
    observations: tuple[tuple[float, ...], ...] = ((0.0, 0.0),)
    """The observations to draw the Q-function at, a panel each."""
    samples: NonNegativeInt = 100
    """Actions of the policy to show in each of these panels."""
    trajectories: NonNegativeInt = 20
    """Episodes to draw, by the first two values of their observations; 0 leaves that panel out."""


class QContours(Callback):
    """Draws the Q-function with each checkpoint, into the run's logs/q_contours/."""

    Config: ClassVar[type] = QContoursConfig

    def __init__(self, options: QContoursConfig) -> None:
        _figure_class()  # what is missing is said before the run begins
        self._options = options

    def bind(self, config: Config, environment: Any) -> None:
        """Say at once if there will be nothing to draw."""
        _check(config, environment, self._options.observations)

    def on_checkpoint(self, progress: Progress, path: Path) -> None:
        """Draw what was saved, if it is the whole of the run: a policy alone has no Q-function."""
        from etude.files.atomic import write_bytes_atomic
        from etude.runs.run import Run
        from etude.using.stored_policy import open_policy

        if progress.run_dir is None:
            return
        run = Run(progress.run_dir)
        stored = open_policy(run, path.name, trusted=True)  # the run that is training: its code is running already
        if stored.checkpoint.kind != "full":
            return
        options, steps = self._options, progress.counters["env_steps"]
        picture = draw(stored, options.observations, samples=options.samples, trajectories=options.trajectories, seed=steps)
        folder = own_folder(run.logs / "q_contours")
        write_bytes_atomic(folder / f"steps-{steps:010d}.png", picture)


def draw(
    stored: StoredPolicy,
    observations: Sequence[Sequence[float]],
    *,
    samples: int = 100,
    trajectories: int = 20,
    seed: int = 0,
) -> bytes:
    """Return a PNG: the Q-function over actions at each observation with actions of the policy, and episodes of it."""
    from etude.compute.random_streams import isolated_global_generators
    from etude.environments.make import make_environment

    with isolated_global_generators(seed):
        environment = make_environment(stored.config.environment, num_envs=max(1, trajectories))
        try:
            _check(stored.config, environment, observations)
            workflow: Any = stored.workflow(environment)
            (mode, *_) = stored.modes("auto")
            device = torch.device(stored.config.experiment.device)
            generator = torch.Generator(device=device).manual_seed(seed)
            panels = []
            for values in observations:
                at = torch.tensor(values, dtype=torch.float32, device=device)
                panels.append((values, _contours(workflow, at), _actions(workflow, at, samples, generator)))
            paths = _paths(workflow, environment, mode, generator, seed) if trajectories else []
        finally:
            environment.close()
    labels = stored.config.environment.spec
    return _picture(panels, paths, labels.action_labels, labels.observation_labels)


def _check(config: Config, environment: Any, observations: Sequence[Sequence[float]]) -> None:
    """Raise UserError where there is nothing to draw."""
    from etude.config.registry import algorithms

    seen, acted, name = environment.single_observation_space, environment.single_action_space, config.environment.id
    if not isinstance(acted, gymnasium.spaces.Box) or acted.shape != (2,):
        raise UserError(f"q_contours draws continuous actions of two dimensions, and {name} has {acted}")
    critic = algorithms.resolve(config.algorithm.name).roles(config, seen, acted).get("critic")
    if critic is None or critic.inputs is None:
        raise UserError(f"q_contours: {config.algorithm.name} has no Q-function of actions; sac, sql, td3 and tqc have")
    for values in observations:
        if seen.shape != (len(values),):
            raise UserError(f"q_contours: observations: {list(values)} is not an observation of {name}, which has {seen}")


@torch.no_grad()
def _contours(workflow: Any, observation: Tensor) -> np.ndarray:
    """(GRID, GRID): what the lowest critic says of actions from -1 to 1, the first across and the second up."""
    from etude.components.critics import with_action

    line = torch.linspace(-1, 1, GRID, device=observation.device)
    up, across = torch.meshgrid(line, line, indexing="ij")
    action = torch.stack([across, up], -1).reshape(-1, 2)
    rows = workflow.normalizer(observation.expand(len(action), -1))
    # The mean over quantiles where a critic says several, the one number that it says otherwise.
    values = workflow.critic(with_action(rows, action)).mean(-1).amin(0)
    return values.view(GRID, GRID).cpu().numpy()


@torch.no_grad()
def _actions(workflow: Any, observation: Tensor, count: int, generator: torch.Generator) -> np.ndarray:
    rows, first = observation.expand(count, -1), torch.ones(count, dtype=torch.bool, device=observation.device)
    result = workflow.act(rows, None, first, mode="sample", generator=generator)
    return result.extras["sample"].cpu().numpy()


@torch.no_grad()
def _paths(workflow: Any, environment: Any, mode: Mode, generator: torch.Generator, seed: int) -> list[np.ndarray]:
    """One episode of each environment, as observations (steps, ...)."""
    from etude.compute.random_streams import derive_seed

    count, device = environment.num_envs, generator.device
    observation, _ = environment.reset([derive_seed(seed, "q_contours", i) for i in range(count)])
    paths = [[row.cpu().numpy().copy()] for row in observation]
    is_first, running = torch.ones(count, dtype=torch.bool, device=device), set(range(count))
    for _ in range(MOST_STEPS):
        action = workflow.act(observation.to(device), None, is_first, mode=mode, generator=generator).action
        step = environment.step(action.to(environment.device))
        ended = step.terminated | step.truncated
        for i in list(running):
            paths[i].append(step.final_observation[i].cpu().numpy().copy())
            if ended[i]:
                running.remove(i)
        if not running:
            break
        observation, is_first = step.observation, ended.to(device)
    return [np.stack(path) for path in paths]


def _picture(panels: Sequence[Any], paths: Sequence[np.ndarray], actions: Sequence[str], observations: Sequence[str]) -> bytes:
    count = len(panels) + bool(paths)
    figure = _figure_class()(figsize=(3.4 * count, 3.4), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    line = np.linspace(-1, 1, GRID)
    for axis, (values, heights, drawn) in zip(axes, panels, strict=False):
        axis.contour(line, line, heights, levels=20, cmap="viridis", linewidths=0.8)
        axis.plot(drawn[:, 0], drawn[:, 1], ".", color="#D55E00", markersize=4, alpha=0.7)
        axis.set(title=f"Q at {', '.join(f'{value:g}' for value in values)}", aspect="equal")
        axis.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
        _label(axis, actions)
    if paths:
        axis = axes[-1]
        for path in paths:
            axis.plot(path[:, 0], path[:, 1], color="#0072B2", linewidth=0.8, alpha=0.6)
            axis.plot(path[-1, 0], path[-1, 1], ".", color="#D55E00", markersize=5)
        axis.set(title=f"{len(paths)} episodes", aspect="equal")
        _label(axis, observations)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120, facecolor="white")
    return file.getvalue()


def _label(axis: Any, labels: Sequence[str]) -> None:
    if len(labels) > 1:
        axis.set_xlabel(labels[0])
        axis.set_ylabel(labels[1])


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("q_contours needs Matplotlib: pip install 'etude[plots]'") from None
    return Figure
