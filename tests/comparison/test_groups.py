"""Runs that differ by nothing but the seed belong together, and groups are called by what tells them apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.comparison.config_diff import code_differences, config_differences, package_differences
from etude.comparison.groups import make_groups
from etude.comparison.members import read_member
from etude.errors import UserError
from tests.comparison.synthetic import two_setups, write_run


def groups_of(paths: list[Path], by: str | None = None):
    return make_groups([read_member(path) for path in paths], by)


def labels(paths: list[Path], by: str | None = None) -> list[str]:
    return [group.label for group in groups_of(paths, by)]


def test_seeds_of_one_setup_are_one_group_named_after_what_differs(tmp_path: Path) -> None:
    groups = groups_of(two_setups(tmp_path))
    assert [(group.letter, group.label, len(group.members)) for group in groups] == [
        ("A", "gamma=0.98", 3),
        ("B", "gamma=0.9", 3),
    ]


def test_the_order_of_runs_does_not_change_the_members(tmp_path: Path) -> None:
    paths = two_setups(tmp_path)
    forth, back = groups_of(paths), groups_of(paths[::-1])
    assert [m.id for m in forth[0].members] == [m.id for m in back[1].members]


def test_one_setup_alone_is_called_by_environment_and_algorithm(tmp_path: Path) -> None:
    assert labels([write_run(tmp_path, "a", seed=seed) for seed in (1, 2)]) == ["CartPole-v1:ppo"]


def test_different_environments_are_named(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "a"), write_run(tmp_path, "b", environment="Pendulum-v1")]
    assert labels(paths) == ["CartPole-v1:ppo", "Pendulum-v1:ppo"]


def test_what_a_run_writes_when_does_not_make_another_setup(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "a"), write_run(tmp_path, "b", seed=2, settings={"logging.every_steps": 7})]
    assert len(groups_of(paths)) == 1


def test_a_setting_that_an_older_version_lacked_does_not_make_another_setup(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "a"), write_run(tmp_path, "b", seed=2, settings={"algorithm.new": None})]
    (group,) = groups_of(paths)
    assert config_differences([group]) == []


def test_many_differences_are_not_squeezed_into_a_label(tmp_path: Path) -> None:
    many = {f"algorithm.key{n}": n for n in range(9)}
    assert labels([write_run(tmp_path, "plain"), write_run(tmp_path, "tuned", settings=many)]) == ["plain", "tuned"]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("algorithm", ["ppo"]),
        ("environment", ["CartPole-v1"]),
        ("name", ["gamma-0.98", "gamma-0.9"]),
        ("group", ["no group"]),
        ("seed", ["seed 1", "seed 2", "seed 3"]),
        ("algorithm.gamma", ["gamma=0.98", "gamma=0.9"]),
        ("gamma", ["gamma=0.98", "gamma=0.9"]),
        ("algorithm.learning_rate", ["learning_rate=0.001 → 0"]),
    ],
)
def test_runs_can_be_grouped_by_anything_they_have(tmp_path: Path, by: str, expected: list[str]) -> None:
    assert labels(two_setups(tmp_path), by) == expected


def test_each_run_can_stand_for_itself(tmp_path: Path) -> None:
    assert len(groups_of(two_setups(tmp_path), "run")) == 6


def test_runs_on_different_environments_are_never_averaged(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "a"), write_run(tmp_path, "b", environment="Pendulum-v1")]
    assert labels(paths, "algorithm") == ["ppo on CartPole-v1", "ppo on Pendulum-v1"]


def test_a_key_that_no_run_has_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--by algoritm.gamma: .*did you mean 'algorithm.gamma'"):
        groups_of(two_setups(tmp_path), "algoritm.gamma")
    with pytest.raises(UserError, match=r"could be algorithm.gamma or other.gamma"):
        groups_of([write_run(tmp_path, "c", settings={"other.gamma": 1})], "gamma")


def test_only_settings_that_differ_are_listed_and_a_schedule_is_one_of_them(tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path, "a"),
        write_run(tmp_path, "b", settings={"algorithm.learning_rate": 3e-4, "algorithm.gamma": 0.9}),
    ]
    found = {each.key: each.values for each in config_differences(groups_of(paths))}
    assert found == {"algorithm.gamma": ("0.98", "0.9"), "algorithm.learning_rate": ("0.001 → 0", "0.0003")}


def test_several_values_within_a_group_stand_beside_each_other(tmp_path: Path) -> None:
    (found,) = config_differences(groups_of(two_setups(tmp_path), "algorithm"))
    assert found.values == ("0.9, 0.98",)


def test_other_code_and_other_versions_are_noticed(tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path, "a", packages={"torch": "2.13", "rich": "1"}),
        write_run(tmp_path, "b", settings={"algorithm.gamma": 0.5}, commit="b" * 40, packages={"torch": "2.12", "rich": "2"}),
    ]
    groups = groups_of(paths)
    assert code_differences(groups)[0].values == ("aaaaaaaaa", "bbbbbbbbb")
    assert [each.key for each in package_differences(groups)] == ["torch", "rich"]
    assert code_differences(groups[:1]) == package_differences(groups[:1]) == []


def test_more_groups_than_letters_still_have_names_of_their_own(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "a", seed=seed) for seed in range(30)]
    letters = [group.letter for group in groups_of(paths, "run")]
    assert letters[25:28] == ["Z", "AA", "AB"]
    assert len(set(letters)) == 30
