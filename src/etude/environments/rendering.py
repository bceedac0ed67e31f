"""Environments that can be seen: on a screen where there is one, as pictures anywhere."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Literal

import gymnasium
import numpy as np

from etude.config.schema import EnvironmentConfig
from etude.environments.display import has_display
from etude.environments.gymnasium import GymnasiumVector
from etude.environments.make import make_environment
from etude.environments.vector import VectorEnvironment
from etude.errors import EtudeError, UserError

Show = Literal["nothing", "window", "pictures"]
DEFAULT_FPS = 30.0
_GL_HELP = "set MUJOCO_GL=egl (apt install libegl1) or MUJOCO_GL=osmesa (apt install libosmesa6)"


class Camera:
    """Takes pictures of the first copy of an environment, that of an episode's last state included."""

    def __init__(self, environment: VectorEnvironment, name: str) -> None:
        self._environment, self._name = environment, name
        self._end: np.ndarray | None = None
        if isinstance(environment.base, GymnasiumVector):
            environment.base.on_end = self._see_end

    def take(self) -> np.ndarray:
        """Return a picture of the present, (H, W, 3)."""
        try:
            base = self._environment.base
            if isinstance(base, GymnasiumVector):
                make_current(base.copies[0])
            picture = self._environment.render()
        except Exception as error:
            # Drawing is other people's code, drivers included, and fails in any way.
            raise EtudeError(f"{self._name} can't be drawn: {self._reason(error)}") from error
        if picture is None:
            raise EtudeError(f"{self._name} can't be drawn: its render() gives no picture")
        return np.asarray(picture)

    def take_after_step(self, *, ended: bool) -> np.ndarray | None:
        """Return a picture of where a step led. An environment of another kind may have begun anew already: then None."""
        if not ended:
            return self.take()
        end, self._end = self._end, None
        return end

    def _reason(self, error: Exception) -> str:
        """Say once why there is no picture: an environment's failure has its own words, and so has a missing package."""
        if isinstance(error.__cause__ or error, gymnasium.error.DependencyNotInstalled):
            return str(error.__cause__ or error)
        said = str(error) if isinstance(error, EtudeError) else f"{type(error).__name__}: {error}"
        is_mujoco = _is_mujoco(self._name) or hasattr(self._environment.base, "look")
        return f"{said}; {_GL_HELP}" if is_mujoco else said

    def _see_end(self, index: int) -> None:
        if index == 0:
            self._end = self.take()


def frames_per_second(environment: VectorEnvironment) -> float:
    """Return how many steps make a second of the task's own time; 30 where it does not say."""
    base = environment.base
    if not isinstance(base, GymnasiumVector):
        return base.render_fps or DEFAULT_FPS
    return float(base.copies[0].metadata.get("render_fps") or DEFAULT_FPS)


def make_to_show(
    config: EnvironmentConfig,
    show: Show,
    *,
    options: Mapping[str, Any] | None = None,
    fps: float | None = None,
) -> VectorEnvironment:
    """Return one copy of an environment that draws itself, in a window or for a `Camera`, or that need not.

    Native environments can't draw: where something is to be seen this is Gymnasium's class, which gives the same
    trajectory. `options` are further arguments of the environment, such as width and height.
    """
    mode = {"nothing": None, "window": "human", "pictures": "rgb_array"}[show]
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it would stand amid our own output
    if show == "pictures":
        prepare_drawing(config.id)
    if config.robot is not None:
        return _make_robots_to_show(config, options or {})
    wanted = replace(config, workers=0, kwargs={**config.kwargs, **(options or {})})
    if mode is not None and config.backend == "native":
        wanted = replace(wanted, backend="auto")
    try:
        with _without_complaints(config.id):
            environment = make_environment(wanted, num_envs=1, render_mode=mode)
    except (EtudeError, TypeError) as error:
        if "'render_mode'" in str(error):
            raise EtudeError(f"{config.id} can't be drawn: it takes no render_mode") from error
        if options and isinstance(error, UserError):
            said = str(error).split(f": {config.id} ", 1)[-1]
            raise UserError(f"render options {dict(options)}: {config.id} {said}") from error
        raise
    if isinstance(environment.base, GymnasiumVector):
        _prepare(environment.base.copies[0], config.id, show, fps)
    return environment


