"""CMA-ES (Hansen 2016) on the weights of a policy: no gradients, no values, no buffer; whole episodes alone.

    collect   each copy of the environment acts with its own candidate's weights until all have been judged
    update    one generation: rank them, move the distribution, draw the next ones

           ┌── m, σ, C ──→ λ candidates ──→ whole episodes, a candidate a copy ──→ returns ──┐
           └──────────────────────────────── their order ◄──────────────────────────────────┘

The policy is the distribution's mean. Evolution itself is `etude.components.evolution`, who acts with which weights
`etude.workflows.judging`, and many weights in one pass `etude.components.networks.stacked`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.acting.policy import ActorPolicy
from etude.buffers.base import Batch
from etude.components.distributions import ActionHead, DeterministicHead, check_mask, make_head
from etude.components.evolution import CMAES, usual_population
from etude.components.networks.modes import evaluating
from etude.components.networks.spec import POLICY_GAIN, NetworkSpec
from etude.components.networks.stacked import Forward, Stacked
from etude.components.normalizers import ObservationNormalizer
from etude.config.algorithm import AlgorithmSettings
from etude.config.constraints import PositiveFloat, PositiveInt, at_least
from etude.config.schema import Config
from etude.environments.vector import ACTION_MASK, Observation
from etude.errors import UserError
from etude.workflows.base import ActResult, Context, HookResult, Mode, Phase, PolicyWorkflow, State
from etude.workflows.judging import Judging
from etude.workflows.metrics import Metrics

STEPS_A_CYCLE = 100
"""Vector steps between two looks at whether it is time to log, save or stop; generations don't begin or end by them."""
MOST_WEIGHTS = {"full": 2_000, "diagonal": 2_000_000}
"""Beyond, a covariance takes minutes to decompose and a checkpoint gigabytes; and a generation of candidates too."""


