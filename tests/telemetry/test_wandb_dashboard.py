"""The dashboard, made by W&B's own packages; its server is a double that keeps views."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from etude.cli import run as etude

pytestmark = pytest.mark.optional
wandb = pytest.importorskip("wandb", reason="pip install 'etude[wandb]'")
internal = pytest.importorskip("wandb_workspaces.workspaces.internal", reason="pip install 'etude[wandb]'")

GOLDEN = Path(__file__).parent / "golden" / "wandb-dashboard.json"


class Server:
    """Keeps views as W&B does: by project and name."""

    def __init__(self) -> None:
        self.views: dict[str, dict[str, Any]] = {}
        self.saves = 0

    def execute(self, api: Any, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        if "upsertView" not in query:
            found = self.views.get(variables["viewName"])
            return {"project": {"allViews": {"edges": [{"node": found}] if found else []}}}
        self.saves += 1
        known = self.views.get(variables["name"])
        assert (known or {}).get("id") == variables.get("id")
        view = {"id": f"id-{self.saves}" if known is None else known["id"], "name": variables["name"]}
        self.views[variables["name"]] = {**view, "displayName": variables["displayName"], "spec": variables["spec"]}
        return {"upsertView": {"view": view, "inserted": known is None}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    runs = [SimpleNamespace(id=name) for name in ("newest", "older", "oldest")]
    client = SimpleNamespace(app_url="https://wandb.ai/")
    api = SimpleNamespace(default_entity="me", client=client, runs=lambda path, **_: iter(runs))
    monkeypatch.setattr(wandb, "Api", lambda **_: api)
    monkeypatch.setattr(internal, "execute_graphql", made.execute)
    monkeypatch.setenv("WANDB_SILENT", "true")
    return made


def test_what_would_be_sent_is_printed_exactly_and_always_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["wandb", "dashboard", "--dry", "--entity", "me", "--project", "cartpole"]) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown) == json.loads(GOLDEN.read_text())
    sections = json.loads(shown)["spec"]["section"]["panelBankConfig"]["sections"]
    assert [section["name"] for section in sections] == ["train", "eval", "Diagnostics", "Videos"]


def test_a_second_call_changes_nothing_and_overwriting_puts_it_back(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    request = ["wandb", "dashboard", "--project", "cartpole"]
    assert etude(request) == 0
    (made,) = server.views.values()
    assert capsys.readouterr().out.startswith("created: https://wandb.ai/me/cartpole?nw=etude")
    assert json.loads(made["spec"]) == json.loads(GOLDEN.read_text())["spec"]
    changed = json.loads(made["spec"])
    changed["section"]["panelBankConfig"]["sections"].pop()
    server.views["nw-etude-v"]["spec"] = json.dumps(changed)
    assert etude(request) == 0
    assert "there already" in capsys.readouterr().out
    assert (server.saves, json.loads(server.views["nw-etude-v"]["spec"])) == (1, changed)
    assert etude([*request, "--overwrite"]) == 0
    assert "overwritten" in capsys.readouterr().out
    assert json.loads(server.views["nw-etude-v"]["spec"]) == json.loads(GOLDEN.read_text())["spec"]
    assert len(server.views) == 1


def test_only_the_latest_run_is_selected_when_asked(server: Server) -> None:
    assert etude(["wandb", "dashboard", "--select-latest"]) == 0
    (made,) = server.views.values()
    (runset,) = json.loads(made["spec"])["section"]["runSets"]
    assert runset["selections"]["tree"] == ["older", "oldest"]


def test_without_a_network_it_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def unreachable(**_: Any) -> None:
        raise wandb.errors.CommError("no route\nto host")

    monkeypatch.setattr(wandb, "Api", unreachable)
    assert etude(["wandb", "dashboard"]) == 1
    assert capsys.readouterr().err == (
        "etude: W&B can't be asked: no route to host (is this machine online, and `wandb login` done?)\n"
    )
    assert etude(["wandb", "dashboard", "--dry", "--select-latest"]) == 2
