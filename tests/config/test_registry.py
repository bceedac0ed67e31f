"""Parts by name: built in, registered, from another package, or from an import path."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from etude.config.compose import compose
from etude.config.registry import (
    REGISTRIES,
    Registry,
    algorithms,
    buffers,
    callbacks,
    networks,
    register_algorithm,
    register_network,
    register_wrapper,
)
from etude.errors import EtudeError, UserError
from etude.workflows.random_policy import RandomPolicy
from tests.config.conftest import Complaints, Write


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget afterwards what a test registers."""
    for registry in REGISTRIES.values():
        monkeypatch.setattr(registry, "_registered", {})


@pytest.mark.parametrize("kind", ["algorithm", "network", "buffer", "optimizer"])
def test_every_built_in_name_resolves(kind: str) -> None:
    registry = REGISTRIES[kind]
    assert registry.builtin_names()
    for name in registry.builtin_names():
        assert callable(registry.resolve(name))
        assert registry.describe()[name]


def test_listing_imports_nothing() -> None:
    code = "import sys; from etude.config.registry import algorithms as a; a.describe(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.usefixtures("fresh")
def test_a_decorator_gives_a_name() -> None:
    from etude.components.networks.mlp import MLP
    from etude.workflows.random_policy import RandomPolicy

    @register_algorithm("mine")
    class Mine(RandomPolicy):
        """My algorithm."""

    @register_network("my_net")
    class Net(MLP):
        pass

    config = compose("CartPole-v1:mine").config
    assert config.algorithm.name == "mine"
    assert algorithms.describe()["mine"] == "My algorithm."
    assert compose("CartPole-v1:ppo", words=["network.actor.type=my_net"]).config.network["actor"].type == "my_net"
    assert networks.resolve("my_net") is Net


@pytest.mark.usefixtures("fresh")
def test_a_name_can_be_taken_only_once() -> None:
    with pytest.raises(
        UserError, match=r"algorithm 'ppo' is registered already, for etude\.workflows\.ppo:PPO; give yours another"
    ):
        register_algorithm("ppo")(object)
    with pytest.raises(UserError, match=r"wrapper 'FrameSkip' is registered already, for etude\."):  # an old name of ours
        register_wrapper("FrameSkip")(object)


def _install(folder: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    """What pip leaves behind for a package with an entry point."""
    info = folder / "other_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[etude.algorithm]\n{entry}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_an_installed_package_adds_an_algorithm_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, monkeypatch, "theirs = other_package:Theirs")
    (tmp_path / "other_package.py").write_text(
        "from etude.workflows.random_policy import RandomPolicy\nclass Theirs(RandomPolicy):\n    pass\n"
    )
    assert "theirs" in algorithms.names()
    assert algorithms.describe()["theirs"] == "from other_package:Theirs"
    assert compose("CartPole-v1:theirs", allow_imports=False).config.algorithm.name == "theirs"


@pytest.mark.parametrize(("name", "ours"), [("ppo", "etude.workflows.ppo:PPO"), ("twice", "first:One")])
def test_a_package_takes_no_name_that_another_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ours: str
) -> None:
    entries = f"{name} = other_package:Theirs" + ("\ntwice = first:One" if name == "twice" else "")
    _install(tmp_path, monkeypatch, entries)
    with pytest.raises(UserError, match=f"algorithm '{name}' is registered more than once") as raised:
        algorithms.resolve(name)
    assert ours in str(raised.value)
    assert "other_package:Theirs" in str(raised.value)


@pytest.mark.usefixtures("fresh")
def test_a_package_may_name_a_class_by_decorator_and_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, monkeypatch, "theirs = named_twice:Theirs")
    (tmp_path / "named_twice.py").write_text(
        "from etude.config.registry import register_algorithm\nfrom etude.workflows.random_policy import RandomPolicy\n"
        "@register_algorithm('theirs')\nclass Theirs(RandomPolicy):\n    pass\n"
    )
    assert algorithms.resolve("theirs").__name__ == "Theirs"
    assert algorithms.resolve("theirs").__name__ == "Theirs"


def test_an_entry_point_that_leads_nowhere_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, monkeypatch, "theirs = not_there_at_all:Theirs")
    with pytest.raises(EtudeError, match="algorithm 'theirs' of the package other-package can't be loaded: No module named"):
        algorithms.resolve("theirs")


@pytest.mark.parametrize("path", ["own_parts:Own", "own_parts.Own"])
def test_a_class_in_the_current_folder_is_found_by_path(write: Write, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    write("own_parts.py", "from etude.workflows.random_policy import RandomPolicy\nclass Own(RandomPolicy):\n    pass\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    config = compose(words=["environment.id=CartPole-v1", f"algorithm.name='{path}'"]).config
    assert config.algorithm.name == path


def test_resolving_a_built_in_name_leaves_the_path_alone(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("x.yaml", "")
    before = list(sys.path)
    algorithms.resolve("ppo")
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_module_here.Thing", "there is no module 'no_module_here' here"),
        ("json.lods", "module 'json' has no 'lods'; did you mean 'loads'?"),
        ("json.loads", "'json.loads' is no algorithm: it has no act"),
        ("collections.OrderedDict", "'collections.OrderedDict' is no algorithm: it has no act"),
    ],
)
def test_an_import_path_that_leads_to_no_algorithm_says_so(complaints: Complaints, name: str, message: str) -> None:
    assert message in complaints(words=["environment.id=CartPole-v1", f"algorithm.name={name}"])[0]


def test_a_part_that_is_no_class_says_so(complaints: Complaints) -> None:
    (line,) = complaints("CartPole-v1:ppo", words=["algorithm.optimizer=math.pi"])
    assert line == "algorithm.optimizer: 'math.pi' is no optimizer: it is not a class"


def test_settings_without_the_field_that_names_them_are_explained(complaints: Complaints) -> None:
    (line,) = complaints("CartPole-v1:ppo", words=[f"network.actor.type={__name__}.Nameless"])
    assert line.startswith("network.actor: _NamelessConfig, the settings of")
    assert line.endswith("must declare a field 'type: str'")


@dataclass(frozen=True)
class _StrangeConfig:
    name: str = ""


class Strange(RandomPolicy):
    Config = _StrangeConfig


def test_settings_of_an_algorithm_that_are_not_derived_from_ours_are_one_line(complaints: Complaints) -> None:
    (line,) = complaints(f"CartPole-v1:{__name__}.Strange")
    assert (
        line == f"algorithm: the Config of '{__name__}.Strange' must be derived from etude.config.algorithm.AlgorithmSettings"
    )


def test_foreign_configs_may_use_names_but_no_import_paths() -> None:
    assert algorithms.resolve("ppo", allow_imports=False)
    with pytest.raises(UserError, match="--trust"):
        algorithms.resolve("json.loads", allow_imports=False)


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(UserError, match=r"unknown buffer 'rolout'; did you mean 'rollout'\? \(known: "):
        buffers.resolve("rolout")
    assert Registry("thing", {}).names() == []
    assert callbacks.builtin_names() == ["plateau", "q_contours", "video"]


@dataclass(frozen=True)
class _NamelessConfig:
    size: int = 1


class Nameless:
    Config = _NamelessConfig

    def forward(self) -> None: ...