@dataclass(frozen=True)
class CMAESConfig(AlgorithmSettings):
    """Evolution of a policy's weights by CMA-ES."""

    name: str = "cma_es"
    """The registered name of the algorithm."""
    population: Annotated[int, at_least(2)] | None = None
    """Candidates per generation; null: 4 + 3 ln(weights), and more where copies of the environment would stand idle. More find
    better optima and bear more noise, in fewer generations."""
    episodes: PositiveInt = 1
    """Episodes that each candidate is judged by. More cost steps, and let luck decide less."""
    common_seeds: bool = True
    """Whether all candidates of a generation begin alike and meet the same chances; false: each has luck of its own."""
    sigma: PositiveFloat = 0.5
    """Standard deviation of the first candidates' weights. It adapts itself; too small a one takes long to grow."""
    covariance: Literal["full", "diagonal"] = "full"
    """full: of all pairs of weights, up to 2,000 of them; diagonal: each weight has a spread of its own, for large networks."""
    active: bool = True
    """Whether the worse half of the candidates counts too, against the directions it lies in."""
    mirrored: bool = False
    """Whether candidates come in pairs on opposite sides of the mean. The population must be even."""
    policy: Literal["mean", "best"] = "mean"
    """What is measured and saved as the policy: the distribution's mean, or the candidate with the highest fitness so far,
    which was lucky too where chance plays a part."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        if self.mirrored and (self.population or 0) % 2:
            yield f"algorithm.population={self.population}: algorithm.mirrored=true makes pairs; choose an even number"
        if config.environment.normalize_rewards:
            yield f"environment.normalize_rewards: {self.name} ranks returns, whatever their scale; set it to false"
        if config.training.iterations is not None:
            yield (
                f"training.iterations={config.training.iterations}: generations of {self.name} take as many steps as their "
                "episodes; set training.total_steps"
            )


class CMAESWorkflow(PolicyWorkflow):
    """Lets policies compete, and moves to where the better ones are."""

    Config = CMAESConfig
    settings: CMAESConfig
    actor: nn.Module
    supports_ranks = True
    of_rank = ("judging",)
    default_num_envs = 16

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """A linear policy."""
        return {"actor": {"type": "mlp", "hidden_dims": [], "activation": "tanh"}}

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        """None: of an episode only its return is kept."""
        return {}

    @classmethod
    def default_phases(cls, config: Config) -> Sequence[Mapping[str, Any]]:
        """Collect until all candidates are judged, and go on to the next generation."""
        return [{"name": "evolve", "hooks": [{"collect": {"count": STEPS_A_CYCLE}}, "update"]}]

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """A number for each choice, or for each dimension of an action."""
        return {"actor": NetworkSpec(_head(action_space), output_gain=POLICY_GAIN)}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Any actions but continuous ones without bounds."""
        check_mask(observation_space, _head(action_space))

    @classmethod
    def remarks(cls, config: Config) -> list[str]:
        """Say where copies stand idle in every generation."""
        settings, processes = config.algorithm, config.experiment.processes
        copies = config.environment.num_envs * processes
        judged = (settings.population or 0) * settings.episodes
        spare = -judged % copies
        if not judged or not spare:
            return []
        times = f", times {processes} processes," if processes > 1 else ""
        told = f"{judged} episodes a generation on environment.num_envs={config.environment.num_envs} copies{times}"
        return [f"{told} leave {spare} of them idle in its last turn; a divisor of {judged} wastes no steps"]

    def initialize(self, context: Context) -> None:
        """Bind the actor, and build what evolves it."""
        super().initialize(context)
        settings, device = self.settings, context.device
        self.head = _head(context.action_space).to(device)
        mode = context.config.environment.normalize_observations
        # Candidates of one generation see observations on one scale; what they see counts from the next one on.
        self.normalizer, self.seen = (ObservationNormalizer(context.observation_space, mode).to(device) for _ in range(2))
        self._policy = ActorPolicy(self.normalizer, self.actor, self.head, context.observation_space)
        self._policy.stochastic = not isinstance(self.head, DeterministicHead)
        self._stacked = Stacked(self.actor)
        size, most = self._stacked.size, MOST_WEIGHTS[settings.covariance]
        if size > most:
            way_out = "a smaller network" if settings.covariance == "diagonal" else "algorithm.covariance=diagonal"
            raise UserError(
                f"algorithm.covariance={settings.covariance}: network.actor has {size:,} weights, and it takes at most "
                f"{most:,}; use {way_out}"
            )
        self.evolution = CMAES(
            self._stacked.read(),
            settings.sigma,
            settings.population or _filling(size, settings, context.num_envs * context.world.size),
            diagonal=settings.covariance == "diagonal",
            active=settings.active,
            mirrored=settings.mirrored,
        )
        self.judging = Judging(self.evolution.population, size, settings.episodes, context.num_envs, device, context.world)
        self.best = self.evolution.mean.clone()
        self.best_fitness = torch.tensor(-torch.inf, dtype=torch.float64)
        self._forward: Forward | None = None  # the candidates at work; made of `judging` where it is missing

    # ---- acting -----------------------------------------------------------------------------------------------------------

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Act as the policy does; exploring, each row as its own candidate would, without chance."""
        if mode != "explore":
            return self._policy.act(observation, state, is_first, mode=mode, generator=generator)
        if self._forward is None:
            self._forward = self._stacked.bound(self.judging.dealt().to(self.context.device, torch.float32))
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        action = self.head(self._forward(self.normalizer(observation)), mask).mode()
        return ActResult(self.head.to_environment(action), state)

    # ---- hooks ------------------------------------------------------------------------------------------------------------

    def collect(self, phase: Phase, count: int) -> HookResult:
        """Take up to `count` vector steps, until every candidate of the generation is judged."""
        collector = self.context.collector
        assert collector is not None, "collecting needs an environment"
        self.set_schedules(phase)
        if self.judging.generation == 0:
            self._begin()
        decisions = steps = 0
        with evaluating(self._switched()):
            while steps < count and not self.judging.is_complete:
                if self.judging.begins_turn(collector.restarts):
                    root, common = self.context.streams.root, self.settings.common_seeds
                    seeds = self.judging.begin_turn(root, collector.restarts, common=common)
                    collector.begin_anew(seeds, self.initial_state)
                    self._forward = None
                decisions += collector.take(self.explorer(), self._take_in, 1, counting=self.judging.counted)
                steps += 1
        return HookResult(decisions=decisions, env_steps=decisions * collector.environment.action_repeat)

    def update(self, phase: Phase, count: int) -> HookResult:
        """Go on to the next generation, once all candidates of this one are judged."""
        if count < 1 or self.judging.generation == 0 or not self.judging.is_complete:
            return HookResult()
        self.set_schedules(phase)
        metrics = self.learn({"candidates": self.judging.candidates, "fitness": self.judging.fitness()})
        self.metrics.add({f"train/{name}": value for name, value in metrics.items()})
        counts = {"generation": self.evolution.generation, "evaluations": self.evolution.evaluations}
        self.metrics.put({f"train/{name}": float(value) for name, value in counts.items()}, group="generation")
        self.normalizer.load_state_dict(self.seen.state_dict())
        self.judging.begin(self.evolution.ask(self.context.streams["evolution"]))
        return HookResult(updates=1)

    def learn(self, batch: Batch) -> Metrics:
        """Move the distribution to where candidates (λ, n) of high fitness (λ,) are, and the policy with it."""
        candidates, fitness = batch["candidates"], batch["fitness"]
        self.evolution.tell(candidates, fitness)
        best = int(fitness.nan_to_num(-torch.inf).argmax())
        if fitness[best] > self.best_fitness:
            self.best.copy_(candidates[best])
            self.best_fitness.copy_(fitness[best])
        self._stacked.write(self.evolution.mean if self.settings.policy == "mean" else self.best)
        return {
            "fitness_best": fitness.max(),
            "fitness_mean": fitness.mean(),
            "fitness_std": fitness.std(correction=0),
            "sigma": self.evolution.sigma,
            "condition": self.evolution.condition,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there, amid a generation."""
        super().load_state_dict(state)
        self._forward = None

    def _begin(self) -> None:
        """Begin evolving around the network's weights as they are now: its first ones, or another run's."""
        self.evolution.mean.copy_(self._stacked.read())
        self.seen.load_state_dict(self.normalizer.state_dict())
        self.judging.begin(self.evolution.ask(self.context.streams["evolution"]))

    def _take_in(self, row: Mapping[str, Any]) -> None:
        """Take note of one vector step."""
        self.judging.add(row)
        self.seen.update(row["observation"], self.context.world)


def _filling(size: int, settings: CMAESConfig, copies: int) -> int:
    """Return the usual population, or one somewhat larger that leaves no copy idle: their steps are taken in any case."""
    turns = -(-usual_population(size) * settings.episodes // copies)
    filling = turns * copies // settings.episodes
    return filling - filling % 2 if settings.mirrored else filling


def _head(space: gymnasium.Space[Any]) -> ActionHead:
    """One action for each observation: the likeliest choice, or a point between the bounds."""
    return DeterministicHead(space) if isinstance(space, spaces.Box) else make_head(space)
