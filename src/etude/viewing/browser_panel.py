"""What stands beside the scene: how it goes, what may be asked for, which checkpoint acts, and how well it does.

Callbacks come in threads of viser's. They change nothing: they put what is wanted into the show's queue.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np

from etude.robots.driving.driving import STAND, Command
from etude.viewing.checkpoints import short_label
from etude.viewing.described import NAMES, facts, velocities
from etude.viewing.show import LAYER_KEYS, LAYERS, Show

NEWEST = "newest, and those to come"
SLIDER_STEPS = 40
HOTKEYS = {
    "I": ("w", "forward"), "K": ("s", "back"), "J": ("a", "to the left"), "L": ("d", "to the right"),
    "U": ("q", "turn left"), "O": ("e", "turn right"), "space": ("space", "stand"), "C": ("c", "as the task says"),
    "R": ("r", "begin again"), "P": ("p", "pause"), "N": ("n", "next checkpoint"), "B": ("b", "checkpoint before"),
    "T": (".", "one step"),
}  # fmt: skip
"""viser's camera has w, a, s, d, q and e."""
KEYS_HELP = "i k: forward, back · j l: sideways · u o: turn · space: stand · c: as the task says · r: begin again · p: pause"


class Panel:
    """The controls of a page. All pages that are open share them."""

    def __init__(self, server: Any, show: Show) -> None:
        self._gui, self._show = server.gui, show
        self._gui.set_panel_label(f"Etude · {show.title}"[:80])
        self._facts = self._gui.add_html("")
        self._told = ""
        self._follow = self._gui.add_checkbox("camera goes along", True)
        self._add_time()
        self._choice = self._add_choice()
        self._sliders = self._add_commands()
        self._boxes = self._add_layers()
        self._plots = self._add_plots()
        self._add_hotkeys()

    @property
    def follows(self) -> bool:
        """Whether the camera goes along with the robot."""
        return self._follow.value

    def _do(self, what: Callable[[], None]) -> None:
        self._show.later.put(what)

    # ---- building -------------------------------------------------------------------------------------------------------

    def _add_time(self) -> None:
        self._words = {"pause": "p", "one step": ".", "begin again": "r", "slower": "-", "faster": "="}
        for options in (("pause", "one step", "begin again"), ("slower", "real time", "faster")):
            group = self._gui.add_button_group("", options)
            group.on_click(lambda event: self._do(lambda: self._press(event.target.value)))

    def _press(self, word: str) -> None:
        if word == "real time":
            self._show.speed = 1.0
        else:
            self._show.press(self._words[word])

    def _add_choice(self) -> Any:
        checkpoints = self._show.checkpoints
        if checkpoints is None:
            return None
        self._names: dict[str, str] = {}
        chosen = self._gui.add_dropdown("checkpoint", (NEWEST,), initial_value=NEWEST)

        def choose(event: Any) -> None:
            if event.client_id is None:
                return  # ours
            wanted = event.target.value
            if wanted == NEWEST:
                self._do(lambda: self._show.follow())
            elif wanted in self._names:
                self._do(lambda: self._show.choose(self._names[wanted]))

        chosen.on_update(choose)
        return chosen

    def _add_commands(self) -> list[Any]:
        commands, sliders = self._show.live.robots.task.commands, []
        with self._gui.add_folder("Command"):
            group = self._gui.add_button_group("", ("stand", "as the task says"))
            keys = {"stand": "space", "as the task says": "c"}
            group.on_click(lambda event: self._do(lambda: self._show.press(keys[event.target.value])))
            for name in NAMES:
                low, high = getattr(commands, name)
                low, high = min(low, 0.0), max(high, 0.0)
                if low == high:
                    sliders.append(None)  # nothing to choose
                    continue
                slider = self._gui.add_slider(name, low, high, (high - low) / SLIDER_STEPS, 0.0)
                slider.on_update(self._ask)
                sliders.append(slider)
            self._gui.add_html(f'<p style="margin:0.4em 1em;font-size:0.8em;opacity:0.75">{escape(KEYS_HELP)}</p>')
        return sliders

    def _ask(self, event: Any) -> None:
        if event.client_id is None:
            return  # ours: it shows what a key asked for
        forward, sideways, turn = (0.0 if slider is None else float(slider.value) for slider in self._sliders)
        self._do(lambda: self._show.ask(forward, sideways, turn))

    def _add_layers(self) -> dict[str, Any]:
        robots, boxes = self._show.live.robots, {}
        there = {
            "scan": self._show.live.scans,
            "goal": robots.task.commands.goal == "position",
            "motion": robots.motion is not None,
        }
        with self._gui.add_folder("Show"):
            for name, words in LAYERS.items():
                if there.get(name, True):
                    boxes[name] = self._gui.add_checkbox(words, self._show.layers[name])
                    boxes[name].on_update(self._switch(name))
        return boxes

    def _switch(self, name: str) -> Callable[[Any], None]:
        def switch(event: Any) -> None:
            if event.client_id is not None:
                on = bool(event.target.value)
                self._do(lambda: self._show.layers.shown.update({name: on}))

        return switch

    def _add_plots(self) -> list[Any]:
        plots = []
        with self._gui.add_folder("Asked and done"):
            for name, unit in zip(NAMES, ("m/s", "m/s", "rad/s"), strict=True):
                series = (
                    {"label": "s"},
                    {"label": "asked", "stroke": "#2666f2", "width": 2},
                    {"label": "done", "stroke": "#1aa64d", "width": 2},
                )
                empty = (np.zeros(1), np.zeros(1), np.zeros(1))
                scales = {"x": {"time": False}}
                title = f"{name}, {unit}"
                plots.append(self._gui.add_uplot(empty, series, title=title, scales=scales, aspect=2.4))
        return plots

    def _add_hotkeys(self) -> None:
        for hotkey, (key, words) in HOTKEYS.items():
            self._gui.add_command(f"Robot: {words}", hotkey=hotkey).on_trigger(self._presser(key))
        for key, layer in LAYER_KEYS.items():
            self._gui.add_command(f"Show or hide: {LAYERS[layer]}", hotkey=key.upper()).on_trigger(self._presser(key))

    def _presser(self, key: str) -> Callable[[Any], None]:
        return lambda event: self._do(lambda: self._show.press(key))

    # ---- telling ---------------------------------------------------------------------------------------------------------

    def tell(self, show: Show) -> None:
        """Bring everything up to date."""
        told = as_html(show)
        if told != self._told:
            self._told = self._facts.content = told
        for name, box in self._boxes.items():
            if box.value != show.layers[name]:
                box.value = show.layers[name]
        self._tell_command(show.live.driver.command if show.live.is_driven else STAND)
        self._tell_choice(show)
        if show.live.history:
            history = list(show.live.history)
            seconds = np.array([sample.second for sample in history])
            for which, plot in enumerate(self._plots):
                asked, done = (
                    np.array([values[which] for values in each])
                    for each in ([sample.asked for sample in history], [sample.done for sample in history])
                )
                plot.data = (seconds, asked, done)

    def _tell_command(self, command: Command) -> None:
        for slider, value in zip(self._sliders, command, strict=True):
            if slider is not None and abs(slider.value - value) > 1e-6:
                slider.value = min(max(value, slider.min), slider.max)

    def _tell_choice(self, show: Show) -> None:
        checkpoints = show.checkpoints
        if checkpoints is None or self._choice is None:
            return
        self._names = {short_label(each): each.name for each in reversed(checkpoints.list())}
        labels = {name: label for label, name in self._names.items()}
        shown = labels.get(checkpoints.shown.name) or short_label(checkpoints.shown)
        options = tuple(dict.fromkeys((NEWEST, *self._names, shown)))
        if tuple(self._choice.options) != options:
            self._choice.options = options
        wanted = NEWEST if checkpoints.follows else shown
        if self._choice.value != wanted:
            self._choice.value = wanted


def as_html(show: Show) -> str:
    """Return facts and velocities as a table; all of it is text, whatever a run or a file calls itself."""
    rows = [_row(name, escape(value)) for name, value in facts(show)]
    rows += [_row(name, f"<b>{escape(done)}</b> {escape(asked)}") for name, done, asked in velocities(show)]
    style = "margin:0.6em 1em;font-size:0.85em;line-height:1.5;overflow-wrap:anywhere;border-spacing:0.6em 0"
    return f'<table style="{style}">{"".join(rows)}</table>'


def _row(name: str, value: str) -> str:
    style = "white-space:nowrap;vertical-align:top;opacity:0.7"
    return f'<tr><td style="{style}">{escape(name)}</td><td>{value}</td></tr>'
