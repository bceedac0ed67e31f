from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

import pytest

from etude.cli import run


def test_a_missing_package_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "uvicorn" else find(name, *rest))
    assert run(["ui", "--runs", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "etude: etude ui needs starlette and uvicorn: pip install 'etude[ui]'\n"


def test_slips_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ui", "--runs", str(tmp_path / "nothing")]) == 2
    assert "there is no runs directory" in capsys.readouterr().err
    assert run(["ui", "--runs", str(tmp_path), "--port", "70000"]) == 2
    assert capsys.readouterr().err == "etude: --port 70000: must be from 0 to 65535\n"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["ui", "--runs", str(tmp_path), "--port", str(taken.getsockname()[1])]) == 2
    assert "--port 0 takes a free port" in capsys.readouterr().err
    assert run(["ui", "--runs", str(tmp_path), "--host", "no.such.host.invalid"]) == 2
    assert "no.such.host.invalid" in capsys.readouterr().err


def test_the_address_has_the_token_in_its_fragment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from etude.ui.server import Server

    monkeypatch.setattr(Server, "serve", lambda self: self._socket.close())
    assert run(["ui", "--runs", str(tmp_path), "--port", "0"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("http://127.0.0.1:")
    assert len(said.out.partition("/#token=")[2].strip()) >= 40
    assert "Ctrl-C ends this" in said.err
    assert run(["ui", "--runs", str(tmp_path), "--port", "0", "--host", "0.0.0.0"]) == 0
    assert "others reach this server" in capsys.readouterr().err
