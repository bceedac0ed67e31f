"""The architecture page speaks of the code as it is."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from typing import Any

import pytest

from etude.buffers.base import Buffer
from etude.environments.vector import Step, VectorEnvironment
from etude.orchestration.callbacks import Callback
from etude.workflows.base import Workflow
from tests.docs.pages import ROOT, blocks
from tests.test_imports import BELOW

PAGE = ROOT / "docs/architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
CONTRACTS: dict[str, type] = {"### Environment": VectorEnvironment, "### Workflow": Workflow, "### Buffer": Buffer}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"(?:src|tests|docs)/[\w./-]*\w", TEXT))))
def test_every_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("dotted", sorted(set(re.findall(r"`(etude(?:\.\w+)+)`", TEXT))))
def test_every_name_imports(dotted: str) -> None:
    _find(dotted)


def _find(dotted: str) -> Any:
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(f"{dotted} can't be imported")


def _contract(heading: str) -> str:
    """The code block that follows a heading."""
    section = TEXT.partition(f"{heading}\n")[2]
    return section.partition("```python\n")[2].partition("```")[0]


@pytest.mark.parametrize("heading", CONTRACTS)
def test_every_signature_is_the_real_one(heading: str) -> None:
    cls, found = CONTRACTS[heading], 0
    for line in _contract(heading).splitlines():
        signature = line.partition("#")[0].strip()
        if not re.match(r"\w+\(.*\) -> ", signature):
            continue
        (definition,) = ast.parse(f"def {signature}: ...").body
        assert isinstance(definition, ast.FunctionDef)
        real = [parameter for parameter in inspect.signature(getattr(cls, definition.name)).parameters if parameter != "self"]
        written = definition.args
        names = [*written.args, *written.kwonlyargs, *([written.kwarg] if written.kwarg else [])]
        assert [argument.arg for argument in names] == real, definition.name
        found += 1
    assert found >= 4


def test_the_other_members_of_the_contracts_exist() -> None:
    attributes = re.search(r"^num_envs, .*$", _contract("### Environment"), re.MULTILINE)
    assert attributes is not None
    known = {*VectorEnvironment.__annotations__, *vars(VectorEnvironment)}
    assert set(attributes[0].split(", ")) <= known
    assert re.findall(r"^    (\w+): ", _contract("### Environment"), re.MULTILINE) == list(Step._fields)
    for name in ("ready", "size", "room", "nbytes"):
        assert isinstance(getattr(Buffer, name), property)


def test_the_table_of_imports_is_the_one_that_is_enforced() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", TEXT.partition("| Room |")[2].partition("\n\n")[0], re.MULTILINE)
    table = {room: set(re.findall(r"`(\w+)`", others)) - {"base", "collector"} for room, others in rows}
    assert table == {room: set(may.split()) for room, may in BELOW.items() if room not in ("errors", "presets")}


def test_every_event_named_beside_lightnings_exists() -> None:
    for event in set(re.findall(r"`Callback\.(\w+)`", TEXT)):
        assert callable(getattr(Callback, event))
    for method in set(re.findall(r"`Workflow\.(\w+)`", TEXT)):
        assert hasattr(Workflow, method)


def test_there_is_something_to_check() -> None:
    assert len(blocks(PAGE)) >= 5
