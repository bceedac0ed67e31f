"""A single component as one file: how it was made, and its weights.

    etude.save_component(policy, "walker.safetensors")
    policy = etude.load_component("walker.safetensors")

It is a safetensors file. Its metadata has a JSON entry `etude`, with the recipe and the tree of the state, and the SHA-256 of
that entry and of all tensors. Nothing in it is code: an import path is followed only by whoever trusts the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import etude
from etude.acting.policy import Policy
from etude.components.networks.head import Head
from etude.components.recipes import recipe_of
from etude.compute.devices import pick_device
from etude.errors import CheckpointError, EtudeError, UserError
from etude.files.atomic import replacing
from etude.files.documents import parse_json
from etude.files.printable import one_line
from etude.files.regular import read_bytes
from etude.files.state_tree import TreeEncoder, decode
from etude.runs.manifest import MAX_NESTING
from etude.runs.saved_checkpoint import MISFITS
from etude.runs.tensor_file import content_of, read_tensors, write_tensors
from etude.saved_components.kinds import check_kind, make, read_recipe, recipe_data, word_of

FORMAT = 1
SUFFIX = ".safetensors"
LARGEST_FILE = 8 * 2**30
_ENTRY, _CHECKSUM, _PART = "etude", "sha256", "component"


def save_component(component: Policy | nn.Module, path: Path | str) -> Path:
    """Write a policy, value function, network, normaliser or encoder to one file, in place of what stands there."""
    path, recipe = Path(path), recipe_of(component)
    if recipe is None:
        raise UserError(
            f"this {type(component).__name__} can't be saved: how it was made isn't known. Have it built from settings "
            "(etude.load_policy, build_network, value_functions.get, make_actor_critic)"
        )
    encoder = TreeEncoder()
    try:
        tree, tensors = encoder.encode(_PART, {"recipe": recipe_data(recipe), "state": _state_of(component)})
        entry = json.dumps({"format": FORMAT, "etude": etude.__version__, "component": tree}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"this {word_of(recipe)} can't be saved: {one_line(str(error))}") from error
    if encoder.segments:
        raise UserError(f"this {word_of(recipe)} can't be saved: its state has rows of a replay")
    words = {_ENTRY: entry, _CHECKSUM: _checksum(entry, tensors)}
    try:
        with replacing(path) as temporary:
            write_tensors(temporary, tensors, words)
    except OSError as error:
        raise EtudeError(f"{path}: can't be written: {error.strerror or error}") from error
    return path


def load_component(path: Path | str, kind: str | None = None, *, trust: bool = False, device: str = "cpu") -> Any:
    """Return the component that a file holds, the same class with the same weights; `kind` refuses any other.

    A file may name a class by its import path, and importing it runs its code: that is done only with `trust`.
    """
    path = Path(path)
    check_kind(kind)
    where = pick_device(device, where="device")
    data, tensors = _read(path)

    def fetch(part: str, name: str) -> Tensor:
        if part != _PART or name not in tensors:
            raise ValueError(f"it has no tensor '{name[:120]}'")
        return tensors[name]

    with _of(path):
        content: Any = decode(data, fetch)
        if not isinstance(content, dict) or set(content) != {"recipe", "state"}:
            raise ValueError("it holds no component")
        recipe = read_recipe(content["recipe"], trust=trust)
        if kind not in (None, word_of(recipe)):
            raise UserError(f"holds a component of the kind {word_of(recipe)}, not {kind}")
        component = make(recipe, where)
        _load_state(component, content["state"])
    return component


def _read(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """Return the JSON of the component in a file, and its tensors, all as they were written."""
    try:
        data = read_bytes(path, LARGEST_FILE)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    try:
        words, tensors = read_tensors(data)
        if _ENTRY not in words:
            raise ValueError("it is a safetensors file, and none that etude.save_component wrote")
        entry = parse_json(words[_ENTRY], deepest=MAX_NESTING)
        version = entry.get("format") if isinstance(entry, dict) else None
        if type(version) is not int or version < 1:
            raise ValueError("its format is not known")
    except ValueError as error:
        raise CheckpointError(f"{path}: can't be read as a component: {one_line(str(error))}") from error
    if version > FORMAT:
        raise CheckpointError(f"{path}: was written by a newer Etude (format {version}); upgrade Etude to read it")
    if words.get(_CHECKSUM) != _checksum(words[_ENTRY], tensors):
        raise CheckpointError(f"{path}: is damaged: its contents are not what was written; restore it from a copy")
    return entry.get("component"), tensors


@contextmanager
def _of(path: Path) -> Iterator[None]:
    """Within, whatever is wrong with a file's contents is one line about that file."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except UserError as error:
        raise UserError(f"{path}: {one_line(str(error), 400)}") from error
    except EtudeError as error:
        raise type(error)(f"{path}: {one_line(str(error), 400)}") from error
    except (*MISFITS, OverflowError, MemoryError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise CheckpointError(f"{path}: does not hold what it says: {one_line(reason)}") from error


def _state_of(component: Any) -> dict[str, Any]:
    """Return the state, and that of what a head in it stands on: another network, whose weights are not its own."""
    return {"own": component.state_dict(), "trunks": [_state_of(trunk) for trunk in _trunks(component)]}


def _load_state(component: Any, state: Any) -> None:
    if isinstance(component, nn.Module):
        _take_precision(component, state["own"])
    component.load_state_dict(state["own"])
    for trunk, saved in zip(_trunks(component), state["trunks"], strict=True):
        _load_state(trunk, saved)


def _trunks(component: Any) -> list[nn.Module]:
    modules = component.modules() if isinstance(component, nn.Module) else ()
    return [module.trunk for module in modules if isinstance(module, Head)]


def _take_precision(component: nn.Module, state: Mapping[str, Any]) -> None:
    """Give weights the precision that they were saved in: loading would round them to that of a new network."""
    for name, tensor in component.state_dict(keep_vars=True).items():
        saved = state.get(name)
        if isinstance(saved, Tensor) and saved.is_floating_point() and tensor.is_floating_point():
            tensor.data = tensor.data.to(saved.dtype)


def _checksum(entry: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(entry.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(content_of(tensor))
    return digest.hexdigest()
