"""A curriculum as data."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from etude.config.compose import compose
from etude.config.hooks import Hook, hook, hooks_of
from etude.config.phases import HookSpec, PhaseSpec, Until, parse_phases, phase_problems
from etude.errors import ConfigError
from etude.orchestration.phase_scheduler import PhaseScheduler
from etude.workflows.base import HookResult
from etude.workflows.ppo import PPO
from etude.workflows.random_policy import RandomPolicy
from tests.config.conftest import Complaints, Write

COLLECT = HookSpec("collect", collects=True, counts_steps=True)


def parsed(entries: Any, workflow: type = PPO) -> tuple[PhaseSpec, ...]:
    return parse_phases(entries, hooks=["collect", "update"], marks=hooks_of(workflow))


def _problems(*entries: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parsed(entries)
    return list(raised.value.problems)


def test_a_curriculum_of_every_kind_of_phase() -> None:
    phases = parsed(
        [
            {"name": "seed", "hooks": ["collect"], "duration_steps": 1e4, "buffer": "replay"},
            {"name": "model", "type": "offline", "duration_updates": 50, "extra": {"beta": 2}},
            {"name": "look", "type": "eval_only"},
            {
                "name": "joint",
                "hooks": ["collect", {"update": {"ratio": "1/3", "per": "env_steps"}}, {"evaluate": {"every": 2}}],
            },
        ]
    )
    assert phases == (
        PhaseSpec("seed", "online", (COLLECT,), "replay", duration_steps=10_000),
        PhaseSpec("model", "offline", (HookSpec("update"),), duration_updates=50, extra={"beta": 2}),
        PhaseSpec("look", "eval_only", (HookSpec("evaluate"),), duration_cycles=1),
        PhaseSpec(
            "joint",
            "online",
            (COLLECT, HookSpec("update", ratio=Fraction(1, 3), per="env_steps"), HookSpec("evaluate", every=2)),
        ),
    )


def test_repeats_stand_for_their_phases_even_when_nested() -> None:
    inner = {"repeat": 2, "phases": [{"name": "b", "duration_cycles": 1}]}
    phases = parsed([{"repeat": 3, "phases": [{"name": "a", "duration_cycles": 1}, inner]}])
    assert [phase.name for phase in phases] == ["a", "b", "b"] * 3


def test_ratios_are_exact() -> None:
    ((hook,),) = (phase.hooks for phase in parsed([{"name": "a", "hooks": [{"update": {"ratio": 0.1}}]}]))
    assert hook.ratio == Fraction(1, 10)


def test_until_ends_a_phase_by_a_metric() -> None:
    (phase, _) = parsed([{"name": "a", "until": {"metric": "m", "above": 5}}, {"name": "b"}])
    assert phase.until == Until("m", above=5)
    assert phase.until.met(5)
    assert not phase.until.met(4.9)
    assert Until("m", below=1).met(0)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "a", "type": "onlin"}, "training.phases[0].type=onlin: must be one of online, offline, eval_only; did you"),
        ({"name": "a", "type": ["online"]}, "training.phases[0].type=['online']: must be one of"),
        ({"hooks": ["collect"]}, "training.phases[0].name: is required"),
        ({"name": 5}, "training.phases[0].name=5: must be text"),
        ({"name": "a", "duration_step": 5}, "training.phases[0].duration_step: unknown key; did you mean 'duration_steps'?"),
        ({"name": "a", "colour": 5}, "training.phases[0].colour: unknown key (settings of your own go under extra)"),
        ({"name": "a", "duration_steps": 0}, "training.phases[0].duration_steps=0: must be a whole number, at least 1"),
        ({"name": "a", "duration_steps": True}, "training.phases[0].duration_steps=True: must be a whole number"),
        ({"name": "a", "duration_steps": 1.5}, "training.phases[0].duration_steps=1.5: must be a whole number"),
        ({"name": "a", "duration_steps": float("inf")}, "training.phases[0].duration_steps=inf: must be a whole number"),
        ({"name": "a", "hooks": "collect"}, "training.phases[0].hooks=collect: must be a list of hooks"),
        ({"name": "a", "hooks": []}, "training.phases[0].hooks=[]: must be a list of hooks"),
        ({"name": "a", "hooks": [5]}, "training.phases[0].hooks[0]=5: must be a hook's name"),
        ({"name": "a", "hooks": [{"update": 5}]}, "training.phases[0].hooks[0]={'update': 5}: must be a hook's name"),
        ({"name": "a", "hooks": [{"a": {}, "b": {}}]}, "training.phases[0].hooks[0]="),
        ({"name": "a", "hooks": [{"update": {"coun": 1}}]}, "training.phases[0].hooks[0].update.coun: unknown key; did you"),
        ({"name": "a", "hooks": [{"update": {"count": 0}}]}, "training.phases[0].hooks[0].update.count=0: must be a whole"),
        ({"name": "a", "hooks": [{"update": {"ratio": "x"}}]}, "training.phases[0].hooks[0].update.ratio=x: must be a number"),
        ({"name": "a", "hooks": [{"update": {"ratio": "1/0"}}]}, "training.phases[0].hooks[0].update.ratio=1/0: must be a"),
        ({"name": "a", "hooks": [{"update": {"ratio": -1}}]}, "training.phases[0].hooks[0].update.ratio=-1: must be above 0"),
        ({"name": "a", "hooks": [{"update": {"ratio": 1, "count": 1}}]}, "training.phases[0].hooks[0].update.ratio=1: must"),
        ({"name": "a", "hooks": [{"update": {"per": "decisions"}}]}, "training.phases[0].hooks[0].update.per: says what a"),
        ({"name": "a", "hooks": [{"update": {"ratio": 1, "per": "x"}}]}, "training.phases[0].hooks[0].update.per=x: must be"),
        ({"name": "a", "buffer": ["x"]}, "training.phases[0].buffer=['x']: must be a buffer's name"),
        ({"name": "a", "extra": 5}, "training.phases[0].extra=5: must be a mapping"),
        ({"name": "a", "until": {"metric": "m"}}, "training.phases[0].until: must be {metric: NAME, above: NUMBER}"),
        ({"name": "a", "until": {"metric": "m", "above": "x"}}, "training.phases[0].until.above=x: must be a number"),
        ({"name": "a", "until": {"metric": 5, "above": 1}}, "training.phases[0].until.metric=5: must be text"),
        ({"name": "a", "until": {"metric": "m", "above": 1, "below": 0}}, "training.phases[0].until: must be"),
        ({"name": "a", "type": "offline", "duration_updates": 5, "hooks": ["collect"]}, "training.phases[0]: an offline phase"),
        ({"name": "a", "type": "offline", "duration_steps": 5}, "training.phases[0].duration_steps: an offline phase takes no"),
        ({"name": "a", "type": "offline"}, "training.phases: phase 'a' is offline and never ends; give it duration_updates"),
        (
            {"repeat": True, "phases": [{"name": "a"}]},
            "training.phases[0]: a repeat is {repeat: a whole number, ",
        ),
        ({"repeat": 0, "phases": [{"name": "a"}]}, "training.phases[0]: a repeat is"),
        ({"repeat": 2}, "training.phases[0]: a repeat is"),
        ({"repeat": 2, "phases": "a"}, "training.phases[0].phases=a: must be a list of phases"),
        (5, "training.phases[0]=5: must be a mapping with a name and hooks"),
    ],
)
def test_what_is_wrong_with_a_phase_is_one_line(entry: Any, message: str) -> None:
    (line,) = _problems(entry)
    assert line.startswith(message)


def test_a_phase_that_never_ends_must_be_the_last() -> None:
    (line,) = _problems({"repeat": 3, "phases": [{"name": "a"}]})
    assert line == "training.phases: phase 'a' never ends, so the phases after it can't start; give it a duration"


def test_every_problem_of_every_phase_is_listed() -> None:
    assert len(_problems({"name": "a", "x": 1, "y": 2}, {"z": 3, "duration_cycles": 0})) == 6


def test_hooks_are_the_methods_that_are_marked_and_what_overrides_them() -> None:
    assert hooks_of(PPO) == {"collect": Hook(collects=True, counts_steps=True), "update": Hook()}
    assert "discard" in hooks_of(RandomPolicy)


class Own(RandomPolicy):
    """Hooks of a user's own, and a method that only looks like one."""

    @hook(collects=True)
    def collect_episode(self, phase: Any, count: int) -> HookResult:
        return HookResult(decisions=10, env_steps=10)

    def noise(self, phase: Any, count: int) -> HookResult:
        return HookResult()


