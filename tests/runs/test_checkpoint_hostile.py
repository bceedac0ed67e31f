"""A stranger's checkpoint runs nothing, reads nothing outside its folder, and fails as a CheckpointError."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.errors import CheckpointError
from etude.runs import manifest as manifest_module
from etude.runs.checkpoint import Checkpoint

Save = Callable[..., Checkpoint]


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest as an attacker would: with a matching checksum."""
    content = json.loads((path / "manifest.json").read_text())
    del content["checksum"]
    change(content)
    content["checksum"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(content, indent=1))


def plant(path: Path, relative: str, data: bytes) -> None:
    """Replace a file and make the manifest agree with it."""
    (path / relative).write_bytes(data)
    record = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    rewrite(path, lambda content: content["files"].update({relative: record}))


def read_everything(path: Path) -> None:
    checkpoint = Checkpoint.open(path)
    checkpoint.verify()
    checkpoint.load()


@pytest.mark.parametrize(
    "name",
    ["/etc/hostname", "../secret", "policy/../../secret", "policy\\x", "", "policy//x", "./x", "a\0b", "policy/"],
)
def test_a_manifest_can_t_name_a_file_outside(save: Save, tmp_path: Path, name: str) -> None:
    saved = save(1)
    (tmp_path / "secret").write_text("x")
    rewrite(saved.path, lambda content: content["files"].update({name: {"sha256": "0" * 64, "size": 1}}))
    with pytest.raises(CheckpointError, match="not a plain path"):
        Checkpoint.open(saved.path)


@pytest.mark.parametrize("linked", ["policy/state.json", "policy", "rank", "manifest.json", "extra"])
def test_links_are_never_followed(save: Save, tmp_path: Path, linked: str) -> None:
    saved = save(1)
    inside, outside = saved.path / linked, tmp_path / "outside"
    if inside.exists():
        inside.rename(outside)
    else:
        outside.mkdir()
    inside.symlink_to(outside)
    with pytest.raises(CheckpointError, match=r"link, which is never followed|not in the manifest"):
        read_everything(saved.path)


def test_a_pipe_does_not_hang(save: Save) -> None:
    saved = save(1)
    (saved.path / "policy" / "state.json").unlink()
    os.mkfifo(saved.path / "policy" / "state.json")
    with pytest.raises(CheckpointError, match="not a regular file"):
        saved.load()


def _pickle() -> bytes:
    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.system, ("touch /tmp/etude-was-attacked",))

    return pickle.dumps(Attack())


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.pkl", _pickle())
    return buffer.getvalue()


def _safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    encoded = json.dumps(header).encode()
    return (len(encoded) if length is None else length).to_bytes(8, "little") + encoded + data


