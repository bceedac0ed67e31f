"""What the documentation says can be done can be done."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium
import pytest
import yaml

import etude
from etude.cli import app
from etude.config.compose import compose
from etude.environments.families import register_installed
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from etude.training import child_run, ranks
from etude.verification import rerun
from etude.workflows.sampling import link
from tests.docs.following import Reader, a_draft, a_robots_run, a_run, a_run_in_a_repository, the_readers_own
from tests.docs.pages import PAGES, ROOT, arguments, blocks, name, prose
from tests.forked import fork_instead
from tests.runs_compared import train
from tools.reference import metrics as metrics_reference

# Pages whose commands are short enough to be run as they stand.
FOLLOWED = ("callbacks.md", "wrappers.md")
# Of the pages whose commands are run with small budgets: what each takes for granted at a command.
FOLLOWED_BRIEFLY: dict[str, dict[str, Callable[[Path], None]]] = {
    "README.md": {"etude train --config my.yaml": the_readers_own},
    "configuration.md": {},
    "control.md": {"etude control @last status": a_run},
    "dreamer.md": {"etude evaluate @last --episodes 100": a_run},
    "export.md": {"etude export @last": a_run, "etude export @last --check-walk 10": a_robots_run},
    "performance.md": {},
    "publishing.md": {"etude publish @last --episodes 20": a_run},
    "robots.md": {},
    "sweeps.md": {},
    "runs.md": {"etude runs list --limit 10": a_run, "etude runs tag @last paper 'figure 2' --remove draft": a_draft},
    "ui.md": {"etude ui": a_run},
    "world-models.md": {"etude evaluate @last --episodes 100": a_run},
    "verify.md": {"etude verify @last": a_run, "etude runs checkout @last": a_run_in_a_repository},
}
# What compiles, starts processes or draws many pictures is left to slow tests, the README's robot to robots.md; what needs a
# training or a client of its own, to the tests of `training` and `mcp_server`.
LATER = (
    "--eager-vs-compiled|--mode on|--resume-at|verify @last --steps|--events|train CartPole-v1:dreamer"
    "|train CartPoleNoVelocity-v0:world_models|^etude control @last (?!status)|^etude mcp"
    # W&B's package and server are no part of this.
    "|etude wandb|--init-from wandb:"
)
# Neither: the tutorial has a test of its own, and installing is done by `make`.
TUTORIAL, INSTALLATION = "add-an-algorithm.md", "installation.md"


def _commands(program: str) -> list[tuple[str, str]]:
    return [
        (name(page), command)
        for page in PAGES
        for block in blocks(page)
        for command in block.commands
        if command.split()[0] == program
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in, as a reader would; what is registered there is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name_of_display in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name_of_display, raising=False)  # no window opens while testing
    for starts_processes in (rerun, child_run, ranks, link):
        fork_instead(starts_processes, monkeypatch)
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)  # `etude ui` serves until Ctrl-C
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    register_installed()  # what importing a package registers is not the page's, and would not come back
    known = dict(gymnasium.registry)
    yield tmp_path
    for environment in set(gymnasium.registry) - set(known):
        del gymnasium.registry[environment]


@pytest.mark.parametrize(("page", "command"), _commands("etude"))
def test_every_command_has_its_verb_and_its_flags(page: str, command: str) -> None:
    words = arguments(command)[1:]
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    if words[0].startswith("-"):
        return  # `etude --version`
    settings = [str(value) for value in bound.args if "=" in str(value)]
    named = (str(value) for value in bound.args if ":" in str(value) and words[0] != "check")  # which takes environments
    spec = next(named, "CartPole-v1:ppo")
    is_readers_own = "." in spec.rpartition(":")[2] or spec.count(":") > 1
    is_readers_own = is_readers_own or any(re.search(r"=[a-z_]+\.[A-Z]\w*$", setting) for setting in settings)
    if settings and not is_readers_own:
        compose(spec, words=settings)  # every setting in it exists


@pytest.mark.parametrize(("page", "command"), _commands("make"))
def test_every_make_target_exists(page: str, command: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(arguments(command)[1:]) <= set(targets)


def test_every_extra_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brackets = [found for page in PAGES for found in re.findall(r"\.\[([a-z,]+)\]", page.read_text())]
    named = {extra for found in brackets for extra in found.split(",")}
    assert named
    assert named <= set(project["optional-dependencies"])
    table = set(re.findall(r"^\| `(\w+)` \| .* \| .* \|$", (ROOT / "docs/installation.md").read_text(), re.MULTILINE))
    assert table == set(project["optional-dependencies"])


def _runs_something(page: Path) -> bool:
    return page.name not in (TUTORIAL, INSTALLATION) and any(
        block.is_script or block.title or any(command.startswith("etude ") for command in block.commands)
        for block in blocks(page)
    )


@pytest.mark.parametrize("page", [page for page in PAGES if _runs_something(page)], ids=name)
def test_files_scripts_and_commands_run(page: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reader = Reader(folder, brief=page.name not in FOLLOWED)
    robots = r"|quadruped|trials @last|--video walk" if page.name == "README.md" else ""
    reader.follow(page, given=FOLLOWED_BRIEFLY.get(page.name), but=LATER + robots)
    if page.name == "callbacks.md":
        first = Run.list(folder / "runs")[-1]
        assert first.status == "stopped"
        assert first.record["stop_reason"] == "eval/return_mean has not improved for 2 evaluations"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/dreamer.md", "docs/performance.md", "docs/robots.md", "docs/verify.md", "docs/world-models.md"],
)
def test_what_takes_longer_on_a_page_runs_too(page: str, folder: Path) -> None:
    Reader(folder, brief=True).follow(ROOT / page, given=FOLLOWED_BRIEFLY[Path(page).name])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", ["README.md", "docs/environments.md", "docs/networks.md", "docs/play.md"])
def test_a_page_can_be_followed_word_for_word(page: str, folder: Path) -> None:
    Reader(folder, brief=False).follow(ROOT / page, given=FOLLOWED_BRIEFLY.get(Path(page).name))


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose(page)):
        if target.startswith("https://"):
            continue
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), f"{name(page)} links to {target}"
        assert place.is_relative_to(ROOT), target
        if anchor:
            assert anchor in _anchors(place), f"{name(page)} links to {target}#{anchor}"


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs/index.md").read_text()
    for page in ROOT.glob("docs/*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, page.name


def _is_documented(metric: str, documented: set[str]) -> bool:
    by_phase = f"{metric.rpartition('/')[0]}/PHASE"
    named = {metric.replace("/sample_", "/").replace("/mode_", "/"), by_phase}
    return bool(named & documented) or metric.startswith("time/share/")


def test_every_metric_is_documented_and_every_documented_metric_of_ppo_exists(tmp_path: Path) -> None:
    cartpole = (
        *("training.total_steps=1024", "algorithm.target_kl=0.01", "algorithm.epochs=2"),
        "environment.wrappers=[{id: reward_scale, training_only: false}]",
    )
    pendulum = (
        *("training.total_steps=1024", "algorithm.rollout_steps=64", "algorithm.epochs=1", "evaluation.mode=both"),
        *("algorithm.critic_learning_rate=1e-3", "evaluation.episodes=2"),
    )
    runs = [train("CartPole-v1:ppo", tmp_path, *cartpole), train("Pendulum-v1:ppo", tmp_path, *pendulum)]
    logged = {metric for run in runs for row in read_rows(run.metrics_path) for metric in row}
    by_hand, _, rest = prose(ROOT / "docs/metrics.md").partition(metrics_reference.BEGIN)
    by_hand += rest.partition(metrics_reference.END)[2]  # the rules speak of every algorithm's
    documented = set(re.findall(r"`(\w+(?:/\w+)*)`", by_hand))
    assert {metric for metric in logged if not _is_documented(metric, documented)} == set()
    assert {metric for metric in documented if metric.startswith(("train/", "hp/", "collect/"))} <= logged
    assert "eval/sample_return_mean" in logged


def test_the_changelog_has_an_entry_for_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version == etude.__version__
    entry = rf"^## \[{re.escape(version)}\] - (unreleased|\d{{4}}-\d\d-\d\d)$"
    assert re.search(entry, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_citation_is_valid_and_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == etude.__version__
    assert citation["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
