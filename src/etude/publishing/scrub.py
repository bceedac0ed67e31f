"""What must not leave this machine: secrets, and the names of its folders. Texts are cleaned, and files looked through."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etude.errors import EtudeError

REMOVED = "REMOVED"
_SECRETS = {
    "a token of Hugging Face": r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}",
    "a token of GitHub": r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    "a key of an API": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a key of AWS": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a token of Slack": r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    "a web token": r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a webhook": r"\bhttps://(?:hooks\.slack\.com|discord(?:app)?\.com/api/webhooks)/[A-Za-z0-9_/-]{10,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a password in an address": r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)",
}
_PATTERNS = {what: re.compile(pattern) for what, pattern in _SECRETS.items()}
_BYTES = {what: re.compile(pattern.encode()) for what, pattern in _SECRETS.items()}
_SECRET_KEY = re.compile(r"(?:^|_)(?:token|secret|password|passwd|webhook|api_?key|access_?key|credentials?)s?$", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY", re.IGNORECASE)
_SHORTEST = 8
"""Shorter values of variables would be found in any text."""
_FOLDERS = re.compile(r"(?<![\w/.:~-])(?:~|/[\w.@+-]+)(?:/[\w.@+-]+)*/(?=[\w.@+-])")
"""Of a path that begins at the root or at home, all but its last word."""


def clean(value: Any) -> Any:
    """Return plain data without secrets, and with paths of this machine cut to their last word."""
    if isinstance(value, Mapping):
        return {key: REMOVED if _is_secret(key, part) else clean(part) for key, part in value.items()}
    if isinstance(value, str):
        return clean_text(value)
    return [clean(part) for part in value] if isinstance(value, Sequence) else value


def clean_text(text: str) -> str:
    """Return a text without secrets, and with paths of this machine cut to their last word."""
    for secret in _own_secrets():
        text = text.replace(secret, REMOVED)
    for pattern in _PATTERNS.values():
        text = pattern.sub(REMOVED, text)
    return _FOLDERS.sub("", text)


def refuse_leaks(folder: Path) -> None:
    """Look through every file that is about to be published; EtudeError names the first that holds what it must not."""
    homes = {str(Path.home()), str(Path.cwd())} - {"/"}
    paths = [f"{home}/".encode() for home in sorted(homes)]
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        found = [what for what, pattern in _BYTES.items() if pattern.search(data)]
        found += ["the value of a secret variable of this shell"] if any(s.encode() in data for s in _own_secrets()) else []
        found += ["the name of a folder of this machine"] if any(home in data for home in paths) else []
        if found:
            name = path.relative_to(folder).as_posix()
            raise EtudeError(f"{name}: holds {found[0]}; nothing was published. Remove it from the run's settings or its robot")


def _is_secret(key: object, value: object) -> bool:
    return isinstance(value, str) and value != "" and isinstance(key, str) and _SECRET_KEY.search(key) is not None


def _own_secrets() -> list[str]:
    named = (value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name))
    return sorted({value for value in named if len(value) >= _SHORTEST and not os.path.isabs(value)}, key=len, reverse=True)