STRANGE_TENSORS = {
    "pickle": _pickle(),
    "zip": _zip(),
    "empty": b"",
    "short": b"\x02\0\0",
    "huge header": _safetensors({}, length=2**62),
    "header past the end": _safetensors({}, length=3),
    "header not json": (2).to_bytes(8, "little") + b"{x",
    "deep header": (200_000).to_bytes(8, "little") + b'{"a":' * 40_000,
    "list header": _safetensors([1]),
    "offsets past the end": _safetensors({"weight": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]}}),
    "shape overflow": _safetensors({"weight": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 0]}}),
    "negative": _safetensors({"weight": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"),
    "unknown dtype": _safetensors({"weight": {"dtype": "OBJ", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
    "unloadable dtype": _safetensors({"weight": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]}}, b"1234"),
    "other names": _safetensors({"other": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
}


@pytest.mark.parametrize("case", STRANGE_TENSORS)
def test_a_file_that_is_not_our_tensors_is_refused_cleanly(save: Save, case: str) -> None:
    saved = save(1)
    plant(saved.path, "policy/tensors.safetensors", STRANGE_TENSORS[case])
    with pytest.raises(CheckpointError, match=r"is damaged: policy/tensors\.safetensors: "):
        read_everything(saved.path)
    assert not os.path.exists("/tmp/etude-was-attacked")


STRANGE_JSON = {
    "pickle": _pickle(),
    "zip": _zip(),
    "empty": b"",
    "lists to the sky": b"[" * 100_000,
    "objects to the sky": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "digits": b"1" * 10_000,
    "not text": b'"\xff"',
}


@pytest.mark.parametrize("case", STRANGE_JSON)
@pytest.mark.parametrize("file", ["policy/state.json", "manifest.json"])
def test_json_bombs_are_refused_cleanly(save: Save, case: str, file: str) -> None:
    saved = save(1)
    if file == "manifest.json":
        (saved.path / file).write_bytes(STRANGE_JSON[case])
    else:
        plant(saved.path, file, STRANGE_JSON[case])
    with pytest.raises(CheckpointError, match=f"is damaged: {file}: "):
        read_everything(saved.path)


@pytest.mark.parametrize("file", ["policy/state.json", "manifest.json"])
def test_json_is_measured_before_it_is_parsed(save: Save, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    saved = save(1)
    with open(saved.path / file, "ab") as opened:
        opened.truncate(65 * 2**20)
    if file != "manifest.json":
        rewrite(saved.path, lambda content: content["files"][file].update(size=65 * 2**20))
        monkeypatch.setattr("etude.runs.saved_checkpoint.check_file", lambda directory, name, record: directory / name)
    with pytest.raises(CheckpointError, match="larger than the"):
        Checkpoint.open(saved.path).load()


@pytest.mark.parametrize(
    "state",
    [
        {"$tensor": ["elsewhere", "weight"]},
        {"$tensor": ["../../outside", "weight"]},
        {"$tensor": ["policy", "absent"]},
        {"$tensor": 3},
        {"$call": "os.system"},
        {"$dict": [[[], 1]]},
    ],
)
def test_a_state_that_refers_to_what_is_not_there_is_refused(save: Save, state: object) -> None:
    saved = save(1)
    plant(saved.path, "shared/state.json", json.dumps(state).encode())
    with pytest.raises(CheckpointError, match="is damaged"):
        Checkpoint.open(saved.path).load(["shared"])


@pytest.mark.parametrize("version", [manifest_module.FORMAT + 1, 10**18])
def test_a_newer_format_is_refused_as_newer(save: Save, version: int) -> None:
    saved = save(1)
    rewrite(saved.path, lambda content: content.update(format=version))
    with pytest.raises(CheckpointError, match="written by a newer Etude"):
        Checkpoint.open(saved.path)


def test_an_older_format_is_migrated(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = save(1)
    rewrite(saved.path, lambda content: content.update(made=content.pop("created")))
    now = manifest_module.FORMAT
    monkeypatch.setattr(manifest_module, "FORMAT", now + 1)
    with pytest.raises(CheckpointError, match="is damaged"):
        Checkpoint.open(saved.path)
    migrate = {now: lambda content: {**content, "created": content["made"], "format": now + 1}}
    monkeypatch.setattr(manifest_module, "MIGRATIONS", migrate)
    assert Checkpoint.open(saved.path).created == saved.created


@pytest.mark.parametrize(
    "change",
    [
        {"format": None}, {"format": "1"}, {"format": True}, {"kind": "other"}, {"kind": 1}, {"counters": [1]},
        {"counters": {"env_steps": "1"}}, {"sequence": "x"}, {"files": None}, {"files": {"policy/state.json": 1}},
        {"files": {"policy/state.json": {"sha256": "zz", "size": 1}}}, {"files": {"a": {"sha256": 1, "size": 1}}},
        {"files": {"a": {"sha256": "0" * 64, "size": -1.5}}}, {"metadata": []}, {"metadata": {"$tensor": ["a", "b"]}},
        {"is_best": 1}, {"created": None},
    ],
)  # fmt: skip
def test_a_manifest_with_other_types_is_refused_cleanly(save: Save, change: dict[str, object]) -> None:
    saved = save(1)
    rewrite(saved.path, lambda content: content.update(change))
    with pytest.raises(CheckpointError, match=r"is damaged: manifest\.json: "):
        Checkpoint.open(saved.path)


def test_every_flipped_or_missing_byte_is_found(save: Save) -> None:
    saved = save(1)
    generator = torch.Generator().manual_seed(0)
    for path in [path for path in saved.path.rglob("*") if path.is_file()]:
        whole = path.read_bytes()
        for at in torch.randint(len(whole), (8,), generator=generator).tolist():
            flipped = bytearray(whole)
            flipped[at] ^= 0x10
            for broken in (bytes(flipped), whole[:at]):
                path.write_bytes(broken)
                with pytest.raises(CheckpointError, match="is damaged: " + str(path.relative_to(saved.path))):
                    read_everything(saved.path)
        path.write_bytes(whole)
    read_everything(saved.path)


def test_a_file_too_many_is_found(save: Save) -> None:
    saved = save(1)
    (saved.path / "policy" / "readme.txt").write_text("run me")
    with pytest.raises(CheckpointError, match=r"policy/readme\.txt: not in the manifest"):
        saved.verify()
