"""A dashboard of a W&B project: one saved view with sections for training, evaluations, diagnostics and videos.

The view has a fixed name of its own, so making it again finds it; W&B's packages `wandb` and `wandb-workspaces` do the rest.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from etude.errors import EtudeError, UserError

AXIS = "env_steps"
NAME = "Etude"
SECTIONS: dict[str, Sequence[tuple[str, Sequence[str]]]] = {
    "train": (
        ("Return of training episodes", ("collect/return_mean",)),
        ("Best so far", ("collect/return_best",)),
        ("Length of training episodes", ("collect/length_mean",)),
        ("Loss", ("train/loss",)),
        ("Policy loss", ("train/policy_loss",)),
        ("Critic loss", ("train/value_loss", "train/q_loss")),
    ),
    "eval": (
        ("Return", ("eval/return_mean",)),
        ("Best so far", ("eval/return_best",)),
        ("Lowest and highest episode", ("eval/return_min", "eval/return_max")),
        ("Length", ("eval/length_mean",)),
    ),
    "Diagnostics": (
        ("Entropy", ("train/entropy",)),
        ("Divergence of the policy", ("train/approx_kl",)),
        ("Clipped", ("train/clip_fraction",)),
        ("Explained variance", ("train/explained_variance",)),
        ("Gradient norms", ("train/grad_norm", "train/grad_norm_actor", "train/grad_norm_critic")),
        ("Temperature", ("train/alpha",)),
        ("Learning rate", ("hp/learning_rate",)),
        ("Steps per second", ("time/steps_per_second",)),
        ("Memory in MiB", ("system/memory_mib", "system/gpu_memory_mib")),
    ),
}
VIDEOS = ("media/policy",)
_MOST_RUNS = 1000


class Outcome(NamedTuple):
    """What became of a request for a dashboard."""

    state: str
    """created, overwritten or there already."""
    url: str


def dashboard(entity: str, project: str, name: str = NAME, *, unselected: Sequence[str] = ()) -> Any:
    """Return the view, as an object of W&B's package; `unselected` are the ids of runs that it does not show at first."""
    workspaces, panels = _packages()
    sections = [
        workspaces.Section(
            name=title,
            is_open=True,
            panels=[
                _numbered(panels.LinePlot(title=label, x=AXIS, y=list(metrics)), title, label) for label, metrics in charts
            ],
        )
        for title, charts in SECTIONS.items()
    ]
    videos = _numbered(panels.MediaBrowser(title="Videos", media_keys=list(VIDEOS)), "Videos", "Videos")
    sections.append(workspaces.Section(name="Videos", is_open=True, panels=[videos]))
    hidden = {run: workspaces.RunSettings(disabled=True) for run in unselected}
    made = workspaces.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=sections,
        settings=workspaces.WorkspaceSettings(x_axis=AXIS),
        runset_settings=workspaces.RunsetSettings(run_settings=hidden),
    )
    # Not a public name of the package: what `save` would otherwise draw at random, so that no second call could find it.
    made._internal_name = f"nw-{_key(name)}-v"
    return made


def as_json(entity: str, project: str, name: str = NAME) -> str:
    """Return exactly what would be sent, as indented JSON; nothing is asked of W&B."""
    view = dashboard(entity, project, name)._to_model()
    spec = json.loads(view.spec.model_dump_json(by_alias=True, exclude_none=True))
    shown = {"entity": entity, "project": project, "name": view.name, "displayName": name, "spec": spec}
    return json.dumps(shown, indent=2, sort_keys=True)


def save(
    entity: str | None, project: str, name: str = NAME, *, overwrite: bool = False, select_latest: bool = False
) -> Outcome:
    """Create the view, or with `overwrite` put it back to what it was made as; one that is there is else left alone."""
    workspaces, _ = _packages()
    wandb = importlib.import_module("wandb")
    try:
        api = wandb.Api()
        owner = entity or api.default_entity
        if not owner:
            raise UserError("--entity: say which user or team owns the project")
        known = _existing(workspaces, api, owner, project, name)
        if known is not None and not overwrite:
            return Outcome("there already", known.url)
        others = _all_but_latest(api, owner, project) if select_latest else ()
        made = dashboard(owner, project, name, unselected=others)
        if known is not None:
            made._internal_id = known._internal_id
        made.save()
        return Outcome("created" if known is None else "overwritten", made.url)
    except (wandb.errors.Error, OSError, ValueError) as error:
        said = " ".join(str(error).split())
        raise EtudeError(f"W&B can't be asked: {said} (is this machine online, and `wandb login` done?)") from error


def _existing(workspaces: Any, api: Any, entity: str, project: str, name: str) -> Any:
    from urllib.parse import quote

    base = importlib.import_module("wandb_workspaces._graphql").get_app_url(api).rstrip("/")
    try:
        return workspaces.Workspace.from_url(f"{base}/{quote(entity)}/{quote(project)}?nw={_key(name)}")
    except ValueError as error:
        if "not found in project" in str(error):
            return None
        raise


def _all_but_latest(api: Any, entity: str, project: str) -> list[str]:
    runs = api.runs(f"{entity}/{project}", order="-created_at", per_page=100)
    return [run.id for run, _ in zip(runs, range(_MOST_RUNS), strict=False)][1:]


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", f"etude{name.lower().removeprefix('etude')}")


def _numbered(panel: Any, section: str, label: str) -> Any:
    """The panel with an id that follows from its place: the package draws one at random, and no two calls would be the same."""
    panel._id = _key(f"{section}{label}")[:64]
    return panel


def _packages() -> tuple[Any, Any]:
    for package in ("wandb", "wandb_workspaces"):
        if find_spec(package) is None:
            raise UserError("a dashboard needs W&B's packages: pip install 'etude[wandb]'")
    return importlib.import_module("wandb_workspaces.workspaces"), importlib.import_module("wandb_workspaces.reports.v2")
