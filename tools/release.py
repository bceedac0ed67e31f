"""Build a release and prove it: `python -m tools.release dist` tries the wheel in an empty environment.

The environment is made by the Python that runs this (or `--python`), has the exact versions of constraints.txt and nothing
else, and does the first ten minutes of the README in an empty folder. `--extras` has pip resolve each extra on its own,
installing nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEN_MINUTES = (
    "train CartPole-v1:ppo --name first training.total_steps=20000",
    "resume @last training.total_steps=24000",
    "evaluate @last --episodes 100",
    "runs list --filter algorithm=ppo --sort eval/return",
    "runs show @last",
    "verify @last",
    "dataset record first --episodes 20 --name demonstrations",
    "train CartPole-v1:bc buffers.data.dataset=demonstrations algorithm.updates=500",
    "export first --format torchscript --replay 4",
    "publish first --episodes 20 --out handed-over",
)
"""Of the README, what the core alone can do."""


def versions() -> dict[str, str]:
    """Return the version as each file has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    found = {"pyproject.toml": project}
    for name, pattern in (
        ("src/etude/__init__.py", r'^__version__ = "(.+)"$'),
        ("CITATION.cff", r"^version: (.+)$"),
        ("CHANGELOG.md", r"^## \[(.+?)\]"),
    ):
        match = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
        found[name] = match[1] if match else "none"
    return found


def build(folder: Path) -> Path:
    """Build sdist and wheel, and return the wheel."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    return max(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime)


def tried(wheel: Path, python: str) -> list[str]:
    """Install the wheel into an empty environment and do the ten minutes there; returns what went wrong."""
    problems = []
    with tempfile.TemporaryDirectory(prefix="etude-release-") as folder:
        place = Path(folder)
        subprocess.run([python, "-m", "venv", str(place / "env")], check=True)
        pip = [str(place / "env/bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel.absolute())], check=True)
        (place / "work").mkdir()
        etude = place / "env/bin/etude"
        for words in TEN_MINUTES:
            code = subprocess.run([str(etude), *words.split()], cwd=place / "work", check=False).returncode
            if code:
                problems.append(f"etude {words}: exit code {code}")
        problems += _handed_over(etude, place / "work")
    return problems


def _handed_over(etude: Path, work: Path) -> list[str]:
    """Whether the published folder earns here what it says."""
    words = ["evaluate", "handed-over", "--episodes", "20", "--json"]
    done = subprocess.run([str(etude), *words], cwd=work, check=False, capture_output=True, text=True)
    if done.returncode:
        return [f"etude {' '.join(words)}: {done.stderr.strip().splitlines()[-1]}"]
    said = json.loads((work / "handed-over/evaluation.json").read_text())
    found = json.loads(done.stdout)["modes"][said["mode"]]["returns"]
    return [] if found == said["returns"] else ["the published folder earns something else than it says"]


def unresolved(python: str) -> list[str]:
    """Return the extras that pip finds no versions for, each asked for by itself."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    problems = []
    for name in extras:
        words = [python, "-m", "pip", "install", "--quiet", "--dry-run", f"{ROOT}[{name}]"]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        print(f"  {name}: {'resolved' if done.returncode == 0 else 'not resolved'}")
        if done.returncode:
            problems.append(f"[{name}]: {done.stderr.strip().splitlines()[-1]}")
    return problems


def main() -> None:
    """Build, try, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", default=sys.executable, help="of the empty environment")
    parser.add_argument("--extras", action="store_true")
    words = parser.parse_args()
    problems = [f"versions differ: {versions()}"] if len(set(versions().values())) > 1 else []
    problems += unresolved(words.python) if words.extras else tried(build(words.out), words.python)
    for problem in problems:
        print(problem, file=sys.stderr)
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
