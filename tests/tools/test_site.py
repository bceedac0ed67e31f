"""The site's pages: each is in a list, and every link between them leads somewhere."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest

from tools.site import __main__ as site

HAS_MKDOCS = all(importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    site.lay_out(folder)
    return folder


def test_every_page_is_in_one_list(pages: Path) -> None:
    found = re.findall(r"[\w./-]+\.md", str(site.navigation(pages)))
    assert sorted(found) == sorted(path.relative_to(pages).as_posix() for path in pages.rglob("*.md"))


def test_every_link_leads_to_a_page_or_a_file_of_the_site(pages: Path) -> None:
    for page in pages.rglob("*.md"):
        text = "".join(part for part in site._FENCED.split(page.read_text()) if not part.startswith("```"))
        for _, _, address in site._LINK.findall(text):
            name, _, anchor = address.partition("#")
            if re.match(r"\w+:", address):
                continue
            there = page if not name else Path(os.path.normpath(page.parent / name))
            assert there.is_file(), f"{page.name}: {address}"
            assert not anchor or anchor in _anchors(there), f"{page.name}: {address}"


def _anchors(page: Path) -> set[str]:
    """The names of a page's headings, as MkDocs and forges make them."""
    headings = re.findall(r"^#+ +(.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", text)).strip().lower()) for text in headings}


def test_the_reference_is_of_modules_that_exist(pages: Path) -> None:
    for module in site.REFERENCE:
        assert importlib.util.find_spec(module), module


def test_what_a_site_does_not_have_is_text(pages: Path) -> None:
    assert "](sides/plain_ppo.py)" in (site.ROOT / "bench/README.md").read_text()
    assert "plain_ppo.py)" not in (pages / "bench.md").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_MKDOCS, reason="needs the extra `site`")
def test_the_site_builds_without_a_warning_and_asks_no_network(tmp_path: Path) -> None:
    assert site.build(tmp_path / "site") == 0
    scripts = [
        re.findall(r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?))"', p.read_text())
        for p in (tmp_path / "site").rglob("*.html")
    ]
    assert scripts
    assert not any(scripts)
    assert (tmp_path / "site" / "search" / "search_index.js").is_file()
    assert (tmp_path / "site" / site.WORKER).is_file()
