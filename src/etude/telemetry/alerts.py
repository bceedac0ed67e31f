"""What fails beside a run and does not stop it: said once, not at every try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from etude.errors import EtudeError


class Alerts:
    """Turns failures of what a run can do without into one line each, given to `say`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: set[str] = set()

    @contextmanager
    def about(self, what: str, consequence: str) -> Iterator[None]:
        """Within, a failure to write `what` is reported together with its consequence, and nothing else happens."""
        try:
            yield
        except (OSError, EtudeError) as error:
            said = str(error)
            if isinstance(error, OSError):
                said = f"{what} can't be written: {error.strerror or said or type(error).__name__}"
            self.tell(what, f"{said}; {consequence}")

    def tell(self, what: str, text: str) -> None:
        """Say it, unless something about `what` was said already."""
        if what not in self._said:
            self._said.add(what)
            self._say(text)
