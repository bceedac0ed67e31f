"""`--processes`: starts the ranks of one training on this machine, watches over them, and ends all with the first that dies.

    this process ──┬─ rank 0   owns the terminal: logs, evaluates, saves
                   ├─ rank 1   what it prints goes to a file, and is shown if it fails
                   └─ …

Each rank is the same command again, told its place by the variables that torchrun sets. They meet over a file, so that no port
has to be free. A signal goes to the first rank, which saves and tells the others to stop. A rank that dies is told to the
others, by whom and why; those that don't end by themselves within seconds are killed. The run is as it was last saved.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from etude.compute.joining import STORE
from etude.compute.world import RankLostError
from etude.errors import EtudeError
from etude.runs.run import Run
from etude.training.rank_link import PARENT
from etude.training.run_failures import goes_on

LOST = RankLostError.exit_code
POLL_S = 0.05
GRACE_S = 10.0
"""How long the first rank may take to say why a run failed; stuck in a collective on a GPU it can't."""
OTHERS_GRACE_S = 3.0
_LAST_LINES = 40


class RanksFailedError(EtudeError):
    """A rank failed, and all were ended."""


@dataclass
class Rank:
    """One of the processes, as its parent sees it."""

    number: int
    process: subprocess.Popen[bytes]
    link: socket.socket
    errors: Path | None
    """What it prints, but for the first."""
    code: int | None = None

    @property
    def is_guilty(self) -> bool:
        """Whether it ended in a way that ends the others."""
        return self.code is not None and self.code not in (0, LOST, 130)

    def how_it_ended(self) -> str:
        """Return who it is and what became of it."""
        assert self.code is not None
        if self.code < 0:
            name = signal.Signals(-self.code).name
            how = " (someone killed it, or the system did for its memory)" if name == "SIGKILL" else ""
            return f"rank {self.number} was killed by {name}{how}"
        text = self._complaint()
        return f"rank {self.number} failed with exit code {self.code}" if not text else f"rank {self.number}: {text}"

    def _complaint(self) -> str:
        if self.errors is None:
            return ""
        lines = self.errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_LAST_LINES:]
        return "\n".join(lines).removeprefix("etude: ")


class Ranks:
    """Runs one command in several processes that train together."""

    def __init__(self, arguments: Sequence[str], count: int) -> None:
        """`arguments` are what follows `etude`."""
        self.arguments, self.count = [*arguments], count
        self.members: list[Rank] = []
        self._run = b""
        self._asked: list[int] = []
        self._killed = False

    def train(self) -> int:
        """Run them to their end, and return the exit code of the whole."""
        with tempfile.TemporaryDirectory(prefix="etude-ranks-") as folder, self._signals():
            try:
                for number in range(self.count):
                    self.members.append(self._start(number, Path(folder)))
                guilty = self._watch()
            finally:
                self._end_all()
            return self._outcome(guilty)

    def _start(self, number: int, folder: Path) -> Rank:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        errors = None if number == 0 else folder / f"{number}.txt"
        place = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": self.count, "LOCAL_WORLD_SIZE": self.count}
        told = {
            STORE: str(folder / "store"),
            PARENT: str(theirs.fileno()),
            **{name: str(value) for name, value in place.items()},
        }
        if sys.platform == "linux":
            told["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")  # all of them are here
        output = None if errors is None else errors.open("wb")
        try:
            # Sessions of their own: Ctrl-C reaches this process alone, which passes it on to the first.
            process = subprocess.Popen(
                [sys.executable, "-m", "etude", *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=None if output is None else subprocess.DEVNULL,
                stderr=output,
                env={**os.environ, **told},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        finally:
            theirs.close()
            if output is not None:
                output.close()
        return Rank(number, process, ours, errors)

    def _watch(self) -> Rank | None:
        """Wait for all of them; returns the one that ended the others, if one did."""
        guilty: Rank | None = None
        deadline: float | None = None
        while any(member.code is None for member in self.members):
            time.sleep(POLL_S)
            self._hear_run()
            for member in self.members:
                if member.code is None and member.process.poll() is not None:
                    member.code = member.process.returncode
                    if guilty is None and member.is_guilty:
                        guilty = member
                        self._tell(guilty.how_it_ended())
                    if deadline is None and (member.code != 0 or member.number == 0):
                        deadline = time.monotonic() + GRACE_S
            first = self.members[0]
            if deadline is not None and first.code is not None:
                deadline = min(deadline, time.monotonic() + OTHERS_GRACE_S)
            if deadline is not None and time.monotonic() > deadline and not self._is_saving(guilty):
                self._killed = self._killed or first.code is None
                self._end_all()
        return guilty

    def _is_saving(self, guilty: Rank | None) -> bool:
        """Whether the first rank ends well, and takes as long as it needs for its last save."""
        return guilty is None and self.members[0].code is None and all(member.code in (None, 0, 130) for member in self.members)

    def _outcome(self, guilty: Rank | None) -> int:
        first = self.members[0]
        assert first.code is not None
        if guilty is None or (guilty is first and first.code > 0):
            lost = next((member for member in self.members if member.code == LOST), None)
            if guilty is None and first.code <= 0 and lost is not None:
                raise RanksFailedError(f"rank {lost.number} lost the connection to the others{self._way_out()}")
            return first.code if first.code >= 0 else 1
        if self._asked and guilty.code is not None and -guilty.code in self._asked:
            return 130  # killed by what was passed on, before it could save or once more
        if guilty is not first and first.code > 0 and not self._killed:
            return guilty.code if guilty.code == 2 else first.code  # which was told why, and has said it
        raise RanksFailedError(f"{guilty.how_it_ended()}{self._way_out()}")

    def _way_out(self) -> str:
        path = self._run.decode(errors="replace").strip()
        return f"\n{goes_on(Run.open(Path(path)))}" if path else ""

    def _hear_run(self) -> None:
        with suppress(OSError):
            self._run += self.members[0].link.recv(1 << 16)

    def _tell(self, reason: str) -> None:
        for member in self.members:
            with suppress(OSError):
                member.link.sendall(reason.encode() + b"\0")

    def _end_all(self) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.process.kill()
        for member in self.members:
            member.code = member.process.wait()
            member.link.close()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def receive(number: int, frame: object) -> None:
            self._asked.append(number)
            if self.members and self.members[0].process.poll() is None:
                self.members[0].process.send_signal(number)

        asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        previous = {
            number: signal.signal(number, receive) for number in asked if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
