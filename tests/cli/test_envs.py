"""`etude envs`: every environment by family, quickly, and the way to those that are not installed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from etude.cli import run as etude


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]):
    def call(*arguments: str) -> str:
        assert etude(["envs", *arguments]) == 0
        return capsys.readouterr().out

    return call


def test_tuned_variants_come_first_in_their_family(printed) -> None:
    lines = printed().splitlines()
    begin = lines.index("Classic control  classic")
    family = lines[begin + 1 : lines.index("", begin)]
    assert any(line.split()[:1] == ["CartPole-v1:ppo"] and "Balance a pole" in line for line in family)
    assert family.index("  CartPole-v0") == len(family) - 1
    assert not any(line != line.rstrip() for line in lines)


def test_a_family_with_a_preset_says_what_any_of_its_ids_has_settings_for(printed) -> None:
    assert "  any id has settings for ppo, ppo_gpu, a2c, reinforce, dqn, sac" in printed("SpaceInvaders-v5")
    assert "any id" not in printed("--family", "small")
    (family,) = json.loads(printed("--family", "toy", "--json"))
    assert family["variants"] == ["q_learning", "ppo", "a2c", "dqn"]


def test_a_search_looks_into_ids_descriptions_and_names_of_families(printed) -> None:
    assert "CartPole-v1:ppo" in printed("cartpole")
    assert printed("weak engine").count(":") == 1
    assert "MountainCarContinuous-v0:sac" in printed("weak engine")
    toy = printed("toy")
    assert "Blackjack-v1" in toy
    assert "CartPole" not in toy


def test_what_is_not_there_is_a_sentence_with_what_is_near(printed) -> None:
    assert "near it are Pendulum-v1" in printed("Pendlum")
    assert printed("qqqqqqqq").startswith("no environment has 'qqqqqqqq'")


def test_a_family_that_is_not_installed_says_how_to_install_it(printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    assert "not installed: pip install 'etude[atari]'" in printed("--family", "atari")
    assert "pip install 'etude[atari]'" in printed("ALE/Pong-v5")
    (family,) = json.loads(printed("--family", "atari", "--json"))
    assert (family["installed"], family["missing"]) == (False, ["ale_py"])
    assert family["install"] == "pip install 'etude[atari]'"


def test_a_family_is_shown_whole_when_asked_for(printed) -> None:
    assert "more: etude envs --family mujoco" in printed()
    assert "Walker2d-v4" in printed("--family", "mujoco")
    assert "Walker2d-v3" not in printed("--family", "mujoco")  # gone from Gymnasium
    assert "CartPole" not in printed("--family", "mujoco")


def test_an_unknown_family_names_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["envs", "--family", "mojoco"]) == 2
    assert "did you mean 'mujoco'?" in capsys.readouterr().err


def test_json_has_every_family_with_its_ids(printed) -> None:
    families = {family["family"]: family for family in json.loads(printed("--json"))}
    cartpole = next(each for each in families["classic"]["environments"] if each["id"] == "CartPole-v1")
    assert "ppo" in cartpole["variants"]
    assert len({each["id"] for family in families.values() for each in family["environments"]}) == sum(
        len(family["environments"]) for family in families.values()
    )


def test_listing_imports_no_heavy_package() -> None:
    code = "import sys; from etude.cli import run; run(['envs']); print([m for m in ('torch', 'mujoco') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
