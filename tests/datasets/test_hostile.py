"""Files of strangers: nothing pickled, no link followed, nothing outside the root, nothing larger than allowed."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from etude.datasets import foreign_files
from etude.datasets.dataset import Dataset
from etude.datasets.manifest import DatasetError
from etude.datasets.places import MANIFEST, SEGMENTS, folder_of
from etude.datasets.writer import writing
from etude.errors import EtudeError, UserError
from etude.runs.tensor_file import write_tensors
from tests.datasets.episodes import manifest, write

NAMES = ("", "..", "a/../../b", "/etc", "a//b", ".hidden", "a/segments", "x" * 200, "a\nb", "a/b/c/d/e")


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leads_out_of_the_root(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="a name is up to 4 words"):
        folder_of(name, tmp_path)


def test_no_link_is_followed(tmp_path: Path) -> None:
    dataset = write(tmp_path)
    (tmp_path / "linked").symlink_to(dataset.folder)
    with pytest.raises(UserError, match="is a link"):
        Dataset.open("linked", tmp_path)
    segment = next((dataset.folder / SEGMENTS).iterdir())
    segment.rename(tmp_path / "elsewhere")
    segment.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EtudeError, match="is a link"):
        dataset.load()
    segment.unlink()
    (dataset.folder / SEGMENTS).rename(tmp_path / "segments")
    (dataset.folder / SEGMENTS).symlink_to(tmp_path / "segments")
    for act in (dataset.load, lambda: writing(dataset.folder, manifest()).__enter__()):
        with pytest.raises(EtudeError, match="is a link"):
            act()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(format=9), "format 9 is of a newer Etude"),
        (lambda m: m.update(surprise=1), "unknown key"),
        (lambda m: m.update(observation_space={"type": "box"}), "shape: is needed"),
        (lambda m: m["segments"][0].update(file="../../etc/passwd"), "a segment is a file in segments/"),
        (lambda m: m["segments"][0].update(sha256="0" * 64), "is not what dataset.json says"),
        (lambda m: m["segments"][0].update(steps=10**15), "has no room for"),
        (lambda m: m["segments"][0].update(steps=14), "other lengths than"),
        (lambda m: m["segments"][0].update(returns=[1.0]), "has 1 returns of 3 episodes"),
        (lambda m: m["segments"][0].update(size=-1), "size=-1"),
        (lambda m: m["observation_space"].update(shape=[4]), "its space says"),
    ],
)
def test_a_manifest_that_lies_is_one_line(tmp_path: Path, change: object, said: str) -> None:
    folder = write(tmp_path).folder
    data = json.loads((folder / MANIFEST).read_text())
    change(data)  # type: ignore[operator]
    (folder / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(EtudeError, match=said) as caught:
        Dataset.open("some/data", tmp_path).load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 7,
        (2**40).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        *(
            len(head := json.dumps({"reward": {"dtype": "F32", **entry}}).encode()).to_bytes(8, "little") + head + b"1234"
            for entry in (
                {"shape": [2**50], "data_offsets": [0, 4]},
                {"shape": [-1], "data_offsets": [0, 4]},
                {"shape": [1], "data_offsets": [4, 8]},
                {"shape": "x", "data_offsets": [0, 4]},
                {"shape": [True], "data_offsets": [0, 4]},
            )
        ),
    ],
)
def test_a_segment_that_lies_is_one_line(tmp_path: Path, content: bytes) -> None:
    from hashlib import sha256

    folder = write(tmp_path).folder
    data = json.loads((folder / MANIFEST).read_text())
    record = data["segments"][0]
    digest = sha256(content).hexdigest()
    record |= {"sha256": digest, "size": max(1, len(content)), "file": f"{0:012d}-{digest[:16]}.safetensors"}
    (folder / MANIFEST).write_text(json.dumps(data))
    (folder / SEGMENTS / record["file"]).write_bytes(content)
    with pytest.raises(DatasetError):
        Dataset.open("some/data", tmp_path).load()


def test_lengths_that_lie_are_found(tmp_path: Path) -> None:
    from hashlib import sha256

    dataset = write(tmp_path)
    columns = dataset.load() | {"length": torch.tensor([20, -8, 3])}
    path = dataset.folder / SEGMENTS / "new"
    digest, size = write_tensors(path, columns)
    assert digest == sha256(path.read_bytes()).hexdigest()
    path.rename(path.with_name(name := f"{0:012d}-{digest[:16]}.safetensors"))
    data = json.loads((dataset.folder / MANIFEST).read_text())
    data["segments"][0] |= {"sha256": digest, "size": size, "file": name}
    (dataset.folder / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(DatasetError, match="other lengths than 15 steps"):
        list(Dataset.open("some/data", tmp_path).episodes())


class _Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch pwned",)


def test_nothing_pickled_in_an_npz_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bomb = np.array([_Bomb()], dtype=object)
    np.savez("bomb.npz", observations=bomb, allow_pickle=True)
    with zipfile.ZipFile("raw.npz", "w") as archive:
        archive.writestr("observations.npy", pickle.dumps(_Bomb()))
    for name in ("bomb.npz", "raw.npz"):
        with pytest.raises(UserError):
            foreign_files.read_npz(Path(name))
    assert not Path("pwned").exists()


def test_what_unpacks_to_too_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "large.npz", observations=np.zeros(100_000))
    with pytest.raises(UserError, match="more than the 1,000 allowed"):
        foreign_files.read_npz(tmp_path / "large.npz", 1000)
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "lies.npz", "w") as archive:
        archive.writestr("observations.npy", buffer.getvalue())
    with pytest.raises(UserError, match="its header claims"):
        foreign_files.read_npz(tmp_path / "lies.npz")


def test_hdf5_leads_nowhere_else(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["observations"] = np.zeros((3, 2))
    with h5py.File(tmp_path / "links.h5", "w") as file:
        file["observations"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "observations")
    with h5py.File(tmp_path / "soft.h5", "w") as file:
        file["observations"] = h5py.SoftLink("/elsewhere")
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((3, 2), float)
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "observations", (3, 2))
        file.create_virtual_dataset("observations", layout)
    with h5py.File(tmp_path / "text.h5", "w") as file:
        file["observations"] = np.array(["a"], dtype="S1")
    with h5py.File(tmp_path / "large.h5", "w") as file:
        file.create_dataset("observations", (10**9, 100), float, chunks=(1000, 100), compression="gzip")
    for name, said in (
        ("links", "is a link"),
        ("soft", "is a link"),
        ("virtual", "lies in another file"),
        ("text", "only numbers"),
        ("large", "more than the"),
    ):
        with pytest.raises(UserError, match=said):
            foreign_files.read_hdf5(tmp_path / f"{name}.h5")
