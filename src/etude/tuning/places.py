"""Where a sweep lies: a folder beside its runs, with its settings, its journal, and what its runs complained of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from etude.config.validate import to_plain, to_yaml
from etude.errors import ConfigError, UserError, did_you_mean
from etude.files.atomic import write_text_atomic
from etude.runs.lock import exclusive_lock
from etude.runs.places import runs_option
from etude.tuning.journal import read_events
from etude.tuning.plan import Plan, word
from etude.tuning.searchers import GridSearch, make_searcher
from etude.tuning.space import Space
from etude.tuning.spec import SweepConfig, read_sweep
from etude.tuning.study import Study, differing

FOLDER = "sweeps"


class SweepFolder:
    """The folder of one sweep."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name, self.path = root, name, root / FOLDER / name
        self.settings, self.journal, self.logs = self.path / "sweep.yaml", self.path / "journal.jsonl", self.path / "logs"

    @property
    def exists(self) -> bool:
        """Whether there is such a sweep."""
        return self.settings.is_file()

    def read(self) -> SweepConfig:
        """Return its settings."""
        if not self.exists:
            names = names_of_sweeps(self.root)
            known = f" (there are: {', '.join(names)})" if names else ""
            raise UserError(
                f"sweep '{self.name}': there is none in {self.root / FOLDER}{did_you_mean(self.name, names)}{known}"
            )
        return read_sweep(self.settings)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold it: one process at a time. A sweep that was refused before it began leaves nothing."""
        lock, new = self.path / ".lock", [each for each in (self.path, self.path.parent, self.root) if not each.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(lock, f"sweep {self.name}"):
            try:
                yield
            finally:
                if new and [*self.path.iterdir()] == [lock]:
                    lock.unlink()
                    for folder in new:
                        with suppress(OSError):  # others have theirs there by now
                            folder.rmdir()

    def open(self, sweep: SweepConfig, plan: Plan) -> Study:
        """Begin a sweep, or go on with it; one of the same name that was another is refused."""
        self.refuse_change(sweep)
        if not self._has_begun(read_events(self.journal)):
            self.journal.unlink(missing_ok=True)  # nothing has been asked yet: it may still become another
        study = self.study(sweep, plan)
        write_text_atomic(self.settings, f"# A sweep of Etude; `etude sweep resume {self.name}` goes on.\n{to_yaml(sweep)}")
        return study

    def refuse_change(self, sweep: SweepConfig) -> None:
        """Refuse a sweep of the same name that was another; nothing is written."""
        events = read_events(self.journal)
        if not self.exists or not self._has_begun(events):
            return
        changed = differing(events[0].get("identity", {}), _plain(sweep.identity()))
        if any(event.get("event") == "ended" for event in events) and self.read().objective != sweep.objective:
            changed.append("objective")
        if changed:
            go_on = f"etude sweep resume {self.name}{runs_option(self.root)}"
            raise UserError(
                f"sweep {self.name} was begun with other settings ({', '.join(changed)}); go on with it as it was ({go_on}), "
                "or give this one another name (--name)"
            )

    def _has_begun(self, events: Sequence[Mapping[str, Any]]) -> bool:
        return not {event.get("event") for event in events} <= {"search"}

    def study(self, sweep: SweepConfig, plan: Plan, *, remembers: bool = True) -> Study:
        """Return its study; without `remembers` one that begins anew and is forgotten."""
        return Study(
            plan.space,
            make_searcher(sweep, plan.space),
            sweep.directions,
            seed=sweep.seed,
            journal=self.journal if remembers else None,
            identity=_plain(sweep.identity()),
            others=plan.look_up,
        )

    def looked_at(self) -> tuple[Plan, Study]:
        """Return it as it stands, also while it runs: nothing can be asked of this study, and nothing is written."""
        sweep = self.read()
        plan = Plan(sweep)
        return plan, Study(plan.space, GridSearch(Space()), sweep.directions, seed=sweep.seed, events=read_events(self.journal))

    def staged(self, sweep: SweepConfig) -> SweepConfig:
        """Return a sweep that comes after another with that one's best values among its words, as they are now."""
        if sweep.after is None:
            return sweep
        if sweep.after == self.name:
            raise ConfigError(f"after={sweep.after}: a sweep can't come after itself")
        best = SweepFolder(self.root, sweep.after).looked_at()[1].best(1)
        if not best:
            raise UserError(f"after={sweep.after}: no trial of that sweep is complete yet")
        words = tuple(word(key, value) for key, value in best[0].settings.items())
        return replace(sweep, after=None, base=replace(sweep.base, words=(*sweep.base.words, *words)))


def names_of_sweeps(root: Path) -> list[str]:
    """Return the sweeps beside these runs, by name."""
    return sorted(path.parent.name for path in (root / FOLDER).glob("*/sweep.yaml"))


def _plain(value: Any) -> Any:
    """As JSON reads it back: tuples are lists."""
    plain = to_plain(value)
    return {key: _plain(item) for key, item in plain.items()} if isinstance(plain, dict) else plain
