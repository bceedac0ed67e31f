"""Build these pages as a site that works without a network: `python -m tools.site build/site`.

Pages link to files of the repository; here they are copied to where the site has them, their links follow, and links to what no
site shows become text. The reference is made of docstrings, by reading the source alone. A link that leads nowhere
and a warning of any kind are errors.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
NAME = "Etude"
WORKER = "assets/worker_in_a_frame_iframe-worker.js"
"""By the second half of its name the theme knows that it need not fetch one."""
AT_THE_TOP = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "AGENTS.md": "agents.md",
    "examples/README.md": "examples.md",
    "bench/README.md": "bench.md",
}
"""Pages outside of docs/, and where the site has them."""
SECTIONS = {
    "Start": ("readme.md", "installation.md", "examples.md", "presets.md", "configuration.md"),
    "Your own": (
        *("change-a-loss.md", "add-a-hook.md", "add-a-metric.md", "add-an-algorithm.md", "add-a-buffer-view.md"),
        *("environments.md", "wrappers.md", "networks.md", "buffers.md", "callbacks.md", "python.md"),
    ),
    "Algorithms": (
        "dreamer.md",
        "tdmpc.md",
        "world-models.md",
        "flash-sac.md",
        "evolution.md",
        "datasets.md",
        "learning-from-data.md",
        "robots.md",
        "viewer.md",
    ),
    "Runs": (
        *("runs.md", "control.md", "ui.md", "inspect.md", "play.md", "reports.md", "verify.md", "export.md", "publishing.md"),
        *("sweeps.md", "launching.md", "distributed.md", "performance.md"),
    ),
    "Watching": ("metrics.md", "loggers.md", "monitoring.md", "it-does-not-learn.md", "common-faults.md", "faults.md"),
    "Results": ("results/",),
    "Reference": ("reference/",),
    "The code": ("architecture.md", "contributing.md", "security.md", "changelog.md", "agents.md", "bench.md", "maintaining/"),
}
TITLES = {"readme.md": {"The first ten minutes": "readme.md"}}
"""Of pages whose own would say nothing in a list."""
REFERENCE = {
    "etude.api": "Everything from Python",
    "etude.workflows.base": "Algorithms: what a workflow is",
    "etude.acting.policy": "Policies: who acts",
    "etude.environments.vector": "Vector environments",
    "etude.environments.wrappers.transform": "Wrappers",
    "etude.components.networks.spec": "Networks that an algorithm asks for",
    "etude.components.distributions": "Distributions of actions",
    "etude.components.returns": "Returns and advantages",
    "etude.components.normalizers": "Normalisers",
    "etude.components.value_functions": "Value functions",
    "etude.learning.update": "What an update computes",
    "etude.buffers.base": "Buffers",
    "etude.datasets.dataset": "Datasets: reading",
    "etude.datasets.writer": "Datasets: writing",
    "etude.config.schema": "The config",
    "etude.config.schedules": "Schedules",
    "etude.config.registry": "Names of parts",
    "etude.orchestration.callbacks": "Callbacks",
    "etude.runs.run": "Runs on disk",
    "etude.runs.saved_checkpoint": "Checkpoints on disk",
    "etude.testing": "Checks of an algorithm of your own",
    "etude.deploy.act": "Acting by exported files",
    "etude.tuning.functions": "Searches over functions",
    "etude.errors": "Errors",
}
_FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def lay_out(folder: Path) -> None:
    """Write every page of the site into `folder`, with links between them as the site has them."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for source, target in AT_THE_TOP.items():
        shutil.copyfile(ROOT / source, folder / target)
    (folder / WORKER).parent.mkdir()
    shutil.copyfile(Path(__file__).with_name("worker_in_a_frame.js"), folder / WORKER)
    places = {ROOT / source: target for source, target in AT_THE_TOP.items()}
    places |= {path: path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*") if path.is_file()}
    for source, target in places.items():
        if source.suffix == ".md":
            text = (folder / target).read_text(encoding="utf-8")
            (folder / target).write_text(_relinked(text, source, target, places), encoding="utf-8")
    (folder / "reference").mkdir()
    for module, title in REFERENCE.items():
        page = f"# {title}\n\n::: {module}\n"
        (folder / "reference" / f"{module.removeprefix('etude.')}.md").write_text(page, encoding="utf-8")


def _relinked(text: str, source: Path, target: str, places: dict[Path, str]) -> str:
    """Return a page with links to where the site has what they name; what it does not have is text."""

    def link(found: re.Match[str]) -> str:
        mark, label, address = found.groups()
        if re.match(r"\w+:", address) or address.startswith("#"):
            return found[0]
        name, hash_mark, anchor = address.partition("#")
        there = places.get(Path(os.path.normpath(source.parent / name)))
        if there is None:
            return label
        return f"{mark}[{label}]({os.path.relpath(there, Path(target).parent)}{hash_mark}{anchor})"

    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in _FENCED.split(text))


