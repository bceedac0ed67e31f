"""`etude config`: print a complete config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from etude.cli.output import emit, note, say
from etude.cli.parameters import Spec, Words
from etude.cli.starting import starting

if TYPE_CHECKING:
    from etude.config.compose import Composition


def config(
    spec: Spec = None,
    /,
    *overrides: Words,
    file: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    explain: bool = False,
    class_specs: bool = False,
) -> int:
    """Print the complete config of a run without starting it; the output can be loaded again with --config.

    Parameters
    ----------
    spec
        What to train, such as CartPole-v1:ppo.
    overrides
        Settings, such as algorithm.gamma=0.98.
    file
        A YAML or JSON file of settings.
    as_json
        Print JSON instead of YAML.
    explain
        Print each setting with where it came from and what it does.
    class_specs
        Print the run's parts as {class_name, config}, as softlearning writes them (sac and sql).
    """
    with starting(spec or "config", plain=False) as tell:
        tell("loading torch")  # algorithms bring it, and they know what can be set
        from etude.config.compose import compose

        composition = compose(spec, file=file, words=overrides)
    if class_specs:
        from etude.config.class_specs import write
        from etude.config.validate import to_yaml

        written = write(composition.config)
        emit(json.dumps(written, indent=2) + "\n" if as_json else to_yaml(written))
    elif explain and as_json:
        from dataclasses import asdict

        from etude.config.explain import explained

        emit(json.dumps([asdict(setting) for setting in explained(composition)], indent=2) + "\n")
    elif explain:
        from etude.config.explain import explain_config

        say(explain_config(composition))
    elif as_json:
        from etude.config.validate import to_plain

        emit(json.dumps(to_plain(composition.config), indent=2) + "\n")
    else:
        print_yaml(composition)
    return 0


def print_yaml(composition: Composition) -> None:
    """Print a config to stdout, and to stderr the spellings that were translated."""
    from etude.config.validate import to_yaml

    for translated in composition.notes:
        note(f"read as: {translated}")
    emit(to_yaml(composition.config))
