"""Environments by universe, domain and task: another way to write an id, with parts that can be varied one by one."""

from __future__ import annotations

from etude.errors import UserError, did_you_mean

_FORMS = {"gym": "{domain}-{task}", "dm_control": "dmc/{domain}-{task}", "atari": "ALE/{domain}-{task}"}
_OTHER_NAMES = {"gymnasium": "gym", "dmc": "dm_control", "ale": "atari"}
_EXAMPLES = {
    "gym": "--universe gym --domain HalfCheetah --task v5",
    "dm_control": "--universe dm_control --domain cheetah --task run",
    "atari": "--universe atari --domain Pong --task v5",
}


def environment_id(universe: str | None, domain: str | None, task: str | None, *, mark: str = "--") -> str:
    """Return the id that these name, gym where no universe is said; `mark` stands before each word in what is complained of."""
    name = _OTHER_NAMES.get(universe or "gym", universe or "gym")
    if name not in _FORMS:
        known = ", ".join(_FORMS)
        raise UserError(f"{mark}universe {universe}: no such universe{did_you_mean(name, _FORMS)} (there are: {known})")
    missing = [f"{mark}{part}" for part, value in (("domain", domain), ("task", task)) if not value]
    if missing:
        raise UserError(f"{' and '.join(missing)}: is missing; for example {_EXAMPLES[name].replace('--', mark)}")
    return _FORMS[name].format(domain=domain, task=task)


def spec_of(
    spec: str | None, *, universe: str | None, domain: str | None, task: str | None, algorithm: str | None
) -> str | None:
    """Return ENV:ALGO as flags say it, or as it was given; raises UserError where both say something."""
    is_named = any(part is not None for part in (universe, domain, task))
    if is_named:
        if spec is not None:
            raise UserError(f"{spec}: --universe, --domain and --task name the environment already; leave one of the two out")
        if algorithm is None:
            raise UserError(f"which algorithm? --algorithm sac, or as one word: {environment_id(universe, domain, task)}:sac")
        return f"{environment_id(universe, domain, task)}:{algorithm}"
    if algorithm is None:
        return spec
    if spec is None:
        raise UserError(f"--algorithm {algorithm}: in which environment? name it: etude train CartPole-v1:{algorithm}")
    if ":" in spec:
        raise UserError(f"--algorithm {algorithm}: {spec} has a part after the colon already; leave one of the two out")
    return f"{spec}:{algorithm}"