def navigation(folder: Path) -> list[dict[str, object]]:
    """Return the sections and their pages; those that stand in none of them come last."""
    found: list[dict[str, object]] = [{"Home": "index.md"}]
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")} - {"index.md"}
    for section, names in SECTIONS.items():
        pages = [
            page for name in names for page in (sorted(p for p in left if p.startswith(name)) if name[-1] == "/" else [name])
        ]
        if section == "Reference":
            pages = [f"reference/{module.removeprefix('etude.')}.md" for module in REFERENCE]
        left -= set(pages)
        found.append({section: [TITLES.get(page, page) for page in pages]})
    return [*found, {"More": sorted(left)}] if left else found


def settings(folder: Path, out: Path) -> dict[str, object]:
    """Return what MkDocs is told."""
    description = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["description"]
    handlers = {
        "python": {
            "paths": [str(ROOT / "src")],
            "options": {
                "show_root_heading": False,
                "show_source": False,
                "members_order": "source",
                "docstring_style": "numpy",
                "separate_signature": True,
                "show_signature_annotations": True,
                "heading_level": 2,
                "filters": ["!^_"],
            },
        }
    }
    theme = {
        "name": "material",
        "font": False,  # those of the reader's machine: none is fetched
        "features": ["navigation.sections", "navigation.top", "search.highlight", "content.code.copy"],
        "palette": [
            {"media": "(prefers-color-scheme: light)", "scheme": "default", "primary": "indigo"},
            {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "primary": "indigo"},
        ],
    }
    return {
        "site_name": NAME,
        "site_description": description,
        "docs_dir": str(folder),
        "site_dir": str(out),
        "use_directory_urls": False,
        "theme": theme,
        "extra": {"polyfills": [WORKER]},
        "plugins": ["offline", "search", {"mkdocstrings": {"handlers": handlers, "default_handler": "python"}}],
        "markdown_extensions": [
            *("tables", "attr_list", "pymdownx.superfences", "sane_lists"),
            {"pymdownx.highlight": {"use_pygments": True}},
            {"toc": {"permalink": True}},
        ],
        "validation": {
            "nav": {"omitted_files": "warn", "not_found": "warn"},
            "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn", "unrecognized_links": "warn"},
        },
        "nav": navigation(folder),
    }


def build(out: Path) -> int:
    """Build the site; returns the exit code, 1 for any warning."""
    work = out.with_name(f"{out.name}-pages")
    lay_out(work / "docs")
    config = work / "mkdocs.yml"
    config.write_text(yaml.safe_dump(settings((work / "docs").absolute(), out.absolute()), sort_keys=False), encoding="utf-8")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "-f", str(config)]
    return subprocess.run(words, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}).returncode


def main() -> None:
    """Build into the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    raise SystemExit(build(parser.parse_args().out))


if __name__ == "__main__":
    main()