def test_a_method_that_is_not_marked_is_no_hook_and_the_way_out_is_said() -> None:
    phases = parsed([{"name": "a", "hooks": ["noise", "collect_episod"]}], Own)
    unmarked, misspelt = phase_problems(phases, Own, [])
    assert unmarked.startswith(
        "training.phases: phase 'a': Own has no hook 'noise'; if phases may call noise(phase, count), put @hook"
    )
    assert misspelt.endswith("Own has no hook 'collect_episod'; did you mean 'collect_episode'?")


def test_a_hook_that_collects_under_another_name_is_held_to_the_budget_and_to_offline_phases() -> None:
    entries = [{"name": "a", "hooks": ["collect_episode"]}]
    scheduler = PhaseScheduler(parsed(entries, Own), total_steps=95, steps_per_count=1)
    steps = 0
    while (action := scheduler.next_action()) is not None:
        assert action.count == 1, "nobody knows how many steps its count stands for"
        scheduler.advance(action, HookResult(decisions=10, env_steps=10))
        steps += 10
    assert steps == 100
    offline = [{"name": "a", "type": "offline", "hooks": ["collect_episode"], "duration_updates": 5}]
    with pytest.raises(ConfigError, match="an offline phase doesn't collect"):
        parsed(offline, Own)


def test_unknown_hooks_and_buffers_are_named(complaints: Complaints, write: Write) -> None:
    text = """
        training:
          phases:
            - {name: a, hooks: [collect, updat], buffer: rolout, duration_steps: 10}
            - {name: b, hooks: [act]}
    """
    lines = complaints("CartPole-v1:ppo", file=write("p.yaml", text))
    assert lines[0] == "p.yaml:2: training.phases: phase 'a': PPO has no hook 'updat'; did you mean 'update'?"
    assert lines[1] == "p.yaml:2: training.phases: phase 'a': there is no buffer 'rolout'; did you mean 'rollout'?"
    assert lines[2].startswith("p.yaml:2: training.phases: phase 'b': PPO has no hook 'act'")


def test_with_several_buffers_a_phase_must_choose() -> None:
    phases = parsed([{"name": "a", "duration_cycles": 1}, {"name": "b", "type": "eval_only"}])
    assert list(phase_problems(phases, PPO, ["x", "y"])) == ["training.phases: phase 'a': which buffer? there are x, y"]


def test_phases_in_the_words_of_a_hydra_lab_load(write: Write) -> None:
    text = """
        training:
          total_timesteps: 1000
          phases:
            - name: data_collection
              type: online
              buffer: rollout
              duration_steps: 100
              workflow_hooks:
                - collect
            - name: train
              type: offline
              buffer: rollout
              duration_updates: 5
              workflow_hooks: [update]
    """
    config = compose("CartPole-v1:ppo", file=write("p.yaml", text)).config
    phases = parsed(config.training.phases)
    assert [(phase.name, phase.type, [hook.name for hook in phase.hooks]) for phase in phases] == [
        ("data_collection", "online", ["collect"]),
        ("train", "offline", ["update"]),
    ]
