from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from etude.errors import CheckpointError
from etude.runs import part_files
from etude.runs.checkpoint import Checkpoint, CheckpointStore

Save = Callable[..., Checkpoint]
Same = Callable[[object, object], bool]
COUNTERS = {"env_steps": 128, "updates": 4, "decisions": 128, "episodes": 3, "cycles": 1}


def awkward_tensors() -> dict[str, torch.Tensor]:
    base = torch.randn(6, 4)
    return {
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 3, dtype=torch.int64),
        "bool": torch.tensor([True, False, True]),
        "int64": torch.tensor([-(2**63), 2**63 - 1]),
        "half": torch.tensor([1.0, float("nan"), float("-inf")], dtype=torch.float16),
        "brain": torch.randn(5).bfloat16(),
        "odd": torch.arange(7, dtype=torch.uint8),
        "turned": base.t(),
        "row": base[2],
        "expanded": torch.ones(1).expand(3),
        "channels_last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "negated": torch.view_as_complex(torch.randn(3, 2)).conj().imag,
        "parameter": torch.nn.Parameter(torch.randn(2)),
    }


def test_a_checkpoint_comes_back_exactly(store: CheckpointStore, same: Same) -> None:
    parts: dict[str, object] = {
        "policy": {"tensors": awkward_tensors()},
        "shared": {"numbers": (1, 2.5, None), 3: [2**100]},
        "rank/0": [torch.get_rng_state()],
    }
    saved = store.save(parts, counters=COUNTERS, metadata={"score": float("inf"), "pair": (1, 2)})
    saved.verify()
    assert same(parts, saved.load())
    (listed,) = store.list()
    assert listed == saved
    assert (saved.kind, saved.sequence, saved.name) == ("full", 0, "000000-128-4")
    assert saved.counters == COUNTERS
    assert saved.metadata == {"score": float("inf"), "pair": (1, 2)}


def test_the_tensor_files_are_ordinary_safetensors(store: CheckpointStore, same: Same) -> None:
    tensors = awkward_tensors()
    saved = store.save({"policy": tensors}, counters=COUNTERS, metadata={})
    loaded = load_file(saved.path / "policy" / "tensors.safetensors")
    assert same(dict(sorted(tensors.items())), dict(sorted(loaded.items())))


def test_the_layout_on_disk(save: Save) -> None:
    saved = save(100, best=True)
    files = sorted(str(path.relative_to(saved.path)) for path in saved.path.rglob("*") if path.is_file())
    listed = [f"{part}/{file}" for part in ("policy", "rank/0", "shared") for file in ("state.json", "tensors.safetensors")]
    assert files == sorted(["manifest.json", *listed])
    manifest = json.loads((saved.path / "manifest.json").read_text())
    assert manifest["format"] == 2
    assert manifest["kind"] == "full"
    assert manifest["is_best"] is True
    assert manifest["created"].endswith("+00:00")
    assert sorted(manifest["files"]) == listed
    assert set(manifest["files"]["policy/state.json"]) == {"sha256", "size"}
    assert sorted(os.listdir(saved.path.parent)) == ["000000-100-2", "best", "last"]


def test_weights_shared_between_parts_are_stored_once_and_shared_again(store: CheckpointStore) -> None:
    weight = torch.randn(100, 100)
    saved = store.save({"policy": {"w": weight}, "shared": {"w": weight}}, counters=COUNTERS, metadata={})
    assert saved.files["shared/tensors.safetensors"].size < 100
    everything = saved.load()
    assert everything["policy"]["w"] is everything["shared"]["w"]  # pyright: ignore[reportIndexIssue]
    alone = saved.load(["shared"])
    assert list(alone) == ["shared"]
    assert torch.equal(alone["shared"]["w"], weight)  # pyright: ignore[reportIndexIssue]


def test_a_policy_is_loadable_without_anything_else(save: Save) -> None:
    saved = save(100)
    shutil.rmtree(saved.path / "shared")
    shutil.rmtree(saved.path / "rank")
    assert torch.equal(saved.load(["policy"])["policy"]["weight"], torch.full((4, 3), 100.0))  # pyright: ignore[reportIndexIssue]
    with pytest.raises(CheckpointError, match=r"shared/state\.json: missing"):
        saved.load()


def test_loaded_tensors_do_not_depend_on_the_file(save: Save) -> None:
    saved = save(100)
    weight = saved.load(["policy"])["policy"]["weight"]  # pyright: ignore[reportIndexIssue]
    with open(saved.path / "policy" / "tensors.safetensors", "r+b") as file:
        file.truncate(0)
    weight.add_(1)
    assert weight.sum() == 12 * 101


def test_a_part_that_is_not_there_is_named(save: Save) -> None:
    with pytest.raises(CheckpointError, match="has no part 'rank/1'; it has policy, shared, rank/0"):
        save(100).load(["rank/1"])


@pytest.mark.parametrize("failing", ["fsync", "rename", "mkdir", "write_tensors"])
def test_a_full_disk_is_one_clear_line_and_leaves_the_old_ones_whole(
    store: CheckpointStore, save: Save, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    save(100)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if failing == "write_tensors":
            patch.setattr(part_files, "write_tensors", full)
        else:
            patch.setattr(os, failing, full)
        with pytest.raises(CheckpointError, match=r"000001-200-2 could not be saved in .*: No space left") as raised:
            save(200)
    assert "\n" not in str(raised.value)
    assert sorted(os.listdir(store.directory)) == ["000000-100-2", "last"]
    assert store.newest_whole().counters["env_steps"] == 100
    assert save(300).sequence == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_clear_line(store: CheckpointStore, save: Save) -> None:
    save(100)
    store.directory.chmod(0o555)
    try:
        with pytest.raises(CheckpointError, match="Permission denied"):
            save(200)
    finally:
        store.directory.chmod(0o755)
    assert store.newest_whole().counters["env_steps"] == 100


def test_a_folder_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(CheckpointError, match="Not a directory"):
        CheckpointStore(tmp_path / "checkpoints", 1).save({"policy": {}}, counters=COUNTERS, metadata={})


def test_state_that_can_t_be_stored_writes_nothing(store: CheckpointStore) -> None:
    with pytest.raises(TypeError, match=r"^workflow\.foo: a object"):
        store.save({"shared": {"workflow": {"foo": object()}}}, counters=COUNTERS, metadata={})
    weight = torch.zeros(1)
    with pytest.raises(TypeError, match="metadata"):
        store.save({"policy": {"w": weight}}, counters=COUNTERS, metadata={"t": weight})
    assert not store.directory.exists()


def test_state_too_long_to_be_loaded_again_is_refused_when_saved(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_files, "MAX_JSON", 100)
    with pytest.raises(CheckpointError, match="keep long lists as tensors"):
        store.save({"shared": list(range(100))}, counters=COUNTERS, metadata={})
    assert os.listdir(store.directory) == []
