"""Was this run directory made by this user on this machine?

Whoever copies a run from elsewhere, or edits its config, gets no: only then may a config name code to import. The code that
is stored with a run has its own signature, and is executed only if that holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

from etude.errors import UserError
from etude.files.atomic import write_json_atomic
from etude.files.documents import DocumentError, read_json
from etude.files.regular import own_folder, read_bytes
from etude.runs.source_state import MAX_PATCH

_KEY_BYTES = 32
# Resume builds from resolved.yaml, so a config that is sound beside a resolved one that is not would be no proof.
_SIGNED_FILES = ("config.yaml", "resolved.yaml")
_CODE = ("git.json", "changes.patch", "untracked")


def sign(run_directory: Path) -> None:
    """Note in ``provenance/origin.json`` that this user made the run; does nothing where no key can be kept.

    The code is signed once, when the run is made. Signing anew after a change of settings keeps that signature: code that
    somebody put there in between must not become the user's own.
    """
    key = _user_key(create=True)
    if key is None:
        return
    with contextlib.suppress(OSError):
        _write(key, run_directory, {"hmac_sha256": _signature(key, run_directory)})


def sign_ahead(run_directory: Path, resolved_yaml: str) -> None:
    """Sign the settings that are about to replace those of an own run, beside these: whichever a kill leaves is its owner's.

    Whoever has replaced them signs once more, and the earlier signature is gone.
    """
    key = _user_key(create=False)
    if key is None:
        return
    with contextlib.suppress(OSError):
        coming = _signature(key, run_directory, resolved_yaml.encode())
        _write(key, run_directory, {"hmac_sha256": _signature(key, run_directory), "next_hmac_sha256": coming})


def check_key() -> None:
    """Make this user's key, if there is none yet; UserError where others can read it."""
    _user_key(create=True)


def is_own(run_directory: Path) -> bool:
    """Whether this user made the run on this machine and its config is still as it was."""
    return any(_holds(run_directory, field, _signature) for field in ("hmac_sha256", "next_hmac_sha256"))


def is_own_code(run_directory: Path) -> bool:
    """Whether the code stored with the run (commit, patch, untracked files) is what this user ran on this machine."""
    return _holds(run_directory, "code_hmac_sha256", _code_signature)


def _write(key: bytes, run_directory: Path, signed: dict[str, str]) -> None:
    origin = _origin_path(run_directory)
    own_folder(origin.parent)
    earlier = _read_origin(run_directory)
    code = _code_signature(key, run_directory) if earlier is None else earlier.get("code_hmac_sha256")
    write_json_atomic(origin, {"version": 1, **signed, **({} if code is None else {"code_hmac_sha256": code})})


def _holds(run_directory: Path, field: str, signature: Callable[[bytes, Path], str | None]) -> bool:
    key = _user_key(create=False)
    if key is None:
        return False
    if _origin_path(run_directory).parent.is_symlink():  # whatever it points at is not stored with the run
        return False
    try:
        expected = signature(key, run_directory)
    except OSError:
        return False
    stored = (_read_origin(run_directory) or {}).get(field)
    return isinstance(stored, str) and expected is not None and hmac.compare_digest(stored.encode(), expected.encode())


def _read_origin(run_directory: Path) -> dict[str, object] | None:
    """What origin.json says; None only where there is none, so that a damaged one never passes for a new run's."""
    try:
        origin = read_json(_origin_path(run_directory))
    except FileNotFoundError:
        return None
    except (OSError, DocumentError):
        return {}
    return origin if isinstance(origin, dict) else {}


def _origin_path(run_directory: Path) -> Path:
    return run_directory / "provenance" / "origin.json"


def _signature(key: bytes, run_directory: Path, resolved: bytes | None = None) -> str:
    """Over the run's id and its settings, with `resolved` in the place of those that are there."""
    pieces = [run_directory.resolve().name.encode(errors="surrogateescape")]
    for name in _SIGNED_FILES:
        if name == "resolved.yaml" and resolved is not None:
            pieces.append(resolved)
            continue
        path = run_directory / name
        # One that is missing counts as empty; a link, a pipe or a device is nobody's config.
        pieces.append(read_bytes(path) if name == "config.yaml" or os.path.lexists(path) else b"")
    return _hmac(key, pieces)


def _code_signature(key: bytes, run_directory: Path) -> str | None:
    """Over what could be executed; None where there is something that Etude does not store, such as a link."""
    provenance = run_directory / "provenance"
    pieces = [b"code/", run_directory.resolve().name.encode(errors="surrogateescape")]
    pending = [provenance / name for name in _CODE]
    while pending:
        path = pending.pop(0)
        if path.is_symlink():
            return None
        if path.is_dir():
            pending += sorted(path.iterdir())
        elif os.path.lexists(path):
            pieces += [path.relative_to(provenance).as_posix().encode(errors="surrogateescape"), read_bytes(path, MAX_PATCH)]
    return _hmac(key, pieces)


def _hmac(key: bytes, pieces: Iterable[bytes]) -> str:
    signature = hmac.new(key, digestmod=hashlib.sha256)
    for piece in pieces:
        # The length keeps the end of one piece from passing for the start of the next.
        signature.update(len(piece).to_bytes(8, "big"))
        signature.update(piece)
    return signature.hexdigest()


def _user_key(*, create: bool) -> bytes | None:
    try:
        path = _data_home() / "etude" / "key"
        if create and not path.exists():
            _create_key(path)
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            key = file.read(_KEY_BYTES + 1)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    if len(key) != _KEY_BYTES or status.st_uid != os.geteuid():
        return None  # not one that this user made: whoever did could sign runs in their name
    if status.st_mode & 0o077:
        raise UserError(
            f"{path} can be read or changed by others, who could pass their code off as yours: chmod 600 {path} "
            "(or, if they may have seen it, delete it: earlier runs then need --trust)"
        )
    return key


def _data_home() -> Path:
    # The XDG specification: a relative path is to be ignored.
    configured = os.environ.get("XDG_DATA_HOME", "")
    return Path(configured) if os.path.isabs(configured) else Path.home() / ".local" / "share"


def _create_key(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".key.{secrets.token_hex(6)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(descriptor)
        # A link never overwrites: of several processes starting together one wins, and all then read its whole key.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
