"""A reader of a page: writes its files, runs its scripts and its commands, in order and in one folder."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

from etude.cli import run as etude
from tests.docs.pages import ROOT, Block, arguments, blocks
from tests.runs.repositories import make_repository
from tests.runs_compared import stopped_after

INTERRUPTED = 130

# For a reader with little time: what an option says, and what is said where a command leaves it open.
_BRIEF_OPTIONS = {
    "--check-walk": "0.4",
    "--episodes": "2",
    "--iterations": "2",
    "--max-steps": "5",
    "--num-envs": "4",
    "--profile": "1",
    "--record-length": "10",
    "--robots": "4",
    "--seconds": "0.4",
    "--steps": "256",
    "--total-steps": "768",
    "--trials": "3",
}
_BRIEF_TRAINING = {"training.total_steps": "768", "evaluation.episodes": "2", "evaluation.every_steps": "256"}
_BRIEF_ROBOTS = {
    "training.total_steps": "192",
    "evaluation.episodes": "1",
    "environment.num_envs": "4",
    "environment.max_episode_steps": "20",
    "experiment.device": "cpu",
}

_BRIEF_PLANNER = {
    "training.total_steps": "96",
    "algorithm.learning_starts": "64",
    "algorithm.pretrain": "4",
    "evaluation.episodes": "1",
    "environment.max_episode_steps": "20",
}
_BRIEF_CHUNKS = {"algorithm.updates": "8", "evaluation.episodes": "2"}
_BRIEF = {"quadruped": _BRIEF_ROBOTS, "Pendulum-v1:tdmpc": _BRIEF_PLANNER, "TwoWays-v0:diffusion_policy": _BRIEF_CHUNKS}
"""By how the words of what is trained begin; all others have `_BRIEF_TRAINING`."""


class Reader:
    """Follows a page in `folder`, which is the current one; `brief` keeps every training and measurement tiny."""

    def __init__(self, folder: Path, *, brief: bool) -> None:
        self.folder, self.brief = folder, brief
        self.ran: list[str] = []

    def follow(self, page: Path, *, given: Mapping[str, Callable[[Path], None]] | None = None, but: str | None = None) -> None:
        """Do what the page says; `given` is done before a command, and commands that match the pattern `but` are left out."""
        found = blocks(page)
        every = [command for block in found for command in block.commands]
        for block in found:
            self._read(block)
            for command in block.commands:
                if command.split()[0] in ("make", "pip") or (but and re.search(but, command)):
                    continue
                if given and command in given:
                    given[command](self.folder)
                self._do(command, stops=_is_resumed(every[every.index(command) :]))
                self.ran.append(command)

    def _read(self, block: Block) -> None:
        if block.title:
            (self.folder / block.title).write_text(block.text)
            if block.language == "python":
                importlib.import_module(block.title.removesuffix(".py"))
        elif block.is_script:
            exec(compile(block.text, "a script of the documentation", "exec"), {"__name__": "__main__"})

    def _do(self, command: str, *, stops: bool) -> None:
        program, *words = arguments(command)
        if program == "python":
            self._run_python(words)
            return
        assert program == "etude", command
        robots = any("quadruped" in earlier for earlier in self.ran)
        for each in _briefly(words, robots=robots) if self.brief else [words]:
            with stopped_after(2) if stops else nullcontext():
                assert etude(each) == (INTERRUPTED if stops else 0), f"{command}\nas {each}"

    def _run_python(self, words: list[str]) -> None:
        """Run a program that the page has made by then; ID stands for the newest export."""
        newest = max((path for path in self.folder.glob("exports/*")), key=lambda path: path.stat().st_mtime_ns, default=None)
        words = [word.replace("exports/ID", str(newest)) for word in words]
        words = _with_options(words) if self.brief else words
        done = subprocess.run([sys.executable, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}\n{done.stderr}"


def _is_resumed(commands: list[str]) -> bool:
    """Whether the first command is a training that the page stops, by Ctrl-C, and goes on with later."""
    sittings = [command for command in commands if re.match(r"etude (train|resume)\b", command)]
    return commands[0].startswith("etude train ") and sittings[1:2] == ["etude resume @last"]


def _briefly(words: list[str], *, robots: bool) -> Iterator[list[str]]:
    verb, words = words[0], _with_options(words)
    if verb == "train":
        words = [re.sub(r"^(algorithm\.updates)=.*", r"\1=8", word) for word in words]
        for each in _seeds_apart(words):
            yield [*each, *_small_training(each)]
    elif verb == "tune" or (verb == "sweep" and words[1].endswith(".yaml")):
        few = [] if verb == "tune" or "--dry" in words else ["--n-trials", "2"]
        yield [*words, *_small_training([]), *few]
    elif verb == "resume":
        yield [re.sub(r"^(training\.total_steps)=.*", r"\1=1536", word) for word in words]
    elif verb == "trials":
        words = _with_missing(words, "--robots", "--seconds")
        yield _small_pictures(words if {"--only", "--scripts", "--crossings"} & set(words) else [*words, "--only", "forward"])
    elif verb == "play" and "--video" in words:
        words = _with_missing(words, "--max-steps", *([] if "--record-length" in words else ["--episodes"]))
        yield _small_pictures(words) if robots else words
    else:
        yield words


def _small_pictures(words: list[str]) -> list[str]:
    if "--video" not in words:
        return words
    words = words if "--render-options" in words else [*words, "--render-options", "{}"]
    place = words.index("--render-options") + 1
    return [*words[:place], json.dumps({**json.loads(words[place]), "width": 96, "height": 64}), *words[place + 1 :]]


def _with_missing(words: list[str], *names: str) -> list[str]:
    return [*words, *(word for name in names if name not in words for word in (name, _BRIEF_OPTIONS[name]))]


def _with_options(words: list[str]) -> list[str]:
    return [_BRIEF_OPTIONS.get(before, word) for before, word in zip(["", *words], words, strict=False)]


def _seeds_apart(words: list[str]) -> Iterator[list[str]]:
    """Two of several seeds, one after the other in this process; `tests/cli/test_seeds.py` has them side by side."""
    place = words.index("--seed") + 1 if "--seed" in words else None
    several = re.match(r"(\d+)[-,]", words[place]) if place else None
    if place is None or several is None:
        yield words
        return
    for seed in (int(several[1]), int(several[1]) + 1):
        yield [*words[:place], str(seed), *words[place + 1 :]]


def _small_training(words: list[str]) -> list[str]:
    small = next((_BRIEF[name] for name in _BRIEF for word in words if word.startswith(name)), _BRIEF_TRAINING)
    taken = {"training.total_steps"} if {"--total-steps", "--iterations"} & set(words) else set()
    taken |= {"environment.num_envs"} if "--num-envs" in words else set()
    return [f"{key}={value}" for key, value in small.items() if key not in taken]


# What pages take for granted.


def a_run(folder: Path) -> None:
    """A short run of CartPole."""
    assert etude(["train", "CartPole-v1:ppo", *_small_training([])]) == 0


def a_robots_run(folder: Path) -> None:
    """A robot that has hardly begun to learn."""
    assert etude(["train", "quadruped-flat:ppo", *_small_training(["quadruped"])]) == 0


def a_run_in_a_repository(folder: Path) -> None:
    """A run whose code is known to git."""
    make_repository(folder, {".gitignore": "/runs/\n", "mine.py": "GAMMA = 0.9\n"})
    a_run(folder)


def a_draft(folder: Path) -> None:
    """A run with a tag."""
    assert etude(["runs", "tag", "@last", "draft"]) == 0


def the_readers_own(folder: Path) -> None:
    """Settings, and an algorithm such as the tutorial's."""
    (folder / "my.yaml").write_text("environment: {id: CartPole-v1}\nalgorithm: ppo\nexperiment: {seed: 4}\n")
    (tutorial,) = (block for block in blocks(ROOT / "docs/add-an-algorithm.md") if block.title == "reinforce.py")
    (folder / "my_file.py").write_text(tutorial.text.replace("class Reinforce(", "class MyAlgorithm("))
