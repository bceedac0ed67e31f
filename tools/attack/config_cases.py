"""Random configs from the real schema: sound, at the border, wrong in type or range, misspelled, or broken files."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml

from etude.config.aliases import ALIASES
from etude.config.constraints import Bounds, Component
from etude.config.overrides import quote
from etude.config.registry import REGISTRIES, algorithms
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import field_types, options_schema

ENVIRONMENTS = {  # how often each is drawn: quick ones more often
    "CartPole-v1": 6,
    "Pendulum-v1": 6,
    "MountainCarContinuous-v0": 2,
    "Acrobot-v1": 1,
    "FrozenLake-v1": 4,
    "Taxi-v4": 2,
    "Blackjack-v1": 2,
    "Bandit-v0": 2,
    "MultiGoal-v0": 2,
    "PointReach-v0": 4,  # a Dict observation
    "MemoryCorridor-v0": 2,
    "CartPoleNoVelocity-v0": 1,
    "LunarLander-v3": 1,
}
FITTING = {  # algorithms that work with a task, drawn more often than the others
    "Pendulum-v1": ("ppo", "sac", "td3", "tqc", "sql", "a2c"),
    "MountainCarContinuous-v0": ("ppo", "sac", "td3", "tqc"),
    "MultiGoal-v0": ("sql", "sac", "ppo", "td3"),
    "PointReach-v0": ("sac", "td3", "ppo", "tqc"),
    "FrozenLake-v1": ("q_learning", "dqn", "ppo"),
    "Taxi-v4": ("q_learning", "dqn", "ppo"),
}
OTHERWISE_FITTING = ("ppo", "dqn", "a2c", "reinforce", "sac", "random")

STRANGE_CLASSES = {  # import paths of things that are something else, or that need what they are not given
    "optimizer": ("torch.optim.LBFGS", "torch.optim.Adagrad", "torch.optim.Rprop", "torch.optim.SparseAdam", "math.sin"),
    "network": ("torch.nn.Linear", "torch.nn.Identity", "torch.nn.Flatten", "collections.OrderedDict"),
    "callback": ("etude.orchestration.callbacks.EarlyStop", "etude.orchestration.callbacks.Callback", "pathlib.Path"),
    "buffer": ("etude.buffers.base.Buffer", "collections.deque"),
    "wrapper": ("gymnasium.wrappers.ClipReward", "gymnasium.wrappers.TimeLimit", "collections.deque"),
    "encoder": ("torch.nn.Linear",),
    "view": ("collections.deque", "etude.buffers.views.Steps"),
    "algorithm": ("collections.deque", "etude.workflows.base.Workflow"),
}
KEYWORDS: dict[str, dict[str, Sequence[Any]]] = {  # options of parts without a schema
    "optimizer": {
        "eps": (1e-5, -1.0, "tiny"),
        "betas": ([0.9, 0.999], [0.9], 0.9, [2.0, 0.9]),
        "weight_decay": (0.0, -1, "x"),
        "momentum": (0.9, -1.0, 0.0),
        "fused": (True, False, "yes"),
        "foreach": (True, False),
        "amsgrad": (True, False),
        "lr": (0.1,),
        "nesterov": (True,),
    },
    "callback": {"metric": ("eval/return_mean", 3), "threshold": (1.0, "high"), "min_episodes": (0, "x")},
    "network": {"bias": (True, False), "in_features": (4,)},
    "wrapper": {"min_reward": (-1.0,), "max_reward": (1.0, -2.0), "max_episode_steps": (5, "x")},
}
WRONG: tuple[Any, ...] = ("nonsense", {"a": {"b": 1}}, [[[]]], {"no": "thing"})
TOO_LARGE = (2**63, 10**19, 10**30, -(10**25), 10**400)
SMALL_NUMBERS = (1, 2, 3, 4, 7, 8, 16)
NUMBERS = (0.0, 0.01, 0.1, 0.25, 0.5, 0.9, 0.99, 1.0, 2.0, 1e-8, 1e8, 1e30, 1e-30)
TEXTS = ("abc", "", "a b", "ünïcode", "x/y", "null", "1e5", "${training.total_steps}", "@last", "../up", "a=b", "{", "'")
METRICS = ("eval/return_mean", "train/value_loss", "collect/return_mean", "eval/retrun_mean", "nothing", 3)


@dataclass(frozen=True)
class Case:
    """One request: a spec, words and perhaps a file."""

    spec: str | None
    words: tuple[str, ...]
    file: str | None = None
    """What is in the file; bytes that are no text are there as their code points, up to 255."""
    suffix: str = ".yaml"
    is_nonsense: bool = False
    """Something in it is certainly wrong, so it must be refused."""

    def __str__(self) -> str:
        import shlex

        shown = shlex.join([*([] if self.spec is None else [self.spec]), *self.words])
        return shown if self.file is None else f"{shown} --config FILE{self.suffix}\n" + _indented(self.file)


@dataclass
class _Setting:
    path: str
    value: Any
    is_wrong: bool = False


def make_case(seed: int, number: int) -> Case:
    """Return a case that depends on the two numbers alone."""
    return _Maker(random.Random(f"{seed}:{number}")).case()


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.rng.randrange(len(choices))]

    # ---- a whole case ---------------------------------------------------------------------------------------------------

    def case(self) -> Case:
        environment = self.rng.choices(list(ENVIRONMENTS), list(ENVIRONMENTS.values()))[0]
        algorithm = self.pick(FITTING.get(environment, OTHERWISE_FITTING) if self.chance(0.85) else algorithms.names())
        settings = {setting.path: setting for setting in self._small(algorithm)}
        for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3, 4, 6))):
            setting = self._setting(algorithm)
            settings[setting.path] = setting
        spec, is_wrong = f"{environment}:{algorithm}", False
        if self.chance(0.03):
            spec, is_wrong = self._misspelled(spec), True
        chosen = self._without_conflicts(list(settings.values()))
        is_wrong = is_wrong or any(setting.is_wrong for setting in chosen)
        in_file = {"words": 0, "file": len(chosen), "both": len(chosen) // 2}[
            self.rng.choices(("words", "file", "both"), (5, 3, 1))[0]
        ]
        words = tuple(f"{setting.path}={_as_word(setting.value)}" for setting in chosen[in_file:])
        if not in_file:
            return Case(spec, words, is_nonsense=is_wrong)
        document = _nested(chosen[:in_file])
        suffix = self.pick((".yaml", ".yaml", ".json"))
        text = json.dumps(document, indent=1) if suffix == ".json" else yaml.safe_dump(document, sort_keys=False)
        if self.chance(0.3):
            return Case(spec, words, self._mutated(text), suffix)
        # YAML leaves open what some texts are; whether they are wrong is then a question of taste.
        return Case(spec, words, text, suffix, is_nonsense=is_wrong and suffix == ".json")

    def _small(self, algorithm: str) -> list[_Setting]:
        """What makes a case a matter of a second, unless it says otherwise itself."""
        values: dict[str, Any] = {
            "experiment.compile": "off",
            "environment.num_envs": 4,
            "evaluation.timeout_s": 2,
            "evaluation.episodes": 2,
            "training.total_steps": 2000,
        }
        own = field_types(_schema("algorithm", algorithm))
        wanted = {"rollout_steps": 8, "batch_size": 16, "epochs": 2, "learning_starts": 16}
        values |= {f"algorithm.{key}": value for key, value in wanted.items() if key in own}
        return [_Setting(path, value) for path, value in values.items()]

    def _without_conflicts(self, settings: list[_Setting]) -> list[_Setting]:
        """Without those that lie below the value of another: `a.b` and `a` can't both be said."""
        paths = {setting.path for setting in settings}
        return [s for s in settings if not any(s.path.startswith(f"{other}.") for other in paths)]

    def _setting(self, algorithm: str) -> _Setting:
        kind = self.rng.choices(
            ("field", "algorithm", "network", "buffer", "phases", "wrappers", "callbacks", "alias", "unknown"),
            (30, 30, 12, 10, 10, 10, 5, 3, 3),
        )[0]
        if kind == "algorithm" and algorithm != "random":  # which has no settings
            return self._field(_schema("algorithm", algorithm), "algorithm")
        if kind == "network":
            return self._network(algorithm)
        if kind == "buffer":
            return self._buffer(algorithm)
        if kind == "phases":
            return _Setting("training.phases", [self._phase() for _ in range(self.rng.choice((1, 1, 2, 3)))])
        if kind == "wrappers":
            chosen = [self._part("wrapper", "id") for _ in range(self.rng.choice((1, 1, 2, 3)))]
            small = [{"id": "resize", "size": 16}] if "pixel_observations" in str(chosen) else []  # or networks of gigabytes
            return _Setting("environment.wrappers", [*chosen, *small])
        if kind == "callbacks":
            return _Setting("training.callbacks", [self._part("callback", "type")])
        if kind == "alias":
            return self._alias()
        section = self.pick(("experiment", "environment", "training", "evaluation", "checkpoint", "logging"))
        schema = field_types(Config)[section]
        if kind == "unknown":
            return _Setting(f"{section}.{self._misspelled(self.pick(list(field_types(schema))))}", 1, is_wrong=True)
        return self._field(schema, section)

    def _field(self, schema: type, path: str) -> _Setting:
        name = self.pick([key for key in field_types(schema) if f"{path}.{key}" not in _LEFT_ALONE])
        path, kind = f"{path}.{name}", field_types(schema)[name]
        if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind is not Schedule:
            return self._field(kind, path)
        if path in _SPECIAL:
            return _Setting(path, self.pick(_SPECIAL[path]))
        if (wrong := self._wrong(kind)) is not None and self.chance(0.2):
            return _Setting(path, wrong[0], is_wrong=True)
        return _Setting(path, self._value(kind))

    def _network(self, algorithm: str) -> _Setting:
        roles = list(getattr(algorithms.resolve(algorithm), "default_networks", dict)()) or ["actor"]
        role = self.pick(roles) if self.chance(0.95) else "actr"
        if self.chance(0.5):
            return _Setting(f"network.{role}", self._part("network", "type"), is_wrong=role == "actr")
        return _Setting(f"network.{role}.hidden_dims", self.pick(([], [8], [8, 8], [0], [2**40], "8", [1.5])))

    def _buffer(self, algorithm: str) -> _Setting:
        names = list(getattr(algorithms.resolve(algorithm), "default_buffers", dict)()) or ["replay"]
        name = self.pick(names) if self.chance(0.9) else "other"
        if self.chance(0.4):
            return _Setting(f"buffers.{name}", self._part("buffer", "type"))
        kind = self.pick(("replay", "prioritized", "rollout")) if name == "other" else None
        schema = _schema("buffer", kind or {"rollout": "rollout"}.get(name, "replay"))
        return self._field(schema, f"buffers.{name}")

    def _part(self, registry: str, key: str) -> Any:
        known, strange = REGISTRIES[registry].names(), (*STRANGE_CLASSES[registry], "nothing_like_it", "no.such.Module")
        name = self.pick(known or strange)  # of views there are only users' own
        if self.chance(0.15):
            name = self.pick(strange)
        if self.chance(0.15):
            return name
        options: dict[str, Any] = {key: name}
        schema = _schema(registry, name)
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            if schema is not None:
                option = self.pick(list(field_types(schema)))
                if option != key:
                    options[option] = self._value(field_types(schema)[option])
            elif registry in KEYWORDS:
                option = self.pick(list(KEYWORDS[registry]))
                options[option] = self.pick(KEYWORDS[registry][option])
        if name == "video" and key == "type":
            options |= {"length": 3, "episodes": None}  # or it films for minutes
        return options

    def _phase(self) -> Any:
        if self.chance(0.1):
            return {"repeat": self.pick((1, 2, 0, "x", 10**9)), "phases": [self._phase()]}
        phase: dict[str, Any] = {"name": self.pick(("one", "two", "", 3))} if self.chance(0.97) else {}
        if self.chance(0.4):
            phase["type"] = self.pick(("online", "offline", "eval_only", "online", "evil"))
        if self.chance(0.5):
            phase["hooks"] = [self._hook() for _ in range(self.rng.choice((0, 1, 2, 2, 3)))]
        if self.chance(0.8):
            unit = self.pick(("duration_steps", "duration_updates", "duration_cycles"))
            phase[unit] = self.pick((1, 2, 3, 10, 40, 100, 0, -1, 1.5, 1e2, "x", 10**30))
        if self.chance(0.15):
            bound = self.pick(("above", "below"))
            phase["until"] = {"metric": self.pick(METRICS), bound: self.pick((0, -1e9, 1e9, math.nan, "x"))}
        if self.chance(0.1):
            phase["buffer"] = self.pick(("rollout", "replay", "other"))
        if self.chance(0.05):
            phase[self.pick(("extra", "durations", "count"))] = self.pick(({}, 1, "x"))
        return phase

    def _hook(self) -> Any:
        name = self.pick(("collect", "update", "evaluate", "collect", "update", "learn", "colect", "policy"))
        if self.chance(0.5):
            return name
        options = {
            key: self.pick(values) for key, values in _HOOK_OPTIONS.items() if self.chance(0.4 if key == "count" else 0.2)
        }
        return {name: options}

    def _alias(self) -> _Setting:
        theirs = self.pick(sorted(ALIASES))
        return _Setting(theirs, self.pick((1, 0.5, 8, "lin_0.1", True, None, "rolling")))

    # ---- values ---------------------------------------------------------------------------------------------------------

    def _value(self, kind: Any) -> Any:
        """A value that a type allows, or nearly so."""
        origin = get_origin(kind)
        if origin is Annotated:
            base, *marks = get_args(kind)
            component = next((mark for mark in marks if isinstance(mark, Component)), None)
            if component is not None:
                return self._part(component.registry, component.key)
            bounds = next((mark for mark in marks if isinstance(mark, Bounds)), None)
            return self._value(base) if bounds is None else self._bounded(base, bounds)
        if origin in (Union, types.UnionType):
            return self._value(self.pick(get_args(kind)))
        if origin is Literal:
            return self.pick(get_args(kind))
        if origin in (tuple, list):
            item = get_args(kind)
            count = len(item) if item[-1] is not Ellipsis else self.rng.choice((0, 1, 2))
            return [self._value(item[0] if item[-1] is Ellipsis else item[i]) for i in range(count)]
        if origin is dict or kind is dict:
            return self.pick(({}, {"foo": 1}, {"observation": "mlp"}, {"render_mode": "rgb_array"}))
        if kind is type(None):
            return None
        if kind is bool:
            return self.chance(0.5)
        if kind is int:
            return self.pick((*SMALL_NUMBERS, 0, -1))
        if kind is float:
            return self.pick((*NUMBERS, -1.0, 1, 0))
        if kind is Schedule:
            return self._schedule(lambda: self.pick(NUMBERS))
        if kind is str:
            return self.pick(TEXTS)
        if dataclasses.is_dataclass(kind):
            chosen = {key: item for key, item in field_types(kind).items() if self.chance(0.3)}  # type: ignore[arg-type] # a class
            return {key: self._value(item) for key, item in chosen.items()}
        return self.pick((1, "x", None, [1], {"a": 1}, True))

    def _bounded(self, base: Any, bounds: Bounds) -> Any:
        low = bounds.low if bounds.low is not None else -10
        if base is int:
            return int(low) + self.pick((0, 0, *SMALL_NUMBERS))
        inside = [n for n in NUMBERS if bounds.violated_by(n) is None]
        return self._schedule(lambda: self.pick(inside)) if base is Schedule else self.pick(inside)

    def _schedule(self, number: Any) -> Any:
        form = self.rng.choices(("number", "short", "parts"), (5, 2, 2))[0]
        if form == "number":
            return number()
        if form == "short":
            return f"lin_{number()}"
        positions = (0, 0.5, 1, 1.5, 100, 2000)
        return {"start": number(), "end": number()} | (
            {"start_at": self.pick(positions), "end_at": self.pick(positions)} if self.chance(0.4) else {}
        )

    def _wrong(self, kind: Any) -> tuple[Any] | None:
        """A value that the type certainly refuses, or None where that is hard to say."""
        bounds = None
        if get_origin(kind) in (Union, types.UnionType):
            members = [member for member in get_args(kind) if member is not type(None)]
            if len(members) != 1:
                return None
            kind = members[0]
        if get_origin(kind) is Annotated:
            kind, *marks = get_args(kind)
            bounds = next((mark for mark in marks if isinstance(mark, Bounds)), None)
            if any(isinstance(mark, Component) for mark in marks):
                return None
        if kind is bool:
            return (self.pick(("maybe", 3, [], 0.5)),)
        if kind in (int, float, Schedule):
            beyond = [] if bounds is None else [n for n in (-1, -(10**6), 10**6) if bounds.violated_by(n)]
            special = (1.5, True, *TOO_LARGE) if kind is int else (math.nan, math.inf, True, 10**400)
            return (self.pick((*beyond, *special, *WRONG)),)
        if get_origin(kind) is Literal:
            return (self.pick((3, "nonsense", [1], {"a": 1})),)
        if kind is str:
            return (self.pick((3, [1], {"a": 1}, 1.5)),)
        return None

    # ---- damage ---------------------------------------------------------------------------------------------------------

    def _misspelled(self, text: str) -> str:
        place = self.rng.randrange(len(text))
        letter = "q" if text[place] != "q" else "w"
        return text[:place] + letter + text[place:]

    def _mutated(self, text: str) -> str:
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            place = self.rng.randrange(len(text) + 1)
            form = self.rng.randrange(8)
            if form == 0:
                text = text[:place] + chr(self.rng.randrange(256)) + text[place + 1 :]
            elif form == 1:
                text = text[:place] + text[place + self.rng.randrange(1, 9) :]
            elif form == 2:
                text = text[:place] + self.pick(_PIECES) + text[place:]
            elif form == 3:
                text = text[:place]
            elif form == 4:
                text += text
            elif form == 5:
                text = text[:place] + self.pick("[{(\"'") * self.pick((1, 70, 5000)) + text[place:]
            elif form == 6:
                lines = text.splitlines(keepends=True)
                self.rng.shuffle(lines)
                text = "".join(lines)
            else:
                text = text.replace(":", self.pick((" :", ":  ", ":", "=", ": &a", ": *a", ": !!python/object:os.system")), 1)
        return text


