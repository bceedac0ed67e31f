"""Answers what a user asks of a run while it trains, by a key or from outside: save, evaluate, video, pause, stop, set.

    a cycle ends ──► look()      keys and requests, a clock read apart from that; evaluations and videos at once; pauses here
                 ──► save        if one was asked for, or a change needs one
                 ──► go_on()     changes come into force; the next cycle begins

Nothing here changes what is learnt but `set`, which is recorded. Evaluations and videos have seeds of their own, from the
counters, and go into logs/events.jsonl and videos/, not into the rows of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from etude.compute.random_streams import global_generators_kept
from etude.config.registry import callbacks
from etude.config.schema import Config
from etude.errors import EtudeError, UserError
from etude.orchestration.orchestrator import Orchestrator
from etude.runs.process import this_process
from etude.runs.requests import Inbox, Request, note_event
from etude.runs.run import Run
from etude.telemetry.alerts import Alerts
from etude.training import assembly
from etude.training.evaluation import build_evaluator
from etude.training.keyboard import Keyboard
from etude.training.live_edits import apply_edit, check_edit, one_evaluation
from etude.training.status_report import StatusReport

KEYS = {"s": "save", "e": "evaluate", "v": "video", "p": "pause", "q": "stop"}
HELP = "keys: s save · e evaluate · v video · p pause or go on · q save and stop · ? help"
TICK_S = 0.1
"""Between looks at the keyboard: what feels immediate."""
REQUESTS_EVERY_S = 0.5
_BY_KEY = ""


class Attendant:
    """Stands beside the loop of one sitting."""

    def __init__(
        self,
        run: Run,
        config: Config,
        orchestrator: Orchestrator,
        *,
        say: Callable[..., None],
        alerts: Alerts,
        status: StatusReport,
        keyboard: Keyboard | None = None,
        changed: Callable[[Config], None] = lambda config: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say` is given a line, and `error=True` with one that refuses; `changed` hears of settings that came into force."""
        self._run, self._config, self._loop, self._say, self._alerts = run, config, orchestrator, say, alerts
        self._status, self._keyboard, self._changed, self._clock = status, keyboard, changed, clock
        self._inbox: Inbox | None = None
        with alerts.about("requests/", "nothing can be asked of this run from outside"):
            self._inbox = Inbox(run, this_process())
        self._next = self._next_requests = 0.0
        self._is_paused = False
        self._saves: list[Request] = []
        self._edits: list[Request] = []

    # ---- what the loop calls ------------------------------------------------------------------------------------------------

    def look(self) -> bool:
        """See what was asked since the last boundary; True for something that needs a save here."""
        if self._clock() >= self._next:
            with global_generators_kept():
                self._attend()
        return bool(self._saves or self._edits)

    def go_on(self) -> None:
        """Answer those who asked for the save, and let changes come into force."""
        if self._saves or self._edits:
            with global_generators_kept():
                self._after_save()

    def end(self) -> None:
        """Answer whoever is left when the run ends."""
        was_saved = self._loop.was_interrupted
        for request in self._saves:
            self._answer(request, "saved" if was_saved else "the run ended before it was saved here", done=was_saved)
        for request in self._edits:
            self._answer(request, f"{' '.join(request.words)}: the run ended first; resume it with that", done=False)
        self._saves.clear()
        self._edits.clear()

    def _after_save(self) -> None:
        for request in self._saves:
            self._answer(request, "saved")
        self._saves.clear()
        for request in self._edits:
            with self._refusing(request):
                self._change(request)
        self._edits.clear()

    def _change(self, request: Request) -> None:
        edit = check_edit(request.words, self._config, self._run, self._loop)  # one before it may have changed the same
        apply_edit(edit, self._config, self._run, self._loop)
        self._config = edit.config
        self._changed(edit.config)
        self._answer(request, f"changed {edit.told}", changes=list(edit.changes))

    def _attend(self) -> None:
        self._take_what_came()
        if self._is_paused:
            self._wait()
        self._status.refresh()
        self._next = self._clock() + TICK_S

    def _take_what_came(self) -> None:
        for key in self._keyboard.pressed() if self._keyboard is not None else "":
            self._press(key)
        if self._inbox is not None and self._clock() >= self._next_requests:
            with self._alerts.about("requests/", "looked at again later"):
                for request in self._inbox.take():
                    self._take(request)
            self._next_requests = self._clock() + REQUESTS_EVERY_S

    def _wait(self) -> None:
        """Stand still until somebody says to go on, or to stop; the seconds count for nothing."""
        began = self._clock()
        self._status.refresh("paused", at_once=True)
        while self._is_paused and not self._loop.is_asked_to_stop:
            if self._saves or self._edits:
                self._loop.save()
                self._after_save()
            time.sleep(TICK_S)
            self._status.refresh("paused")
            self._take_what_came()
        self._loop.stopwatch.leave_out(self._clock() - began)

    # ---- what is asked ------------------------------------------------------------------------------------------------------

    def _press(self, key: str) -> None:
        action = KEYS.get(key.lower())
        if action == "pause" and self._is_paused:
            action = "continue"
        if action is not None:
            self._take(Request(_BY_KEY, action))
        elif key in "?h":
            self._say(HELP)

    def _take(self, request: Request) -> None:
        with self._refusing(request):
            getattr(self, f"_{request.action}")(request)

    def _save(self, request: Request) -> None:
        self._saves.append(request)

    def _stop(self, request: Request) -> None:
        self._is_paused = False
        self._loop.interrupt("stopped by a key" if request.id == _BY_KEY else "stopped from outside")
        self._answer(request, "saves itself and stops")

    def _pause(self, request: Request) -> None:
        if self._loop.world.size > 1:
            raise UserError("pause: the processes of this run don't wait long for each other; stop and resume it instead")
        self._is_paused = True
        self._answer(request, "paused; p or `etude control RUN continue` goes on, q stops")

    def _continue(self, request: Request) -> None:
        was, self._is_paused = self._is_paused, False
        self._answer(request, "goes on" if was else "was not paused")

    def _evaluate(self, request: Request) -> None:
        self._say("evaluating …")
        loop, counters = self._loop, self._loop.counters
        config = loop.workflow.context.config
        own = None
        if loop.evaluator is None:
            device, phases = loop.workflow.context.device, loop.scheduler.phases
            own = build_evaluator(one_evaluation(config), device, phases, captured=assembly.acts_captured(config))
        evaluator = loop.evaluator or own
        assert evaluator is not None
        try:
            with loop.stopwatch.timed("evaluate"):
                metrics = evaluator.evaluate(loop.workflow.policy(), counters.env_steps, counters.updates)
        finally:
            if own is not None:
                own.close()
        mean, episodes = metrics.get("eval/return_mean"), metrics.get("eval/episodes", 0.0)
        spread = metrics.get("eval/return_std", 0.0)
        said = "no episode ended in time" if mean is None else f"return {mean:.5g} ± {spread:.3g} over {episodes:.0f} episodes"
        self._answer(request, f"evaluated: {said}", metrics=metrics)

    def _video(self, request: Request) -> None:
        recording: Any = callbacks.resolve("video")
        recorder = recording(recording.Config())
        self._say("recording a video …")
        with self._loop.stopwatch.timed("video"):
            path = recorder.record(self._loop.progress())
        self._answer(request, f"recorded videos/{path.name}", video=path.name)

    def _set(self, request: Request) -> None:
        check_edit(request.words, self._config, self._run, self._loop)  # what is refused needs no save
        self._edits.append(request)

    # ---- what is said of it -------------------------------------------------------------------------------------------------

    @contextmanager
    def _refusing(self, request: Request) -> Iterator[None]:
        """Within, what can't be done is told to whoever asked, and the run goes on."""
        try:
            yield
        except (OSError, EtudeError) as error:
            self._answer(request, str(error).partition("\n")[0], done=False)

    def _answer(self, request: Request, said: str, *, done: bool = True, **facts: object) -> None:
        self._tell(said, error=not done)
        asked: dict[str, object] = {"by": "key"} if request.id == _BY_KEY else {"by": "request", "id": request.id}
        if request.words:
            asked["words"] = list(request.words)
        with self._alerts.about("logs/events.jsonl", "what is asked of this run is not noted"):
            note_event(self._run, request.action, done=done, said=said, at=self._loop.counters.as_dict(), **asked, **facts)

    def _tell(self, said: str, *, error: bool = False) -> None:
        self._say(f"{said} (at {self._loop.counters.env_steps:,} environment steps)", error=error)
