"""The parts that bash scripts of several backends share: every word of a task is quoted, once, here."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from etude.errors import UserError


def task_table(tasks: Sequence[Sequence[str]], number: str) -> list[str]:
    """Return the lines that set $@ to the words of the task whose number the shell expression `number` gives."""
    lines = [f"case {number} in"]
    for index, words in enumerate(tasks):
        lines += [f"{index})", f"  set -- {shlex.join(words)} ;;"]
    return [*lines, "*)", f'  echo "no task "{number} >&2; exit 2 ;;', "esac"]


def one_line(text: str, option: str) -> str:
    """Return a line that goes into a script verbatim; a second line in it would be an order of its own."""
    if "\n" in text or "\r" in text or "\0" in text:
        raise UserError(f"{option}: one line each; repeat the option for more")
    return text


def verbatim(lines: Iterable[str], option: str) -> list[str]:
    """Return the user's own lines, as they are."""
    return [one_line(line, option) for line in lines]


def check_words(tasks: Iterable[Iterable[str]]) -> None:
    """Refuse words that no command line can carry."""
    for word in (word for task in tasks for word in task):
        if "\0" in word:
            raise UserError(f"{word!r}: a NUL byte can't be part of a command line")