def _make_robots_to_show(config: EnvironmentConfig, options: Mapping[str, Any]) -> VectorEnvironment:
    """Robots draw themselves for whoever asks; options say from where they are looked at."""
    environment = make_environment(config, num_envs=1)
    robots: Any = environment.base
    robots.look(options)
    return environment


def prepare_drawing(name: str) -> None:
    """Make sure that an environment can draw itself into memory, or say why it can't."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it would stand amid our own output
    _go_headless()
    if _is_mujoco(name):
        _check_gl(name)


def make_current(copy: gymnasium.Env[Any, Any]) -> None:
    """Only one OpenGL context is current, and with several environments it may be another one's."""
    renderer = getattr(copy.unwrapped, "mujoco_renderer", None)
    viewer = getattr(renderer, "viewer", None)
    if viewer is not None:
        viewer.make_context_current()


def draw(copy: gymnasium.Env[Any, Any]) -> Any:
    """Return what a copy draws of itself; a UserError where it draws nothing."""
    make_current(copy)
    try:
        return copy.render()
    except NotImplementedError:
        raise UserError("this task draws no pictures of itself; leave the wrapper out") from None


def _prepare(copy: gymnasium.Env[Any, Any], name: str, show: Show, fps: float | None) -> None:
    modes = copy.metadata.get("render_modes") or []
    if show == "pictures" and "rgb_array" not in modes:
        raise EtudeError(f"{name} can't be drawn: it knows the render modes {', '.join(modes) or 'none'}, not rgb_array")
    if fps is not None:
        copy.unwrapped.metadata = {**copy.unwrapped.metadata, "render_fps": fps}


def _go_headless() -> None:
    """Draw into memory: pygame and MuJoCo would look for a screen, and complain that there is none."""
    if has_display():
        return
    for name, value in (("SDL_VIDEODRIVER", "dummy"), ("SDL_AUDIODRIVER", "dummy"), ("MUJOCO_GL", "egl")):
        if not os.environ.get(name):
            os.environ[name] = value


def _is_mujoco(name: str) -> bool:
    spec = gymnasium.registry.get(name.rpartition(":")[2])
    uses_it = spec is not None and any(word in str(spec.entry_point) for word in ("mujoco", "dm_control"))
    return uses_it and importlib.util.find_spec("mujoco") is not None


def _check_gl(name: str) -> None:
    """Try MuJoCo's way of drawing on an empty world: once a viewer has failed, it goes on complaining to its end."""
    backend = os.environ.get("MUJOCO_GL")
    if not backend:
        return  # with a display, whatever works is found
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mujoco: Any = importlib.import_module("mujoco")
            context = importlib.import_module(f"mujoco.{backend}").GLContext(8, 8)
            context.make_current()
            mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_150).free()
            context.free()
    except Exception as error:
        # Drivers, ctypes and PyOpenGL: anything from a missing library to an AttributeError.
        said = str(error).strip().partition("\n")[0]
        raise EtudeError(f"{name} can't be drawn with MUJOCO_GL={backend} ({said}); {_GL_HELP}") from error


@contextmanager
def _without_complaints(name: str) -> Iterator[None]:
    """Silence what we say better ourselves, and MuJoCo on Gymnasium's own models, which would leave a MUJOCO_LOG.TXT."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", ".*(possible render_modes|HumanRendering wrapper)")
        if _is_mujoco(name):
            mujoco: Any = importlib.import_module("mujoco")
            stack.callback(mujoco.set_mju_user_warning, mujoco.get_mju_user_warning())
            mujoco.set_mju_user_warning(lambda _: None)
        yield
