"""What cma_es promises: generations that don't depend on copies, chunks or stops, and settings that are refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.config.compose import compose
from etude.environments.vector import VectorEnvironment
from etude.errors import ConfigError, UserError
from etude.orchestration.orchestrator import Orchestrator
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from etude.training import assembly
from etude.workflows.base import Phase
from etude.workflows.cma_es import CMAESWorkflow
from tests.runs_compared import assert_same_run, assert_same_state, resume, state, stopped_after, train
from tests.workflows.tiny_runs import Counting, copied, state_of

PHASE = Phase("evolve")
QUIET = ("experiment.device=cpu", "evaluation.every_steps=0", "checkpoint.every_steps=0", "logging.every_steps=200")
SHORT = ("training.total_steps=1000", "environment.max_episode_steps=30")
SMALL = ("algorithm.population=6", "environment.num_envs=4", *SHORT, *QUIET)


def build(*words: str, spec: str = "CartPole-v1", environment: VectorEnvironment | None = None) -> tuple[Orchestrator, Any]:
    run = assembly.build(assembly.resolve(compose(f"{spec}:cma_es", words=[*SMALL, *words]).config), environment=environment)
    assert run.collector is not None
    run.collector.start(run.workflow.initial_state)
    assert isinstance(run.workflow, CMAESWorkflow)
    return run, run.workflow


def generation(workflow: Any, *, pieces: int = 10_000) -> None:
    while not workflow.update(PHASE, 1).updates:
        workflow.collect(PHASE, pieces)


# ---- generations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("episodes", [1, 2])
def test_generations_are_the_same_on_any_number_of_copies(episodes: int) -> None:
    found = []
    for copies in (1, 4, 5, 6, 16):
        run, workflow = build(f"environment.num_envs={copies}", f"algorithm.episodes={episodes}")
        for _ in range(3):
            generation(workflow)
        found.append(copied(workflow.evolution.state_dict()))
        assert workflow.evolution.evaluations == 18
        run.close()
    for other in found[1:]:
        assert_same_state(other, found[0])


@pytest.mark.parametrize("words", [(), ("algorithm.mirrored=true", "algorithm.covariance=diagonal", "algorithm.episodes=2")])
def test_collecting_in_pieces_is_collecting_at_once(words: tuple[str, ...]) -> None:
    states = []
    for pieces in (10_000, 1, 7):
        run, workflow = build("environment.normalize_observations=rolling", *words)
        for _ in range(2):
            generation(workflow, pieces=pieces)
        workflow.collect(PHASE, 0)
        for _ in range(5 if pieces == 1 else 1):
            workflow.collect(PHASE, 1 if pieces == 1 else 5)
        states.append(copied(state_of(run)))
        run.close()
    for other in states[1:]:
        assert_same_state(other, states[0])


@pytest.mark.parametrize("terminates", [True, False])
def test_an_episode_ends_at_an_end_and_at_a_time_limit(terminates: bool) -> None:
    """Copies of this task begin at ages 0, 1, 2 and 3 of 5, at a reward of 1 a step."""
    _, workflow = build(environment=Counting(4, 5, terminates=terminates, shows_age=True))
    workflow.collect(PHASE, 10_000)
    assert workflow.judging.fitness().tolist() == [5, 4, 3, 2, 5, 4]
    assert workflow.collect(PHASE, 10).is_empty, "once all are judged, there is nothing to collect"
    assert workflow.update(PHASE, 5).updates == 1
    assert workflow.update(PHASE, 5).is_empty


def test_counters_and_episodes_are_those_of_the_judged() -> None:
    run, workflow = build("training.total_steps=600")
    run.run()
    assert run.counters.env_steps == run.counters.decisions == 600
    assert run.counters.updates == workflow.evolution.generation > 0
    assert run.collector is not None
    finished = run.collector.episodes.finished
    assert 0 <= finished - workflow.evolution.evaluations < 6, "each judged episode once, and no other"


def test_every_row_says_how_evolution_stands(tmp_path: Path) -> None:
    run = train("CartPole-v1:cma_es", tmp_path, *SMALL)
    last = next(row for row in reversed(read_rows(run.metrics_path)) if "train/generation" in row)
    assert last["train/generation"] == last["updates"]
    assert last["train/evaluations"] == 6 * last["updates"]
    assert last["train/fitness_best"] >= last["train/fitness_mean"]
    assert {"train/fitness_std", "train/sigma", "train/condition"} <= last.keys()


# ---- the policy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["mean", "best"])
def test_the_policy_is_the_mean_or_the_best_so_far(choice: str) -> None:
    _, workflow = build(f"algorithm.policy={choice}")
    best, fitness = torch.empty(0), torch.tensor(-torch.inf)
    for _ in range(3):
        workflow.collect(PHASE, 10_000)
        judged = workflow.judging.fitness()
        if judged.max() > fitness:
            best, fitness = workflow.judging.candidates[judged.argmax()].clone(), judged.max()
        generation(workflow)
    wanted = workflow.evolution.mean if choice == "mean" else best
    assert torch.equal(workflow._stacked.read(), wanted.float())
    assert float(workflow.best_fitness) == float(fitness)


def test_candidates_act_as_the_policy_would_with_their_weights() -> None:
    _, workflow = build(spec="Pendulum-v1")
    workflow.collect(PHASE, 1)
    observation, first = torch.randn(4, 3), torch.ones(4, dtype=torch.bool)

    def act(mode: Any) -> torch.Tensor:
        return workflow.act(observation, None, first, mode=mode, generator=torch.Generator()).action

    together = act("explore")
    for copy, weights in enumerate(workflow.judging.dealt()):
        workflow._stacked.write(weights)
        torch.testing.assert_close(together[copy], act("greedy")[copy])
    assert bool((together.abs() <= 2).all())


def test_evolving_begins_around_another_runs_weights(tmp_path: Path) -> None:
    words = ("network.actor.hidden_dims=[8]", "training.total_steps=512", "environment.num_envs=8", *QUIET)
    source = train("CartPole-v1:ppo", tmp_path, *words)
    run = train("CartPole-v1:cma_es", tmp_path, *words, "algorithm.sigma=1e-9", f"experiment.init_from={source.path}")
    mean = state(run)["shared"]["workflow"]["evolution"]["mean"]
    saved = state(source)["shared"]["workflow"]["actor"]
    assert torch.allclose(mean.float(), torch.cat([part.flatten() for part in saved.values()]), atol=1e-6)


def test_statistics_of_observations_change_between_generations_only() -> None:
    _, workflow = build("environment.normalize_observations=rolling")
    workflow.collect(PHASE, 10_000)
    assert float(workflow.normalizer.parts[0].count) == 0
    generation(workflow)
    seen = float(workflow.normalizer.parts[0].count)
    assert seen > 0
    workflow.collect(PHASE, 3)
    assert float(workflow.normalizer.parts[0].count) == seen
    assert float(workflow.seen.parts[0].count) == seen + 12


# ---- stopping amid a generation -------------------------------------------------------------------------------------


RESUMED = {
    "amid turns": ("CartPole-v1", "algorithm.episodes=3"),
    "rolling, mirrored": ("Pendulum-v1", "environment.normalize_observations=rolling", "algorithm.mirrored=true"),
    "diagonal, best": (
        "Pendulum-v1",
        "algorithm.covariance=diagonal",
        "algorithm.policy=best",
        "network.actor.hidden_dims=[8]",
    ),
    "an environment that is rewound": ("FrozenLake-v1", "algorithm.common_seeds=false"),
}


@pytest.mark.parametrize("case", RESUMED)
def test_a_run_stopped_amid_a_generation_is_the_run_never_stopped(case: str, tmp_path: Path) -> None:
    name, *words = RESUMED[case]
    often = "training.phases=[{name: evolve, hooks: [{collect: {count: 7}}, update]}]"  # looks whether to stop
    spec, settings = f"{name}:cma_es", (*SMALL, often, *words)
    whole = train(spec, tmp_path / "whole", *settings)
    with stopped_after(5):
        stopped = train(spec, tmp_path / "stopped", *settings)
    judging = state(stopped)["shared"]["workflow"]["judging"]
    assert judging["steps"] > 0 or judging["turn"] > 0, "amid a generation"
    resume(stopped)
    assert_same_run(stopped, whole)


def test_where_episodes_are_lost_their_turn_is_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def evolved(run: Run) -> dict[str, Any]:
        return state(run)["shared"]["workflow"]["evolution"]

    few = "training.phases=[{name: evolve, hooks: [{collect: {count: 7}}, update], duration_updates: 3}]"
    words = (*SMALL, few, "training.total_steps=10000")
    whole = train("CartPole-v1:cma_es", tmp_path / "whole", *words)
    with stopped_after(2):
        stopped = train("CartPole-v1:cma_es", tmp_path / "stopped", *words)
    monkeypatch.setattr("etude.workflows.collector.Collector._continue_environment", lambda self, saved: False)
    resume(stopped)
    assert_same_state(evolved(stopped), evolved(whole))
    steps = [state(run)["shared"]["counters"]["env_steps"] for run in (whole, stopped)]
    assert steps[0] < steps[1], "it costs steps, and nothing else"


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("algorithm.population=1", r"algorithm.population=1: must be at least 2"),
        ("algorithm.sigma=0", r"algorithm.sigma=0.*: must be above 0"),
        ("algorithm.episodes=0", r"algorithm.episodes=0: must be at least 1"),
        ("algorithm.covariance=diag", r"algorithm.covariance=diag.*diagonal"),
        ("environment.normalize_rewards=true", r"environment.normalize_rewards: cma_es ranks returns"),
        ("training.iterations=10", r"training.iterations=10: generations of cma_es take .*; set training.total_steps"),
    ],
)
def test_settings_that_make_no_sense_are_refused(word: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build(word)


def test_an_odd_population_makes_no_pairs() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.population=7: algorithm.mirrored=true makes pairs"):
        build("algorithm.mirrored=true", "algorithm.population=7")


def test_a_network_with_memory_is_refused() -> None:
    with pytest.raises(UserError, match=r"network.actor.type=gru: this network has memory, and cma_es looks at one"):
        build("network.actor={type: gru}")


def test_too_many_weights_are_refused_with_the_form_that_takes_them() -> None:
    large = "network.actor.hidden_dims=[64,64]"
    with pytest.raises(UserError, match=r"covariance=full: network.actor has 4,610 weights.*use algorithm.covariance=diagonal"):
        build(large)
    run, _ = build(large, "algorithm.covariance=diagonal")
    run.close()
    with pytest.raises(UserError, match=r"covariance=diagonal: network.actor has .* weights.*use a smaller network"):
        build("network.actor.hidden_dims=[2000,2000]", "algorithm.covariance=diagonal")


def test_idle_copies_are_told_and_the_usual_population_leaves_none() -> None:
    config = compose("CartPole-v1:cma_es", words=[*SMALL, "environment.num_envs=4"]).config
    (told,) = CMAESWorkflow.remarks(config)
    assert "leave 2 of them idle in its last turn" in told
    for episodes, copies, mirrored in ((1, 16, False), (3, 4, False), (2, 7, True), (1, 1, True)):
        words = (
            f"environment.num_envs={copies}",
            f"algorithm.episodes={episodes}",
            f"algorithm.mirrored={str(mirrored).lower()}",
        )
        run, workflow = build("algorithm.population=null", *words)
        population = workflow.evolution.population
        assert 10 <= population < 10 + max(2, copies), "4 + 3 ln 10, or somewhat more"
        assert -population * episodes % copies < 2 * episodes
        run.close()


# ---- learning -------------------------------------------------------------------------------------------------------


def test_it_balances_a_pole(tmp_path: Path) -> None:
    words = ("experiment.device=cpu", "training.total_steps=60000", "evaluation.every_steps=60000", "evaluation.episodes=20")
    run = train("CartPole-v1:cma_es", tmp_path, *words)
    assert read_rows(run.metrics_path)[-1]["eval/return_mean"] >= 475
