"""Alerts to people who are elsewhere: posted to a webhook, or written as an e-mail, from a thread of their own.

A training never waits for these. Alerts wait in a queue of bounded length, every call has a short timeout, nothing that a
server answers is read, no redirect is followed, and what fails several times in a row is given up with one line. Addresses with
secrets in them come from the environment, and are in no message and no file.
"""

from __future__ import annotations

import json
import os
import queue
import re
import smtplib
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from typing import Any
from urllib.parse import unquote, urlsplit

from etude.errors import UserError
from etude.files.printable import one_line
from etude.telemetry.alert_log import Transition
from etude.telemetry.monitor import told

WEBHOOK_VARIABLE, SMTP_VARIABLE = "ETUDE_ALERT_WEBHOOK", "ETUDE_SMTP"
TIMEOUT_S = 5.0
MOST_WAITING = 100
MOST_FAILURES = 3
"""In a row; then it is given up."""
_LOOKS_SECRET = 16
"""Letters of a part of a URL's path that make it a token rather than a word."""
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")

Send = Callable[[list[Transition]], None]


class Delivery:
    """Hands alerts to `send` in another thread; whatever happens there, the caller neither waits nor hears an exception."""

    def __init__(self, what: str, send: Send, on_failure: Callable[[str], None], *, patience_s: float = TIMEOUT_S) -> None:
        self._what, self._send, self._on_failure, self._patience_s = what, send, on_failure, patience_s
        self._waiting: queue.Queue[Transition | None] = queue.Queue(MOST_WAITING)
        self._failure: str | None = None  # what is to be said
        self._problem: str | None = None  # why the last try failed
        self._is_told = False
        # A daemon: a server that never answers must not keep the program from ending either.
        self._thread = threading.Thread(target=self._work, name=f"etude-{what}", daemon=True)
        self._thread.start()

    def __call__(self, line: Transition) -> None:
        """Take an alert, and return at once; where too many wait, it is left out."""
        self._say_failure()
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._failure = self._failure or "it is too slow, and alerts are left out"

    def close(self) -> None:
        """Give what waits a few seconds to go out."""
        deadline = time.monotonic() + self._patience_s
        try:
            self._waiting.put(None, timeout=self._patience_s)
        except queue.Full:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._say_failure()

    def _say_failure(self) -> None:
        # Not from the other thread: the console belongs to this one.
        if self._failure is not None and not self._is_told:
            self._is_told = True
            self._on_failure(f"alerts by {self._what}: {self._failure}")

    def _work(self) -> None:
        failures, is_last = 0, False
        while not is_last:
            lines = [self._waiting.get()]
            while not self._waiting.empty():
                lines.append(self._waiting.get())
            is_last = None in lines
            try:
                if waiting := [line for line in lines if line is not None]:
                    self._send(waiting)
                    failures, self._problem = 0, None
            except Exception as error:  # noqa: BLE001 - networks and servers fail in any way; none of them may end a training
                failures, self._problem = failures + 1, _reason(error)
                is_last = is_last or failures >= MOST_FAILURES
        if self._problem is not None:
            self._failure = f"{self._problem}; given up for this sitting"


