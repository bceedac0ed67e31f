"""What can't be saved or loaded is one line that says why; a file from a stranger runs nothing on this machine."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from gymnasium import spaces
from torch import nn

import etude
from etude.components.networks.build import build_network
from etude.components.networks.mlp import MLPConfig
from etude.components.normalizers import RewardNormalizer
from etude.config.compose import compose
from etude.config.validate import Part
from etude.errors import CheckpointError, EtudeError, UserError
from etude.runs.tensor_file import read_tensors, write_tensors
from etude.saved_components import component_file
from etude.training import assembly

BOX = spaces.Box(-1, 1, (3,), np.float32)


def mlp() -> nn.Module:
    return build_network(MLPConfig(hidden_dims=(4,)), BOX, 2, seed=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return etude.save_component(mlp(), tmp_path / "network.safetensors")


def forge(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """Change what a file says, as a stranger would who knows how checksums are made."""
    words, tensors = read_tensors(path.read_bytes())
    entry = json.loads(words["etude"])
    change(entry)
    text = json.dumps(entry)
    path.unlink()
    write_tensors(path, tensors, {"etude": text, "sha256": component_file._checksum(text, tensors)})
    return path


def refusal(path: Path, *arguments: Any, **options: Any) -> str:
    with pytest.raises(EtudeError) as caught:
        etude.load_component(path, *arguments, **options)
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith(str(path))
    assert len(said) < len(str(path)) + 500
    return said


def test_every_flipped_byte_is_found(file: Path, tmp_path: Path) -> None:
    data, damaged = file.read_bytes(), tmp_path / "damaged.safetensors"
    for place in range(0, len(data), 7):
        damaged.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        refusal(damaged)


def test_a_file_that_ends_early_is_refused(file: Path, tmp_path: Path) -> None:
    data, cut = file.read_bytes(), tmp_path / "cut.safetensors"
    for length in [0, 1, 7, 8, 9, 200, len(data) // 2, len(data) - 1]:
        cut.write_bytes(data[:length])
        refusal(cut)
    cut.write_bytes(data + b"\0")
    refusal(cut)


def test_a_weight_that_was_changed_is_found(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert "is damaged: its contents are not what was written" in refusal(file)


def test_a_newer_format_asks_for_an_upgrade(file: Path) -> None:
    forge(file, lambda entry: entry.update(format=2))
    assert "was written by a newer Etude (format 2); upgrade Etude" in refusal(file)


def test_another_kind_than_asked_for_is_named(file: Path) -> None:
    assert "holds a component of the kind network, not policy" in refusal(file, "policy")
    with pytest.raises(UserError, match=r"kind=polcy: there are the kinds policy, value_function, network"):
        etude.load_component(file, "polcy")
    with pytest.raises(UserError, match=r"device=gpu: must be auto, cpu"):
        etude.load_component(file, device="gpu")


def test_what_is_no_file_of_a_component_is_refused(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    safetensors.torch.save_file({"weight": torch.zeros(2)}, other)
    assert "none that etude.save_component wrote" in refusal(other)
    other.write_bytes(b"\x80\x04K\x01.")
    assert "not a safetensors file" in refusal(other)
    assert "No such file" in refusal(tmp_path / "nothing")
    assert "is a folder, not a file" in refusal(tmp_path)
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(file)
    os.mkfifo(pipe)
    assert "is a link, which is never followed" in refusal(link)
    assert "not a regular file" in refusal(pipe)


def test_a_file_beyond_the_limit_is_not_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(component_file, "LARGEST_FILE", 100)
    assert "larger than the 100 bytes allowed" in refusal(file)


def recipe(entry: dict[str, Any]) -> dict[str, Any]:
    return entry["component"]["recipe"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda entry: entry.update(component=3), "it holds no component"),
        (lambda entry: entry.update(format="1"), "its format is not known"),
        (lambda entry: entry["component"].pop("state"), "it holds no component"),
        (lambda entry: recipe(entry).update(kind="rocket"), "it says not how it is made"),
        (lambda entry: recipe(entry).update(kind=[]), "does not hold what it says"),
        (lambda entry: recipe(entry).update(settings=None), "settings of a network are missing"),
        (lambda entry: recipe(entry).update(kind="ensemble"), "settings of a ensemble are too many"),
        (lambda entry: recipe(entry).update(spaces=[]), "are mappings"),
        (lambda entry: recipe(entry)["values"].update(output_size=3), "size mismatch"),
        (lambda entry: recipe(entry)["values"].update(output_size="many"), "can't be built"),
        (lambda entry: recipe(entry)["values"].update(output_size=10**15), "no memory left for a network"),
        (lambda entry: recipe(entry)["values"].update(where="here"), "unexpected keyword argument"),
        (lambda entry: recipe(entry)["values"].pop("seed"), "missing 1 required"),
        (lambda entry: recipe(entry)["settings"].update(hidden_dims=[0]), "must be at least 1"),
        (lambda entry: recipe(entry)["settings"].update(hiden=[1]), "did you mean 'hidden_dims'"),
        (lambda entry: recipe(entry)["settings"].update(type="mpl"), "unknown network 'mpl'; did you mean 'mlp'"),
        (lambda entry: recipe(entry)["settings"].update(type="gru"), "Missing key"),
        (lambda entry: recipe(entry)["spaces"]["observation_space"].update(shape=[10**9, 10**9]), "more than"),
        (lambda entry: recipe(entry)["spaces"].update(other={"type": "discrete", "n": 2}), "unexpected keyword argument"),
        (lambda entry: recipe(entry)["parts"].update(trunk=json.loads(json.dumps(recipe(entry)))), "has no attribute"),
        (lambda entry: entry["component"]["state"]["own"].popitem(), "Missing key"),
        (lambda entry: entry["component"]["state"].update(own=[]), "does not hold what it says"),
        (lambda entry: entry["component"]["state"].update(own={"$tensor": ["component", "x"]}), "it has no tensor 'x'"),
        (lambda entry: entry["component"]["state"].update(own={"$segment": ["a", "b", 0, 1]}), "not a state"),
        (lambda entry: entry["component"]["state"].update(trunks=[{}]), "does not hold what it says"),
    ],
)
def test_a_file_that_lies_is_one_line(change: Callable[[dict[str, Any]], Any], said: str, file: Path) -> None:
    forge(file, change)
    assert said in refusal(file)


def test_a_recipe_within_itself_many_times_is_refused(file: Path) -> None:
    def nest(entry: dict[str, Any]) -> None:
        for _ in range(300):
            entry["component"]["recipe"] = {**recipe(entry), "parts": {"trunk": recipe(entry)}}

    forge(file, nest)
    assert "nested" in refusal(file)


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that leaves a mark when it is imported."""
    mark = tmp_path / "mark"
    (tmp_path / "trap_parts.py").write_text(
        f"from pathlib import Path\nPath({str(mark)!r}).write_text('ran')\n"
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, observation_space, output_size):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(observation_space.shape[0], output_size)\n"
        "    def forward(self, observation):\n"
        "        return self.layer(observation)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return mark


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: recipe(entry).update(settings={"type": "trap_parts:Net"}),
        lambda entry: recipe(entry)["settings"].update(encoders={"observation": {"type": "trap_parts.Net"}}),
        lambda entry: recipe(entry).update(kind="value_function", settings={"class_name": "trap_parts:Net"}),
        lambda entry: recipe(entry).update(kind="policy", settings={"algorithm": {"name": "trap_parts.Net"}}),
        lambda entry: recipe(entry).update(
            kind="policy", settings={"algorithm": {"name": "ppo"}, "network": {"actor": {"type": "trap_parts.Net"}}}
        ),
    ],
)
def test_an_import_path_in_a_strangers_file_is_not_followed(
    change: Callable[[dict[str, Any]], Any], file: Path, trap: Path
) -> None:
    forge(file, change)
    said = refusal(file)
    assert "is code from an import path" in said
    assert "trust=True" in said
    assert not trap.exists()


