"""The attacks of `make attack`: a few of each in every suite, more of them when there is time."""

from __future__ import annotations

import pytest

from tools.attack.flips import flip
from tools.attack.hostile import plant
from tools.attack.kills import kill
from tools.attack.moments import Moment, Watch, watching
from tools.attack.report import Report
from tools.attack.victims import VICTIMS
from tools.attack.workshop import apart, command


def assert_nothing_found(report: Report, least: int) -> None:
    assert report.findings == []
    assert report.outcomes.total() >= least, report.lines()


def test_a_run_that_is_killed_at_a_few_moments_ends_as_if_it_never_was() -> None:
    report = kill(["ppo"], every_place=("ppo",), random_each=2, older_each=0, groups=0, share=0.04, quiet=True)
    assert_nothing_found(report, least=3)
    assert report.facts["kills"]


def test_flipped_bytes_are_told_or_change_nothing() -> None:
    assert_nothing_found(flip(["evaluate", "runs path", "runs show"], share=0.02, quiet=True), least=5)


def test_hostile_files_do_no_harm() -> None:
    assert_nothing_found(plant(["shapes", "texts", "folders", "names"], share=0.008, quiet=True), least=5)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_victim_is_killed_and_ends_as_if_it_never_was() -> None:
    report = kill(every_place=(), random_each=2, older_each=1, groups=1, quiet=True)
    assert set(VICTIMS) <= set(report.by_subject)
    assert_nothing_found(report, least=2 * len(VICTIMS))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_flips_and_hostile_files_find_nothing() -> None:
    assert_nothing_found(flip(share=0.1, quiet=True), least=100)
    assert_nothing_found(plant(share=0.1, quiet=True), least=100)


def test_a_process_dies_before_the_call_that_it_is_told() -> None:
    with watching(Watch()) as watch:
        command_code = apart(lambda: 0).code
    assert command_code == 0
    assert watch.places == []  # a fork of ours is no call of Etude's
    assert str(Moment("code", 3, "evaluator.py")) == "code of evaluator.py 3"


def test_what_no_command_may_do_is_noticed() -> None:
    def fails() -> int:
        raise ValueError("a fault")

    assert apart(fails).fault == "TRACEBACK"
    assert apart(lambda: 1).fault == "MUTE"
    assert command("runs", "list", "--runs", "nowhere").fault is None
