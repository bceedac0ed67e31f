"""The documentation of every setting, and the page that holds it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from etude.config.aliases import ALIASES
from etude.config.compose import compose
from etude.config.explain import explain_config, option_docs
from etude.config.registry import REGISTRIES
from etude.config.schema import Config
from etude.config.validate import field_types, options_schema, to_plain
from tests.config.conftest import Write
from tools.reference.configuration import refresh

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMAND = "python -m tools.reference.configuration docs/configuration.md"


def _schemas() -> list[type]:
    sections = [Config, *(kind for kind in field_types(Config).values() if isinstance(kind, type) and kind is not int)]
    nested = [kind for section in sections for kind in field_types(section).values() if hasattr(kind, "__dataclass_fields__")]
    parts = [options_schema(registry.resolve(n)) for registry in REGISTRIES.values() for n in registry.builtin_names()]
    return list(dict.fromkeys([*sections, *nested, *(part for part in parts if part is not None)]))


@pytest.mark.parametrize("schema", _schemas(), ids=lambda schema: schema.__name__)
def test_every_setting_is_documented(schema: type) -> None:
    missing = [name for name in field_types(schema) if not option_docs(schema).get(name)]
    assert not missing, f"write a string below each of these fields of {schema.__name__}: {missing}"


def test_the_generated_reference_is_fresh() -> None:
    assert refresh(TEXT) == TEXT, f"docs/configuration.md is stale; refresh it: {COMMAND}"


def test_refreshing_keeps_what_is_written_by_hand_and_needs_its_markers() -> None:
    stale = TEXT.replace("| `algorithm.gamma` |", "| `algorithm.alpha` |")
    assert stale != TEXT
    assert refresh(stale) == TEXT
    with pytest.raises(ValueError, match="no place for the reference"):
        refresh("# A page\n")


@dataclass(frozen=True)
class _Parent:
    first: int = 1
    """The first,
    on two lines."""


@dataclass(frozen=True)
class _Child(_Parent):
    second: int = 2
    """The second."""
    third: int = 3


def test_documentation_is_the_string_below_a_field_inherited_ones_too() -> None:
    assert option_docs(_Child) == {"first": "The first, on two lines.", "second": "The second."}


def test_explaining_shows_every_setting_in_play_with_its_value() -> None:
    composition = compose("CartPole-v1:ppo", words=["algorithm.gamma=0.5"])
    text = explain_config(composition)
    assert "algorithm.gamma = 0.5  (command line)\n    Discount: " in text
    assert "network.critic.hidden_dims = [64, 64]  (default of ppo)\n    Units per hidden layer." in text
    assert "algorithm.epochs = 20  (environment preset CartPole-v1:ppo)\n" in text
    assert "logging.wandb.enabled = false  (default)\n" in text
    for section, values in to_plain(composition.config).items():
        if section != "version":
            assert f"# {section}: " in text
            for key, value in values.items():
                assert f"{section}.{key}" in text or not value


def test_explaining_another_algorithm_shows_its_settings_alone() -> None:
    assert "learning_rate" not in explain_config(compose("CartPole-v1:random"))


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.parametrize("block", _blocks("yaml"))
def test_every_yaml_block_on_the_page_composes(write: Write, block: str) -> None:
    write("block.yaml", "")
    Path("block.yaml").write_text(block, encoding="utf-8")
    spec = "CartPole-v1:careful" if "careful:" in block else None
    assert compose(spec, file=Path("block.yaml")).config.algorithm.name == "ppo"


COMMANDS = [line for block in _blocks("bash") for line in block.splitlines() if "etude" in line]


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith(("etude train", "etude config"))])
def test_every_command_on_the_page_composes(write: Write, line: str) -> None:
    words = [word for word in shlex.split(line, comments=True)[2:] if not word.startswith("--")]
    spec = words.pop(0) if "=" not in words[0] else None
    assert compose(spec, words=words)


def test_the_error_on_the_page_is_the_one_users_see(write: Write) -> None:
    from etude.errors import ConfigError

    write("my.yaml", "\n" * 11 + "algorithm: {learning_rat: 1}")
    Path("my.yaml").write_text("#\n" * 11 + "algorithm: {learning_rat: 1}")
    with pytest.raises(ConfigError) as raised:
        compose("CartPole-v1:ppo", file=Path("my.yaml"))
    assert str(raised.value) in TEXT


def test_the_page_names_other_spellings_that_exist() -> None:
    table = TEXT.partition("## Other spellings")[2].partition("## Every setting")[0]
    for word in ("total_timesteps", "max_timesteps", "policy_lr", "clip_ratio", "ent_coef", "n_steps", "n_envs", "env_id"):
        assert word in table
        assert any(old.endswith(word) for old in ALIASES)