_LEFT_ALONE = {  # "on" and "auto" compile for half a minute a case; workers are processes; robots have a schema of their own
    "experiment.compile",
    "environment.workers",
    "environment.robot",
    "environment.id",
    "environment.wrappers",
    "algorithm.name",
    "training.phases",
    "training.callbacks",
    "logging.wandb",
    "logging.terminal",
    "experiment.threads",
}
_SPECIAL: dict[str, Sequence[Any]] = {
    "experiment.device": ("cpu", "auto", "foo", "cpu:1", "cuda:99", "meta", "cpu,cpu", "", "xla"),
    "experiment.seed": (0, 1, 2**31, 2**63 - 1, 2**63, -1),
    "environment.backend": ("auto", "gymnasium", "native", "envpool"),
    "environment.kwargs": ({}, {"foo": 1}, {"render_mode": "rgb_array"}, {"sutton_barto_reward": True}, {"g": "x"}),
    "environment.max_episode_steps": (1, 2, 20, 0, -1, 2**62),
    "environment.num_envs": (1, 2, 3, 4, 7, 16, 0, 2**40),
    "training.total_steps": (1, 2, 7, 33, 100, 1000, 0, 2**62),
    "training.iterations": (1, 2, 3, 0, 2**62),
    "buffers.replay.device": ("auto", "cpu", "foo", "cuda", "meta", ""),
    "buffers.other.device": ("auto", "cpu", "foo"),
    "buffers.replay.capacity": (1, 4, 15, 16, 33, 64, 1000, 10**5),
    "buffers.replay.leave_out": (
        [],
        ["final_observation"],
        ["reward"],
        ["truncated"],
        ["nothing"],
        ["observation"],
        ["action"],
    ),
    "logging.tensorboard": (False,),
}
_HOOK_OPTIONS: dict[str, Sequence[Any]] = {
    "count": (1, 2, 7, 16, 0, -1, 1.5, "x"),
    "every": (1, 2, 3, 0, "x"),
    "ratio": (0.5, "1/3", 2, 0, -1, "x", "1/0", 1e-9),
    "per": ("decisions", "env_steps", "seconds"),
    "updates": (1, 2),
    "cuont": (1,),
}
_PIECES = (
    "\t", "\n", ":", "- ", "&a ", "*a", "!!int ", "? ", "\x00", "\ufeff", "%YAML 9.9\n", "---\n", "...\n", "<<: *a\n", "${",
    "${oc.env:HOME}", "9" * 400, "2024-99-99", "\x1b[31m", "null", "!!binary x", "|\n", ">", "1e999", ".nan", "0x", "1:2:3:99",
)  # fmt: skip


def _schema(registry: str, name: str) -> Any:
    try:
        return options_schema(REGISTRIES[registry].resolve(name))
    except Exception:  # noqa: BLE001 - a class that isn't there has no schema
        return None


def _nested(settings: Sequence[_Setting]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for setting in settings:
        *parents, last = setting.path.split(".")
        node = document
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = setting.value
    return document


def _as_word(value: Any) -> str:
    """A value in the grammar of the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_as_word(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_as_word, value)) + "]"
    return repr(value)


def _indented(text: str) -> str:
    shown = text if len(text) < 2000 else f"{text[:2000]}... ({len(text)} characters)"
    return "\n".join(f"    {line!r}" for line in shown.splitlines())