class Webhook:
    """Posts alerts to a URL, one JSON object each; `text` is a line for people, which chat services show."""

    def __init__(self, url: str, facts: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> None:
        self._url, self._facts, self._timeout_s = url, dict(facts), timeout_s
        self._opener = urllib.request.build_opener(_NoRedirect)

    def __call__(self, lines: list[Transition]) -> None:
        """Post them, one after the other."""
        for line in lines:
            body = {"version": 1, **self._facts, "text": f"{self._facts.get('run', '')}: {told(line)}", **line}
            headers = {"Content-Type": "application/json", "User-Agent": "etude"}
            request = urllib.request.Request(self._url, json.dumps(body).encode(), headers, method="POST")
            with self._opener.open(request, timeout=self._timeout_s):
                pass  # what it answers is nobody's business, however long it is


class Email:
    """Writes alerts to one address, those that come together in one letter."""

    def __init__(self, server: str, recipient: str, facts: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> None:
        self._recipient, self._facts, self._timeout_s = recipient, dict(facts), timeout_s
        parts = urlsplit(server)
        self._is_encrypted = parts.scheme == "smtps"
        self._host, self._port = parts.hostname or "", parts.port or (465 if self._is_encrypted else 587)
        self._user, self._password = unquote(parts.username or ""), unquote(parts.password or "")

    def __call__(self, lines: list[Transition]) -> None:
        """Send them."""
        letter = EmailMessage()
        raised = [line["id"] for line in lines if line["state"] == "raised"]
        letter["Subject"] = one_line(f"Etude: {self._facts.get('run', '')}: {', '.join(raised) or 'alerts cleared'}", 150)
        letter["From"] = self._user if "@" in self._user else self._recipient
        letter["To"] = self._recipient
        letter.set_content("\n".join(told(line) for line in lines) + "\n")
        with self._connected() as connection:
            if self._user:
                connection.login(self._user, self._password)
            connection.send_message(letter)

    def _connected(self) -> smtplib.SMTP:
        context = ssl.create_default_context()
        if self._is_encrypted:
            return smtplib.SMTP_SSL(self._host, self._port, timeout=self._timeout_s, context=context)
        connection = smtplib.SMTP(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.ehlo()
            if connection.has_extn("starttls"):
                connection.starttls(context=context)
            elif self._user and self._host not in _THIS_MACHINE:
                raise smtplib.SMTPException("it does not encrypt, so no password is sent to it")
        except BaseException:
            connection.close()
            raise
        return connection


def webhook_url(setting: str | None, environment: Mapping[str, str] | None = None) -> str | None:
    """Return the URL that `logging.webhook` stands for, None where there is none; a secret one has to be in a variable."""
    found = os.environ if environment is None else environment
    if setting is None or setting.startswith("env:"):
        name = WEBHOOK_VARIABLE if setting is None else setting.removeprefix("env:")
        url = found.get(name)
        if not url:
            if setting is None:
                return None
            raise UserError(f"logging.webhook={setting}: the environment variable {name} is not set")
        if not _is_web(url):
            raise UserError(f"the environment variable {name} holds no http:// or https:// URL")
        return url
    if not _is_web(setting):
        raise UserError(f"logging.webhook: {one_line(setting, 40)} is no http:// or https:// URL, nor env:NAME")
    parts = urlsplit(setting)
    tokens = [part for part in parts.path.split("/") if len(part) >= _LOOKS_SECRET]
    if "@" in parts.netloc or parts.query or tokens:
        raise UserError(
            "logging.webhook: this URL holds a secret, and settings are written into the run directory; "
            f"put it into the environment variable {WEBHOOK_VARIABLE}, or into another one: logging.webhook=env:NAME"
        )
    return setting


def smtp_server(recipient: str | None, environment: Mapping[str, str] | None = None) -> str | None:
    """Return the server that letters to `logging.email` go through; None where nobody is to be written to."""
    if recipient is None:
        return None
    if not re.fullmatch(r"[^@\s,;<>\x00-\x1f]+@[^@\s,;<>\x00-\x1f]+", recipient):
        raise UserError(f"logging.email={one_line(recipient, 60)}: no e-mail address")
    server = (os.environ if environment is None else environment).get(SMTP_VARIABLE)
    if not server:
        raise UserError(
            f"logging.email needs a mail server: set the environment variable {SMTP_VARIABLE}=smtp://USER:PASSWORD@HOST:PORT"
        )
    try:
        parts = urlsplit(server)
        is_server = parts.scheme in ("smtp", "smtps") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_server = False
    if not is_server:
        raise UserError(f"the environment variable {SMTP_VARIABLE} holds no smtp://HOST:PORT or smtps://HOST:PORT")
    return server


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry alerts to somebody whom nobody named."""

    def redirect_request(self, *args: Any, **options: Any) -> None:
        return None


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0 and url.isprintable()
    except ValueError:
        return False


def _reason(error: Exception) -> str:
    """Say what went wrong in words of ours: those of libraries may hold the address."""
    if isinstance(error, urllib.error.HTTPError):
        return f"it answered with HTTP {error.code}"
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        error = error.reason
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return "the mail server hung up, or did not answer in time"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"the mail server answered with {error.smtp_code}"
    if isinstance(error, OSError) and error.strerror and not isinstance(error, smtplib.SMTPException):
        return one_line(error.strerror, 80)
    return type(error).__name__
