"""`etude view`: a robot to look at from all sides, in MuJoCo's viewer or in a browser."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from etude.cli.options import above_zero, exclusive
from etude.cli.output import note, say
from etude.cli.parameters import Device, RunsFolder, StoredCode, Trust, Words
from etude.cli.places import find_run
from etude.cli.starting import starting
from etude.cli.stored_code import again_with_stored_code

if TYPE_CHECKING:
    from etude.runs.run_selection import Selection
    from etude.viewing.door import Door
    from etude.viewing.performers import Act
    from etude.viewing.show import Screen, Show


def view(
    what: Annotated[str, Parameter(name="RUN|TASK")],
    /,
    *settings: Words,
    browser: bool = False,
    checkpoint: str | None = None,
    follow: bool = False,
    mode: Literal["auto", "greedy", "sample"] = "auto",
    act: Literal["stand", "random"] | None = None,
    speed: float = 1.0,
    paused: bool = False,
    seed: int = 0,
    port: int | None = None,
    host: str | None = None,
    open_browser: Annotated[bool, Parameter(name="--open")] = False,
    device: Device = None,
    runs: RunsFolder = None,
    trust: Trust = False,
    stored_code: StoredCode = False,
) -> int:
    """Look at a robot from all sides while it moves, with its velocity as asked and done, contact forces and height scan.

    In MuJoCo's own viewer, or with --browser in a browser. Keys drive it, pause it, and let other checkpoints of the run act.
    Ctrl-C ends it.

    Parameters
    ----------
    what
        A run or a path to one of its checkpoints; or a robot's task by its id (quadruped-flat) or file, or a robot's own YAML,
        MJCF or URDF, which moves without a policy.
    settings
        Of a task: settings of it, such as environment.robot.terrain.seed=1.
    browser
        Show it in a browser (extra viewer) instead of a window.
    checkpoint
        best, last, a sequence number or environment steps. Default: best, or last where there is no best.
    follow
        Let the newest checkpoint act, and each newer one as soon as the training has written it.
    mode
        greedy: the most likely action; sample: as in training; auto: as in the run's own evaluations.
    act
        Of a task: stand (motors hold the default pose) or random. Default: stand.
    speed
        How many seconds of the robot's time pass in one.
    paused
        Begin paused.
    seed
        The first episode's seed; the next ones count on from it.
    port
        With --browser, the port to listen on; 0 takes a free one. Default: 8770, or a free one where that is taken.
    host
        With --browser, the address to listen on. Default: 127.0.0.1, which only this machine reaches.
    open_browser
        Open the page in a browser.
    """
    from etude.errors import UserError

    above_zero(speed=speed)
    exclusive({"--follow": follow, "--checkpoint": checkpoint})
    for option, value in {"--port": port, "--host": host, "--open": open_browser}.items():
        if value not in (None, False) and not browser:
            raise UserError(f"{option} is of the page in a browser: --browser")
    if port is not None and not 0 <= port <= 65535:
        raise UserError(f"--port {port}: must be from 0 to 65535")
    _require_package(browser)
    _require_simulator()
    if stored_code:
        return again_with_stored_code(find_run(what, runs).run, what, trusted=trust)
    from etude.viewing.subjects import is_task

    found = None if is_task(what) else find_run(what, runs)
    if found is not None:
        _refuse({"--act": act, " ".join(settings): bool(settings)}, "is of a task by itself; a run keeps its own settings")
    else:
        only_runs = {"--checkpoint": checkpoint, "--follow": follow, "--mode": mode != "auto", "--device": device}
        _refuse(only_runs, f"is of a run, and {what} is a task")
    with ExitStack() as stack:
        with starting(f"viewing {what}") as tell:
            tell("loading torch and the simulator")
            import torch

            torch.set_num_threads(1)
            door = _open_place(stack, host, port, browser=browser)
            tell("building the robot")
            options: dict[str, Any] = {"seed": seed, "speed": speed, "paused": paused, "tell": note}
            if found is not None:
                chosen: dict[str, Any] = {"checkpoint": checkpoint or found.checkpoint, "mode": mode, "device": device}
                show = _show_run(found, follow, chosen, options, trusted=trust)
            else:
                show = _show_task(what, settings, act or "stand", options)
            stack.callback(show.live.close)
        screen = _screen(show, door, opens=open_browser)
        stack.callback(screen.close)
        show.run(screen)
    return 0


def _open_place(stack: ExitStack, host: str | None, port: int | None, *, browser: bool) -> Door | None:
    """Say what is wrong with the screen or the port before anything is built; a door is for a browser alone."""
    if not browser:
        from etude.viewing.mujoco_window import require_window

        require_window()
        return None
    from etude.viewing.door import Door

    door = Door(host or "127.0.0.1", port)
    stack.callback(door.close)
    return door


def _show_run(found: Selection, follow: bool, chosen: dict[str, Any], options: dict[str, Any], *, trusted: bool) -> Show:
    from etude.viewing.subjects import show_run, wait_for_checkpoint

    if follow:
        wait_for_checkpoint(found.run, note)
    return show_run(found.run, follows=follow, trusted=trusted, **chosen, **options)


def _show_task(what: str, settings: tuple[str, ...], act: Act, options: dict[str, Any]) -> Show:
    from etude.config.overrides import parse
    from etude.viewing.subjects import show_task

    return show_task(what, parse(settings).values, act=act, **options)


def _screen(show: Show, door: Door | None, *, opens: bool) -> Screen:
    from etude.viewing.show import HELP

    say(show.title if show.checkpoints is None else f"{show.title} · {show.checkpoints.run.id} · {show.checkpoints.label}")
    if door is None:
        from etude.viewing.mujoco_window import MujocoWindow

        for line in HELP.splitlines():
            note(line)
        return MujocoWindow(show)
    from etude.viewing.browser import Page

    page = Page(show, door)
    if not door.is_local:
        note(f"--host {door.host}: others reach this page with the token in the address, and nothing is encrypted")
    say(page.address)
    note("Ctrl-C ends this")
    if opens:
        import webbrowser

        webbrowser.open(page.address)
    return page


def _refuse(options: dict[str, Any], why: str) -> None:
    from etude.errors import UserError

    for name, value in options.items():
        if value not in (None, False):
            raise UserError(f"{name} {why}")


def _require_package(browser: bool) -> None:
    import importlib.util

    from etude.errors import MissingPackageError

    if browser and importlib.util.find_spec("viser") is None:
        raise MissingPackageError("etude view --browser needs viser: pip install 'etude[viewer]'; without it, a window opens")


def _require_simulator() -> None:
    import importlib.util

    from etude.errors import MissingPackageError

    if importlib.util.find_spec("mujoco") is None:
        raise MissingPackageError("robots need MuJoCo: pip install 'etude[mujoco]'")
