"""A show can be driven, paused, stepped and begun again, and goes on until somebody wants no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etude.viewing.browser_panel import as_html
from etude.viewing.described import facts, velocities
from etude.viewing.show import SPEEDS, Screen, Show

MakeShow = Callable[..., Show]


class Frames(Screen):
    """Looks at so many pictures; before each something may be done."""

    def __init__(self, show: Show, *todo: Callable[[Show], None] | None) -> None:
        self._show, self._todo, self.seen = show, [*todo], 0

    @property
    def is_open(self) -> bool:
        return bool(self._todo)

    def draw(self, show: Show) -> None:
        self.seen += 1
        what = self._todo.pop(0)
        if what is not None:
            show.later.put(lambda: what(show))


def test_the_task_asks_until_somebody_does(show_of: MakeShow) -> None:
    show = show_of()
    live = show.live
    assert not live.is_driven
    drawn = live.asked
    show.press("w")
    assert live.is_driven
    assert live.asked == pytest.approx((0.25, 0.0, 0.0))
    for _ in range(3):
        live.step()
    assert live.asked == pytest.approx((0.25, 0.0, 0.0)) != drawn
    assert [sample.asked[0] for sample in live.history] == pytest.approx([0.25] * 3)
    show.press("r")
    assert live.asked == pytest.approx((0.25, 0.0, 0.0))
    assert live.steps == 0
    assert live.episode == 2
    show.press("c")
    live.step()
    assert not live.is_driven
    assert live.robots.commands.fixed is None


def test_what_is_asked_stays_within_the_tasks_ranges(show_of: MakeShow) -> None:
    show = show_of()
    show.ask(9.0, -9.0, 0.25)
    assert show.live.asked == pytest.approx((1.0, -0.5, 0.25))


def test_paused_it_stands_still_but_for_single_steps(show_of: MakeShow) -> None:
    show = show_of()
    show.press("p")
    show.run(Frames(show, None, None, lambda show: show.press("."), None, None))
    assert show.paused
    assert show.live.steps == 1


def test_it_goes_on_by_the_clock_and_ends_with_x(show_of: MakeShow) -> None:
    show = show_of()
    show.speed = 4.0
    frames = Frames(show, *[None] * 8, lambda show: show.press("x"), *[None] * 50)
    show.run(frames)
    assert show.is_over
    assert frames.seen < 20
    assert show.live.steps > 0


def test_speed_has_a_slowest_and_a_fastest(show_of: MakeShow) -> None:
    show = show_of()
    for _ in SPEEDS:
        show.press("=")
    assert show.speed == SPEEDS[-1]
    for _ in SPEEDS:
        show.press("-")
    assert show.speed == SPEEDS[0]
    show.speed = 0.7
    show.press("=")
    assert show.speed == 1.0


def test_random_actions_fall_and_begin_again(show_of: MakeShow) -> None:
    live = show_of("biped-flat", act="random").live
    while live.falls == 0 and live.steps < 300:
        live.step()
    assert live.falls == 1
    assert live.episode == 2
    assert live.steps == 0


def test_velocities_are_told_as_what_they_are(show_of: MakeShow) -> None:
    walking, going = show_of(), show_of("quadruped-goto")
    walking.ask(0.5, 0.0, 0.0)
    assert velocities(walking)[0] == ("forward", walking_done(walking), "of +0.50")
    assert [asked[-2:] for _, _, asked in velocities(going)] == [" m", " m", ""]


def walking_done(show: Show) -> str:
    return f"{round(show.live.done[0], 2) + 0.0:+.2f}"


def test_names_of_files_and_runs_are_text_on_the_page(show_of: MakeShow) -> None:
    show = show_of()
    show.title = "<script>alert(1)</script>\n<b>"
    page = as_html(show)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert all("\n" not in value for _, value in facts(show))
