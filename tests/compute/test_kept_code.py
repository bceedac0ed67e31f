"""Compiled code that is kept: loaded by whoever needs the same, never from a folder that is not the user's alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from etude.compute import kept_code
from etude.compute.accelerate import choose_mode, compile_apart, has_compiler
from etude.compute.kept_code import KeptCode, Plan, is_kept, key_of
from etude.config.compose import compose
from etude.training import assembly
from etude.workflows.ppo import PPO

CPU = torch.device("cpu")


class Step:
    """A function that changes memory of its own."""

    def __init__(self) -> None:
        self.weight, self.calls = torch.eye(3), 0

    def __call__(self, x: Tensor) -> tuple[Tensor]:
        self.calls += 1
        self.weight.mul_(2.0)
        return (x @ self.weight,)

    def fast(self, key: str) -> Callable[..., tuple[Tensor, ...]]:
        return compile_apart(
            self.__call__, CPU, kept=KeptCode(key, "call", lambda: {"weight": self.weight}, lambda: [self.calls])
        )


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_code_that_was_kept_is_loaded_and_changes_the_memory_of_now() -> None:
    first, later = Step(), Step()
    x = torch.arange(6.0).view(2, 3)
    key = key_of("test")
    assert not is_kept(key)
    compiled = first.fast(key)
    assert torch.equal(compiled(x)[0], 2 * x)
    assert is_kept(key)
    loaded = later.fast(key)
    assert torch.equal(loaded(x)[0], 2 * x)
    assert torch.equal(loaded(x + 1)[0], 4 * (x + 1))
    assert torch.equal(later.weight, 4 * torch.eye(3))
    assert later.calls == 0, "nothing was traced"
    assert loaded.note == [first.calls]  # type: ignore[attr-defined]


def test_a_folder_that_others_can_write_to_or_that_is_a_link_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETUDE_CACHE", str(tmp_path / "mine"))
    place = kept_code.folder()
    assert place is not None
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o770)
    assert kept_code.folder() is None
    assert not KeptCode("key", "call", dict).can_be
    place.chmod(0o700)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "compiled").symlink_to(place)
    monkeypatch.setenv("ETUDE_CACHE", str(tmp_path / "linked"))
    assert kept_code.folder() is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners of files")
def test_another_users_folder_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_CACHE", str(tmp_path))
    assert kept_code.folder() is not None
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert kept_code.folder() is None
    assert not is_kept("key")


def test_a_damaged_file_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_CACHE", str(tmp_path))
    kept = KeptCode("key", "call", dict)
    assert kept.load() is None
    assert kept._path is not None
    kept._path.parent.mkdir()
    kept._path.with_suffix(".bin").write_bytes(b"no code")
    kept._path.with_suffix(".json").write_text('{"places": [], "outputs": [], "note": null}')
    assert kept.load() is None


def test_what_nobody_has_loaded_for_long_goes_when_more_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Artifact:
        def save(self, path: str) -> None:
            Path(path).write_bytes(b"code")

    monkeypatch.setenv("ETUDE_CACHE", str(tmp_path))
    for key in ("old", "new", "inductor"):
        KeptCode(key, "call", dict).keep(Artifact(), Plan([], []))
    place = tmp_path / "compiled"
    for key in ("old", "inductor"):
        os.utime(place / key, (0, 0))
    KeptCode("newest", "call", dict).keep(Artifact(), Plan([], []))
    assert sorted(each.name for each in place.iterdir()) == ["inductor", "new", "newest"]


def test_the_key_follows_whatever_code_depends_on() -> None:
    config = assembly.resolve(compose("CartPole-v1:ppo", words=("experiment.device=cpu",)).config)
    others = [
        assembly.resolve(compose("CartPole-v1:ppo", words=("experiment.device=cpu", word)).config)
        for word in ("algorithm.clip_value_loss=0.1", "network.actor.hidden_dims=[8]", "experiment.threads=2")
    ]
    keys = {PPO.code_key(each) for each in (config, *others)}
    assert len(keys) == 4
    again = compose("CartPole-v1:ppo", words=("experiment.device=cpu", "experiment.seed=7", "training.total_steps=999")).config
    assert PPO.code_key(assembly.resolve(again)) == PPO.code_key(config)


class Own(PPO):
    """Somebody's own."""


def test_code_of_ones_own_is_not_kept() -> None:
    config = compose("CartPole-v1:tests.compute.test_kept_code.Own").config
    assert Own.code_key(config) is None


def test_auto_compiles_what_was_compiled_before(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_mode("auto", CPU, 10, is_written=True) == "numpy"
    if has_compiler():
        assert choose_mode("auto", CPU, 10, is_written=True, is_kept=True) == "compiled"
    assert choose_mode("off", CPU, 10, is_kept=True) == "eager"
    asked = compose("CartPole-v1:ppo", words=("experiment.device=cpu",)).config
    assert assembly.resolve(asked).experiment.compile == "numpy"
    reason = assembly.why_this_mode(asked)
    assert reason is not None
    assert reason.startswith("updates are numpy: 7,800 gradient steps would not repay compiling")
    here = assembly.resolve(compose("CartPole-v1:ppo", words=("experiment.device=cpu", "experiment.compile=on")).config)
    key = PPO.code_key(here)
    folder = kept_code.folder()
    assert key is not None
    assert folder is not None
    (folder / key).mkdir()
    (folder / key / "any.json").touch()
    if has_compiler():
        assert assembly.resolve(asked).experiment.compile == "on"
        assert "has compiled these settings before" in str(assembly.why_this_mode(asked))
