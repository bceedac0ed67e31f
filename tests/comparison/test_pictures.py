"""Plots and the page: made of every comparison, the same each time, and with nothing from elsewhere."""

from __future__ import annotations

import builtins
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

from etude.comparison.page import page
from etude.comparison.plot import caption, draw
from etude.comparison.results import compare
from etude.errors import UserError
from tests.comparison.synthetic import two_setups, write_run

EVIL = "</script><script>alert(1)</script><!-- STYLE -->"


def data_of(text: str) -> dict:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize(("format", "beginning"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_plot_is_a_file_of_its_format_and_the_same_each_time(tmp_path: Path, format: str, beginning: bytes) -> None:
    paths = two_setups(tmp_path)
    first = draw(compare(paths), format)
    assert first.startswith(beginning)
    assert draw(compare(paths), format) == first


def test_a_plot_names_the_groups_the_axis_and_what_the_band_is(tmp_path: Path) -> None:
    texts = _texts(draw(compare(two_setups(tmp_path), metrics=["eval/return_mean", "train/entropy"]), "svg"))
    assert {"gamma=0.98", "gamma=0.9", "eval/return_mean", "train/entropy", "environment steps", "4k"} <= texts
    assert "Line: mean of 3 seeds; band: 95% bootstrap interval." in texts


def test_the_caption_says_what_was_done_to_the_curves(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "a"), write_run(tmp_path, "a", seed=2, returns=[1, 2], steps=[1000, 2000])]
    assert caption(compare(paths)) == "Line: mean of 2 seeds; band: 95% bootstrap interval; thin: not all seeds."
    assert "smoothed over 0.1 of the axis" in caption(compare(paths, smooth=0.1))
    assert caption(compare(paths[:1], aggregate="iqm")) == "Line: interquartile mean of 1 seed."


@pytest.mark.parametrize("count", [1, 7, 30])
def test_any_number_of_groups_and_odd_runs_can_be_drawn(tmp_path: Path, count: int) -> None:
    paths = [write_run(tmp_path, f"run{n}", seed=n, returns=[n, n + 1, n], steps=[10, 20, 30]) for n in range(count - 1)]
    paths.append(write_run(tmp_path, "point", seed=99, returns=[5.0], steps=[1_000_000], metrics={"other/one": [float("nan")]}))
    comparison = compare(paths, by="run", metrics=["eval/*", "other/one"])
    assert draw(comparison, "png").startswith(b"\x89PNG")
    assert len(data_of(page(comparison, every_metric=True))["groups"]) == count


def test_dollars_in_a_name_are_no_mathematics_and_foreign_letters_no_failure(tmp_path: Path) -> None:
    path = write_run(tmp_path, "a", settings={"algorithm.gamma": r"$\frac{1$"})
    other = write_run(tmp_path, "b", settings={"algorithm.gamma": "x_1$ 中"})
    assert draw(compare([path, other], by="algorithm.gamma"), "png").startswith(b"\x89PNG")


def test_without_matplotlib_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def missing(name: str, *arguments, **options):
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return original(name, *arguments, **options)

    comparison = compare(two_setups(tmp_path))
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UserError, match=r"pip install 'etude\[plots\]'"):
        draw(comparison, "png")
    assert page(comparison, every_metric=True)  # the page needs nothing


def test_the_page_stands_alone(tmp_path: Path) -> None:
    text = page(compare(two_setups(tmp_path)), every_metric=True)
    assert not re.search(r"""(?:src|href)\s*=|@import|url\(|fetch\(|XMLHttpRequest|https?://(?!www\.w3\.org/2000/svg)""", text)
    assert "prefers-color-scheme: dark" in text
    assert "<!-- DATA -->" not in text


