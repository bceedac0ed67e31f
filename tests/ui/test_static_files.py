from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from etude.ui.pages import STATIC

FILES = sorted(STATIC.iterdir())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
TEXT = ("ink", "quiet", "accent", "good", "busy", "warn", "bad")
GROUNDS = ("ground", "panel", "raised", "hover", "chosen")


def variables(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def themes() -> dict[str, dict[str, str]]:
    css = (STATIC / "app.css").read_text()
    light, chosen, by_system = (variables(block) for block in re.findall(r":root[^{]*\{([^}]*)\}", css)[:3])
    assert chosen == by_system
    return {"light": light, "dark": {**light, **chosen}}


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read(theme: str) -> None:
    colours = themes()[theme]
    for ground in GROUNDS:
        for text in TEXT:
            assert contrast(colours[text], colours[ground]) >= 4.5, f"{text} on {ground}"
    assert contrast(colours["on-accent"], colours["accent"]) >= 4.5
    assert contrast(colours["bad"], colours["bad-ground"]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_controls_focus_and_lines_can_be_seen(theme: str) -> None:
    colours = themes()[theme]
    listed = re.search(rf"const {theme.upper()} = \[(.*?)\]", (STATIC / "colours.js").read_text())
    assert listed is not None
    for colour in (colours["strong-line"], colours["focus"], *re.findall(r"#[0-9a-f]{6}", listed[1])):
        for ground in ("panel", "ground"):
            assert contrast(colour, colours[ground]) >= 3.0, f"{colour} on {ground}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_loaded_from_elsewhere(path: Path) -> None:
    addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.M))
    assert [each for each in addresses if "www.w3.org" not in each] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_text_is_never_html(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc", text)


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".html"], ids=lambda path: path.name)
def test_pages_have_no_inline_script_or_style(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", text)
    assert '<html lang="en">' in text
    assert 'name="viewport"' in text


def test_every_file_is_in_the_package() -> None:
    data = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "ui/static/*" in data["etude"]
    assert all(path.is_file() for path in FILES)


def test_imports_lead_to_files() -> None:
    for path in SCRIPTS:
        for name in re.findall(r'from "\./([\w.]+)"', path.read_text()):
            assert (STATIC / name).exists(), f"{path.name} imports {name}"
    for page in STATIC.glob("*.html"):
        for name in re.findall(r'"/static/([\w.]+)"', page.read_text()):
            assert (STATIC / name).exists(), f"{page.name} names {name}"
