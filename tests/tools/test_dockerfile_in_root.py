"""What stands in for Docker where there is none reads Dockerfiles as Docker does."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tools.dockerfile_in_root import Image, steps

ROOT = Path(__file__).parents[2]


def test_comments_and_line_breaks_are_resolved() -> None:
    text = "# FROM x\nARG A=1\nFROM b\nRUN one \\\n    # a comment amid\n    && two\n\nUSER me\n"
    found = [(step, " ".join(rest.split())) for step, rest in steps(text)]
    assert found == [("ARG", "A=1"), ("FROM", "b"), ("RUN", "one && two"), ("USER", "me")]


def test_copies_variables_and_folders_are_those_of_the_dockerfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, root = tmp_path / "context", tmp_path / "root"
    (context / "src" / "__pycache__").mkdir(parents=True)
    (context / "src" / "a.py").write_text("a")
    (context / "one.txt").write_text("1")
    (context / ".dockerignore").write_text("*\n!src\n**/__pycache__\n")
    root.mkdir()
    image = Image(root, context, {"B": "given"})
    ran = []
    monkeypatch.setattr(Image, "run", lambda self, words, user, environment: ran.append((words, user, dict(environment))))
    text = "ARG A=x\nARG B=y\nFROM base\nENV P=${A}/bin Q=$B\nWORKDIR /srv\n"
    text += "COPY one.txt ./\nCOPY src ./src\nUSER me\nRUN make it\n"
    for step, rest in steps(text):
        image.do(step, rest)
    assert (root / "srv" / "one.txt").read_text() == "1"
    assert [path.name for path in (root / "srv" / "src").iterdir()] == ["a.py"]
    ((words, user, environment),) = ran
    assert (words, user) == (["/bin/sh", "-c", "make it"], "me")
    assert environment | {"PATH": ""} == {"A": "x", "B": "given", "P": "x/bin", "Q": "given", "PATH": ""}


def test_ours_has_only_steps_that_can_be_tried_and_ends_as_a_user() -> None:
    found = list(steps((ROOT / "docker" / "Dockerfile").read_text()))
    assert {step for step, _ in found} <= {"ARG", "FROM", "RUN", "ENV", "WORKDIR", "COPY", "USER", "CMD"}
    assert [rest for step, rest in found if step == "USER"] == ["etude"]
    last = max(index for index, (step, _) in enumerate(found) if step in ("RUN", "COPY"))
    assert [step for step, _ in found].index("USER") > last, "nothing is built as the user who trains"
    for step, rest in found:
        for source in rest.split()[:-1] if step == "COPY" else []:
            assert (ROOT / source).exists()
            assert f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()


def test_the_compose_file_has_a_service_for_each() -> None:
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    cpu, gpu = compose["services"]["cpu"], compose["services"]["gpu"]
    assert cpu["build"]["dockerfile"] == gpu["build"]["dockerfile"] == "docker/Dockerfile"
    assert gpu["build"]["args"] == {"TORCH_INDEX": ""}
    assert gpu["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
    assert gpu["profiles"] == ["gpu"], "a machine without a GPU starts the other alone"
    named = {volume.partition(":")[0] for service in (cpu, gpu) for volume in service["volumes"]}
    assert named == set(compose["volumes"])
