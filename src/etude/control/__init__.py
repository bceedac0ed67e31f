"""Trainings from outside: start one in the background, ask it to save, evaluate, pause, change or stop, and resume it."""

from etude.control.asking import Answer, answer, ask_and_wait, stop
from etude.control.background import Started, check_words, resume, start
from etude.runs.requests import ACTIONS, Request, ask, read_events
from etude.runs.status_file import read_status

__all__ = [
    "ACTIONS",
    "Answer",
    "Request",
    "Started",
    "answer",
    "ask",
    "ask_and_wait",
    "check_words",
    "read_events",
    "read_status",
    "resume",
    "start",
    "stop",
]
