"""Git, asked in a way that leaves the user's repository as it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# Set inside git hooks and by some tools; they would make git answer for another repository than the folder's.
_REDIRECTIONS = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
    *("GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_CONFIG_PARAMETERS"),
)
_LONGEST_COMPLAINT = 500


class GitError(Exception):
    """Git said no; the text is what it said."""


def run_git(cwd: Path, *arguments: str, timeout_s: float, output: int | None = None) -> bytes:
    """Run git without touching the index; returns its output, or nothing if that goes to the descriptor `output`."""
    environment = {name: value for name, value in os.environ.items() if name not in _REDIRECTIONS}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if output is None else output,
            stderr=subprocess.PIPE,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        verb = next(word for word in arguments if word != "-c" and "=" not in word)
        raise GitError(f"git {verb} took longer than {timeout_s:g} s") from error
    except OSError as error:
        raise GitError(f"git: {error.strerror}") from error
    if done.returncode != 0:
        raise GitError(os.fsdecode(done.stderr).strip()[:_LONGEST_COMPLAINT])
    return b"" if output is not None else done.stdout