def test_the_page_has_every_metric_with_those_asked_for_first(tmp_path: Path) -> None:
    comparison = compare(two_setups(tmp_path), metrics=["train/entropy"])
    assert data_of(page(comparison, every_metric=True))["metrics"] == ["train/entropy", "eval/return_mean"]
    only = data_of(page(comparison, every_metric=False))
    assert only["metrics"] == ["train/entropy"]
    curve = only["curves"]["train/entropy"][0]
    assert curve["x"] == [1000, 2000, 3000, 4000]
    assert curve["value"] == pytest.approx([0.7, 0.6, 0.5, 0.42])
    assert len(curve["low"]) == len(curve["high"]) == len(curve["runs"]) == 4
    assert only["settings"] == {"algorithm.gamma": {"A": "0.98", "B": "0.9"}}


def test_a_hostile_name_stays_text(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "a", settings={"algorithm.gamma": EVIL}), write_run(tmp_path, "b", environment=EVIL[:9])]
    text = page(compare(paths, by="algorithm.gamma"), every_metric=True)
    parser = _Scripts()
    parser.feed(text)
    assert parser.count == 2
    assert "alert(1)" not in text.partition("<script id=")[0]
    assert any(EVIL in group["label"] for group in data_of(text)["groups"])


def test_no_two_groups_share_a_colour(tmp_path: Path) -> None:
    # Defect 24: colours came again from the seventh group on.
    paths = [write_run(tmp_path, f"run{n}", seed=n) for n in range(40)]
    groups = data_of(page(compare(paths, by="run"), every_metric=False))["groups"]
    assert len({group["colour"] for group in groups}) == 40
    assert len({(group["colour"], group["dashes"]) for group in groups[:12]}) == 12


def test_every_environment_has_its_own_axis_and_a_method_its_colour_on_all(tmp_path: Path) -> None:
    # Defect 24: returns of 500 and of 5,000 lay on one axis.
    paths = [
        write_run(tmp_path, f"{environment}-{algorithm}", environment=environment, algorithm=algorithm)
        for environment in ("CartPole-v1", "Ant-v5")
        for algorithm in ("ppo", "sac")
    ]
    comparison = compare(paths, by="algorithm")
    found = data_of(page(comparison, every_metric=False))
    assert found["environments"] == ["CartPole-v1", "Ant-v5"]
    colours = {(group["environment"], group["method_label"]): group["colour"] for group in found["groups"]}
    assert len(colours) == 4
    assert colours["CartPole-v1", "ppo"] == colours["Ant-v5", "ppo"] != colours["Ant-v5", "sac"]
    texts = _texts(draw(comparison, "svg"))
    assert {"eval/return_mean · CartPole-v1", "eval/return_mean · Ant-v5", "ppo", "sac"} <= texts


def test_the_page_names_the_runs_and_has_the_curve_of_each(tmp_path: Path) -> None:
    paths = two_setups(tmp_path)
    found = data_of(page(compare(paths), every_metric=False))
    assert [run["id"] for run in found["runs"]] == [path.name for path in paths]
    assert [run["seed"] for run in found["runs"]] == [1, 2, 3, 1, 2, 3]
    seeds = found["curves"]["eval/return_mean"][0]["seeds"]
    assert [seed["id"] for seed in seeds] == [path.name for path in paths[:3]]
    assert seeds[1] == {"id": paths[1].name, "x": [1000, 2000, 3000, 4000], "value": [27.5, 55, 82.5, 110]}
    alone = data_of(page(compare(paths[:1]), every_metric=False))
    assert alone["curves"]["eval/return_mean"][0]["seeds"] == [], "a group of one run is that run"


def test_a_page_of_many_runs_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.comparison.page._MOST_POINTS", 100)
    steps = list(range(1, 201))
    paths = [write_run(tmp_path, "a", seed=seed, returns=steps, steps=steps) for seed in (1, 2)]
    (one, _) = data_of(page(compare(paths), every_metric=False))["curves"]["eval/return_mean"][0]["seeds"]
    assert (len(one["x"]), one["x"][0], one["x"][-1], one["value"][-1]) == (50, 1, 200, 200)


class _Scripts(HTMLParser):
    count = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count += tag == "script"


def _texts(svg: bytes) -> set[str]:
    return {element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}
