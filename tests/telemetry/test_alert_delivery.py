"""Alerts to a webhook and by e-mail: they arrive, and a server that is dead, slow or hostile costs a run nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from etude.errors import UserError
from etude.telemetry import alert_delivery
from etude.telemetry.alert_delivery import Delivery, Email, Webhook, smtp_server, webhook_url
from tests.telemetry.test_alert_log import transition

SECRET = "https://hooks.example.com/services/T0/B0/abcdefghijklmnopqrstuvwx"


@contextmanager
def server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A web server on this machine, and what it was sent."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            received.append(json.loads(self.rfile.read(length)))
            answer(self)

        def log_message(self, *args: Any) -> None:
            pass

    web = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{web.server_port}/", received
    finally:
        web.shutdown()
        web.server_close()


def answering(code: int, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()

    return answer


@contextmanager
def silent_server() -> Iterator[int]:
    """It takes connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def deliver(send: Any, *lines: Any, patience_s: float = 10.0) -> list[str]:
    said: list[str] = []
    delivery = Delivery("webhook", send, said.append, patience_s=patience_s)
    for line in lines:
        delivery(line)
    delivery.close()
    return said


def test_a_webhook_gets_each_alert_as_json_with_a_line_for_people() -> None:
    with server(answering(200)) as (url, received):
        said = deliver(Webhook(url, {"run": "r1"}), transition("kl_high"), transition("kl_high", "cleared", 300))
    assert said == []
    assert [(each["id"], each["state"], each["run"], each["env_steps"]) for each in received] == [
        ("kl_high", "raised", "r1", 100),
        ("kl_high", "cleared", "r1", 300),
    ]
    assert received[0]["text"] == "r1: alert kl_high: too high; lower it (at 100 environment steps)"


def test_a_dead_server_is_given_up_with_one_line_that_does_not_name_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    (said,) = deliver(Webhook(f"http://127.0.0.1:{port}/token", {}), transition())
    assert "given up" in said
    assert "token" not in said
    assert str(port) not in said


def test_a_server_that_never_answers_keeps_nobody_waiting() -> None:
    with silent_server() as port:
        said: list[str] = []
        delivery = Delivery("webhook", Webhook(f"http://127.0.0.1:{port}/", {}, timeout_s=60), said.append, patience_s=0.05)
        for _ in range(3 * alert_delivery.MOST_WAITING):  # returns at once, however many wait
            delivery(transition())
        delivery.close()
    assert len(said) == 1
    assert "too slow" in said[0]


def test_a_server_that_is_slow_is_a_timeout() -> None:
    with silent_server() as port:
        (said,) = deliver(Webhook(f"http://127.0.0.1:{port}/", {}, timeout_s=0.05), transition())
    assert "no answer in time" in said


def test_a_huge_answer_is_not_read() -> None:
    taken = threading.Event()

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 65536)
        except OSError:  # the other side has hung up
            taken.set()

    with server(endless) as (url, received):
        assert deliver(Webhook(url, {}), transition()) == []
        assert taken.wait(10)
    assert len(received) == 1


def test_a_redirect_is_not_followed() -> None:
    with (
        server(answering(200)) as (elsewhere, stolen),
        server(answering(307, Location=elsewhere)) as (url, received),
    ):
        (said,) = deliver(Webhook(url, {}), transition())
    assert "HTTP 307" in said
    assert len(received) == 1
    assert stolen == []


def test_a_server_that_recovers_is_not_given_up() -> None:
    answers = iter([500, 500, 200, 500, 500, 200])
    done = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        code = next(answers)
        answering(code)(handler)

    with server(answer) as (url, received):
        said: list[str] = []
        delivery = Delivery("webhook", Webhook(url, {}), said.append)
        for count in range(6):
            delivery(transition())
            while len(received) <= count:
                done.wait(0.005)
        delivery.close()
    assert said == []


def test_secrets_come_from_the_environment_alone() -> None:
    assert webhook_url(None, {}) is None
    assert webhook_url(None, {"ETUDE_ALERT_WEBHOOK": SECRET}) == SECRET
    assert webhook_url("env:MINE", {"MINE": SECRET}) == SECRET
    assert webhook_url("http://localhost:8000/alerts", {}) == "http://localhost:8000/alerts"
    for url in (SECRET, "https://me:word@example.com/", "https://example.com/?token=1"):
        with pytest.raises(UserError, match="holds a secret") as refused:
            webhook_url(url, {})
        assert url not in str(refused.value)
    with pytest.raises(UserError, match="MINE is not set"):
        webhook_url("env:MINE", {})
    for wrong in ("file:///etc/passwd", "example.com", "http://[", "http://x:99999/"):
        with pytest.raises(UserError, match="no http"):
            webhook_url(wrong, {})
        with pytest.raises(UserError, match="holds no http"):
            webhook_url("env:MINE", {"MINE": wrong})


def test_a_mail_server_is_asked_for_before_anything_begins() -> None:
    assert smtp_server(None, {}) is None
    assert smtp_server("me@example.com", {"ETUDE_SMTP": "smtp://localhost:25"}) == "smtp://localhost:25"
    with pytest.raises(UserError, match="set the environment variable ETUDE_SMTP"):
        smtp_server("me@example.com", {})
    with pytest.raises(UserError, match="no e-mail address"):
        smtp_server("me@example.com\nBcc: all@example.com", {"ETUDE_SMTP": "smtp://localhost"})
    with pytest.raises(UserError, match="holds no smtp") as refused:
        smtp_server("me@example.com", {"ETUDE_SMTP": "http://me:word@localhost"})
    assert "word" not in str(refused.value)


class MailServer(threading.Thread):
    """Speaks just enough SMTP to be sent one letter."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port, self.letter = self.listening.getsockname()[1], ""
        self.start()

    def run(self) -> None:
        connection, _ = self.listening.accept()
        with connection, connection.makefile("rwb") as stream:

            def say(line: str) -> None:
                stream.write(f"{line}\r\n".encode())
                stream.flush()

            say("220 here")
            is_letter = False
            for line in stream:
                text = line.decode().rstrip("\r\n")
                if is_letter:
                    self.letter += f"{text}\n"
                    is_letter = text != "."
                    if not is_letter:
                        say("250 taken")
                elif text.upper().startswith("DATA"):
                    is_letter = True
                    say("354 go on")
                else:
                    say("221 bye" if text.upper() == "QUIT" else "250 fine")


def test_alerts_are_written_as_a_letter() -> None:
    mail = MailServer()
    send = Email(f"smtp://127.0.0.1:{mail.port}", "me@example.com", {"run": "r1"})
    assert deliver(send, transition("kl_high")) == []
    assert "Subject: Etude: r1: kl_high" in mail.letter
    assert "To: me@example.com" in mail.letter
    assert "alert kl_high: too high; lower it" in mail.letter
    mail.listening.close()


def test_a_mail_server_that_never_answers_is_given_up() -> None:
    with silent_server() as port:
        (said,) = deliver(Email(f"smtp://127.0.0.1:{port}", "me@example.com", {}, timeout_s=0.05), transition())
    assert "did not answer in time" in said


def test_no_password_goes_to_a_server_that_does_not_encrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_delivery, "_THIS_MACHINE", ())
    mail = MailServer()
    (said,) = deliver(Email(f"smtp://me:word@127.0.0.1:{mail.port}", "me@example.com", {}), transition())
    assert "word" not in said
    assert mail.letter == ""
    mail.listening.close()
