"""Parameters that several verbs share, each with its help; a verb's docstring explains only its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

RunName = Annotated[str, Parameter(name="RUN", help="@last, @best, an id, a unique prefix of one, a name, or a path.")]
RunNames = Annotated[str, Parameter(name="RUN", help="@last, @best, ids, unique prefixes of ids, names, or paths.")]
Spec = Annotated[str | None, Parameter(name="ENV:ALGO", show_default=False)]
Words = Annotated[str, Parameter(name="key=value")]
RunsFolder = Annotated[Path | None, Parameter(help="Where runs live. Default: $ETUDE_RUNS, or ./runs.")]
AsJson = Annotated[bool, Parameter(name="--json", help="Print JSON.")]
Trust = Annotated[bool, Parameter(help="Honour import paths in the config of somebody else's run.")]
StoredCode = Annotated[
    bool,
    Parameter(help="Use the code that the run was made with, restored into its own worktree, instead of what is here now."),
]
Device = Annotated[
    str | None, Parameter(help="Where the networks run. Default: as trained, or the CPU where that device is missing.")
]
RenderOptions = Annotated[str | None, Parameter(alias="--render-kwargs")]
PauseAt = Annotated[
    int | None,
    Parameter(help="Save and stop at the first evaluation from these environment steps on; `etude resume` goes on exactly."),
]
Quiet = Annotated[bool, Parameter(alias="-q", help="Print nothing but errors and the last line.")]