def test_an_import_path_is_followed_with_trust(tmp_path: Path, trap: Path) -> None:
    made = build_network(Part("trap_parts:Net"), BOX, 2, seed=1)
    path = etude.save_component(made, tmp_path / "net.safetensors")
    assert "pass --trust (in Python trust=True)" in refusal(path)
    seen = torch.rand(4, 3)
    assert torch.equal(etude.load_component(path, trust=True)(seen), made(seen))


def test_a_class_that_is_gone_is_named(tmp_path: Path, trap: Path) -> None:
    path = etude.save_component(build_network(Part("trap_parts:Net"), BOX, 2, seed=1), tmp_path / "net.safetensors")
    forge(path, lambda entry: recipe(entry)["settings"].update(type="trap_parts:Nett"))
    assert "module 'trap_parts' has no 'Nett'; did you mean 'Net'?" in refusal(path, trust=True)
    forge(path, lambda entry: recipe(entry)["settings"].update(type="nowhere_at_all:Net"))
    assert "there is no module 'nowhere_at_all' here" in refusal(path, trust=True)


def test_a_component_made_by_hand_says_how_to_make_one_that_can_be_saved(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"this Linear can't be saved: how it was made isn't known. Have it built"):
        etude.save_component(nn.Linear(2, 2), tmp_path / "linear.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_space_that_is_no_data_can_not_be_saved_with_its_policy(tmp_path: Path) -> None:
    config = compose("CartPole-v1:random", words=["experiment.device=cpu"]).config
    policy = assembly.build_workflow(config, spaces.Text(4), spaces.Discrete(2)).policy()
    with pytest.raises(UserError, match="a Text space has no form as data"):
        etude.save_component(policy, tmp_path / "policy.safetensors")


def test_a_save_that_fails_leaves_the_file_before_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()

    def full(path: Path, *_: Any) -> None:
        path.write_bytes(before[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(component_file, "write_tensors", full)
    with pytest.raises(EtudeError, match=rf"^{file}: can't be written: No space left on device$"):
        etude.save_component(RewardNormalizer(2, 0.9), file)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(EtudeError, match=r"can't be written: No such file or directory"):
        etude.save_component(mlp(), tmp_path / "nowhere" / "network.safetensors")


def test_a_component_of_a_device_that_is_not_here_loads_on_the_cpu(file: Path) -> None:
    assert {weight.device.type for weight in etude.load_component(file).parameters()} == {"cpu"}
    with pytest.raises(CheckpointError):
        etude.load_component(file.with_name("other"))
