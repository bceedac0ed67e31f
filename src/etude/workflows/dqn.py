"""Deep Q-networks (Mnih et al. 2015) and what became of them.

    target    y = r + γ Q'(s', a'),   a' the best action at s': of Q (double, van Hasselt et al. 2016) or of Q' itself
    loss      Huber(Q(s, a) − y), times the importance weight where replay is prioritised (Schaul et al. 2016)
    targets   every `target_every` updates:  Q' ← Q' + τ (Q − Q')

With `distribution`, Q(s, a) is a distribution of returns in place of its mean, and the loss the distance to that of y
(Bellemare et al. 2017; Dabney et al. 2018). With `dueling`, Q is a state's value plus what each action adds (Wang et al. 2016).
Several rewards before bootstrapping, γⁿ and ends on the way are the replay buffer's business: `r` and `γ` come from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Generator, Tensor

from etude.acting.policy import ArrayTwin, Way
from etude.components.action_values import ActionValues, DuelingHead, allowed, of_action
from etude.components.critics import Follow, target_of
from etude.components.distributions import CategoricalHead, check_mask
from etude.components.networks.spec import NetworkSpec
from etude.components.normalizers import ObservationNormalizer
from etude.components.value_distributions import CategoricalValue, MeanValue, QuantileValue, ValueDistribution
from etude.compute.counter import Counter
from etude.compute.random_streams import derive_seed
from etude.config.constraints import Bounds, PositiveFloat, PositiveInt, PositiveSchedule, at_least, between
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import ACTION_MASK, Observation
from etude.errors import UserError
from etude.learning.optimizers import build_optimizer
from etude.learning.update import Batch, Beforehand, Out, Stage, Update, WrittenLoss
from etude.workflows.base import ActResult, Context, Mode, PolicyWorkflow, State
from etude.workflows.off_policy import OffPolicy, OffPolicyConfig
from etude.workflows.q_policy import QPolicy
from etude.workflows.written_losses import WrittenDQN, settings_are_plain

TO_NEARLY_GREEDY = Schedule(1.0, 0.05, 0.0, 0.1)
TARGETS = "target_outputs"
"""The column of what the target network says of each action, where it was asked beforehand."""


@dataclass(frozen=True)
class DQNConfig(OffPolicyConfig):
    """Deep Q-networks: double, dueling, prioritised, n-step and distributional."""

    name: str = "dqn"
    """The registered name of the algorithm."""
    learning_rate: PositiveSchedule = Schedule.constant(5e-4)
    """Step size. Higher learns faster and breaks sooner; lin_3e-4 lowers it to 0 over the run."""
    batch_size: PositiveInt = 64
    """Transitions per gradient step. More is steadier and slower."""
    tau: Annotated[float, Bounds(low=0, high=1, low_open=True)] = 1.0
    """How far the target network moves towards the trained one when it does; 1 copies it."""
    target_every: PositiveInt = 250
    """Gradient steps (not environment steps) between moves of the target network. Fewer learns faster and is less stable;
    with a tau of 0.005 or so, 1."""
    epsilon: Annotated[Schedule, between(0, 1)] = TO_NEARLY_GREEDY
    """Share of random actions while training data is gathered, by the environment steps done; from 1 down to 0.05 over the
    first tenth of the run by default. Evaluations take none."""
    double: bool = True
    """Choose the next action by the trained network and value it by the target network; keeps values from creeping up."""
    dueling: bool = False
    """Split the network into two streams, for the state's value and for what each action adds to it."""
    dueling_units: PositiveInt = 128
    """Dueling: units of the hidden layer that each stream has of its own, after the network's."""
    distribution: Literal["none", "categorical", "quantile"] = "none"
    """Learn the mean return, a histogram of returns between v_min and v_max (C51), or quantiles of them (QR-DQN)."""
    atoms: Annotated[int, at_least(2)] = 51
    """Categorical: how many returns have a probability each."""
    v_min: float = -10.0
    """Categorical: the lowest return that can be told from lower ones."""
    v_max: float = 10.0
    """Categorical: the highest return that can be told from higher ones."""
    quantiles: PositiveInt = 50
    """Quantile: how many of them. More sees finer differences and costs time."""
    max_grad_norm: PositiveFloat | None = 10.0
    """Clip the gradient to this norm; null leaves it alone."""
    train_every: PositiveInt = 4
    """Vector steps between updates."""
    reward_scale: PositiveFloat = 1.0
    """Multiplies rewards, to bring values near 1 where the task's are far from it."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from super().problems(config)
        if self.distribution == "categorical" and self.v_min >= self.v_max:
            yield f"algorithm.v_max={self.v_max:g}: must be above algorithm.v_min={self.v_min:g}"


class DQN(PolicyWorkflow, OffPolicy):
    """Deep Q-networks."""

    Config = DQNConfig
    default_num_envs = 1
    columns = ("observation", "action", "reward", "discount", "next_observation")
    q: ActionValues
    settings: DQNConfig
    _policy: QPolicy

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Two hidden layers of 256."""
        return {"q": {"type": "mlp", "hidden_dims": [256, 256], "activation": "relu"}}

    @classmethod
    def is_written(cls, config: Config) -> bool:
        """Where the network is plain and says means; a loss of one's own is torch's."""
        own = cls.loss is not DQN.loss or cls.next_outputs is not DQN.next_outputs
        settings = config.algorithm
        return not own and not settings.dueling and settings.distribution == "none" and settings_are_plain(config)

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Discrete actions, masked or not."""
        if not isinstance(action_space, spaces.Discrete):
            kind = type(action_space).__name__
            raise UserError(f"dqn values each of a few actions, so they must be Discrete, not {kind}; try sac or ppo")
        check_mask(observation_space, CategoricalHead(action_space))

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """One output for each action, as many as its distribution has numbers; or the features of two streams."""
        assert isinstance(action_space, spaces.Discrete)
        settings = config.algorithm
        outputs = int(action_space.n) * _distribution(settings).size
        return {"q": NetworkSpec(2 * settings.dueling_units if settings.dueling else outputs)}

    def initialize(self, context: Context) -> None:
        """Build what surrounds the network: head, target, optimiser, policy."""
        super().initialize(context)
        assert isinstance(context.action_space, spaces.Discrete)
        self._actions = int(context.action_space.n)
        distribution = _distribution(self.settings)
        self.q = ActionValues(context.components.q, self._actions, distribution, self._dueling_head(distribution.size))
        self.q.to(context.device)
        self.target_q = target_of(self.q)
        mode = context.config.environment.normalize_observations
        self.normalizer = ObservationNormalizer(context.observation_space, mode).to(context.device)
        self._policy = QPolicy(self.normalizer, self.q, context.observation_space)
        rate = self.scheduled("learning_rate")
        self.optimizer = build_optimizer(self.settings.optimizer, {"q": (list(self.q.parameters()), rate)})
        self.scheduled("epsilon")  # for the log; acting reads the schedule itself, at every step
        self._share = _OnDevice(self.settings.epsilon.start, context.device)
        self._explored = Counter()  # environment steps, to know where on that schedule we are
        self._noise: tuple[Tensor, np.ndarray] | None = None  # where it is drawn to on the host, and the same as an array
        self._executor = self.executor(self.losses())

    def _dueling_head(self, size: int) -> DuelingHead | None:
        if not self.settings.dueling:
            return None
        generator = torch.Generator().manual_seed(derive_seed(self.context.config.experiment.seed, "init", "dueling"))
        return DuelingHead(self.settings.dueling_units, self._actions, size, generator)

    def losses(self) -> Update:
        """One loss, then the target network when it is due."""
        beforehand = Beforehand(("next_observation",), self.target_outputs)
        plain = self.is_written(self.context.config) and ACTION_MASK not in leaf_spaces(self.context.observation_space)
        networks = {"q": self.q.network, "target": self.target_q.network}
        written = WrittenLoss(networks, self._written_loss) if plain else None
        clip = self.settings.max_grad_norm
        return Update(
            [Stage("q", self.loss, self.optimizer, clip, beforehand=beforehand, written=written)],
            after=Follow([self.q], [self.target_q], self.settings.tau),
            after_every=self.settings.target_every,
        )

    def loss(self, batch: Batch) -> Out:
        """How far the values of the actions taken are from their targets."""
        reward = self.settings.reward_scale * batch["reward"]
        with torch.no_grad():
            next_outputs = self.next_outputs(batch)
        outputs = of_action(self.q(self.normalizer(batch["observation"])), batch["action"])  # (B, size)
        losses, errors = self.q.distribution.errors(outputs, next_outputs, reward, batch["discount"])
        weighted = losses * batch["weight"] if "weight" in batch else losses
        values, next_values = self.q.values(outputs.detach()), self.q.values(next_outputs)
        metrics = {
            "train/q_mean": values.mean(),
            "train/q_target_mean": (reward + batch["discount"] * next_values).mean(),
            "train/q_error": errors.mean(),
        }
        return Out(weighted.mean(), metrics, per_row={"priority": errors} if "weight" in batch else {})

    def _written_loss(self, networks: Mapping[str, Any], gradients: Mapping[Tensor, Any]) -> WrittenDQN:
        return WrittenDQN(networks, self.normalizer, self.settings.reward_scale, double=self.settings.double)

    def target_outputs(self, batch: Batch) -> dict[str, Tensor]:
        """Return what the target network says of each action, for as many updates as it stays the same: one larger product."""
        return {TARGETS: self.target_q(self.normalizer(batch["next_observation"]))}

    def next_outputs(self, batch: Batch) -> Tensor:
        """Return what the target network says of the best allowed action, (B, size)."""
        observation = batch["next_observation"]
        seen = self.normalizer(observation)
        outputs = batch[TARGETS] if TARGETS in batch else self.target_q(seen)
        judged = self.q(seen) if self.settings.double else outputs
        return of_action(outputs, allowed(self.q.values(judged), observation).argmax(-1))

    # ---- acting ---------------------------------------------------------------------------------------------------------

    @property
    def capturable(self) -> bool:
        """Where the policy's is."""
        return self._policy.capturable

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Take the best action; while exploring, any allowed one instead, in a share ε of the steps."""
        if mode != "explore":
            return self._policy.act(observation, state, is_first, mode=mode, generator=generator)
        if self._policy.on_host is not None:
            assert isinstance(observation, Tensor)
            return ActResult(torch.from_numpy(self._explore_on_host(observation.numpy(), "explore", generator)), state)
        # As many numbers whatever they are used for, so that the stream does not depend on what was learnt.
        noise = torch.empty((len(is_first), self._actions + 1), device=generator.device).uniform_(generator=generator)
        # The highest of random numbers is any action.
        preference = torch.where(noise[:, :1] < self._share.tensor, noise[:, 1:], self._policy.values(observation))
        return ActResult(allowed(preference, observation).argmax(-1), state)

    def act_randomly(self, observation: Observation, state: State, is_first: Tensor, *, generator: Generator) -> ActResult:
        """Any allowed action, each as likely as the others; the numbers drawn are as many as while exploring."""
        noise = torch.empty((len(is_first), self._actions + 1), device=generator.device).uniform_(generator=generator)
        return ActResult(allowed(noise[:, 1:], observation).argmax(-1), state)

    def advance(self, rows: int) -> None:
        """Note the share of random actions at this very step, however many steps one call collects; and count the step."""
        epsilon, done = self.settings.epsilon, self._explored.value
        repeat = self._repeat()
        self._explored.value = done + rows * repeat * self.context.world.size
        share = epsilon.start
        if not epsilon.is_constant:
            since = done - self.now.env_steps  # which is as this cycle began
            share = epsilon.at(self.now.later(env_steps=since, decisions=since // repeat))
        if share != self._share.value:
            self._share.write(share, self._policy.on_host is None)

    def load_acting_state(self, state: Mapping[str, Any], decisions: int) -> None:
        """As every workflow; and go on counting where that many decisions lead to."""
        super().load_acting_state(state, decisions)
        self._explored.value = decisions * self._repeat()

    def _repeat(self) -> int:
        collector = self.context.collector
        return self.context.action_repeat if collector is None else collector.environment.action_repeat

    def array_twin(self) -> ArrayTwin | None:
        """Where the network has a twin in NumPy."""
        return None if self._policy.on_host is None else self._explore_from_arrays

    def _explore_from_arrays(
        self, observation: np.ndarray, way: Way, generator: Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        return self._explore_on_host(observation, way, generator), {}

    def _explore_on_host(self, observation: np.ndarray, way: Way, generator: Generator) -> np.ndarray:
        """The same in NumPy: the same numbers, and the same choice but for roundings of the values."""
        count, epsilon = len(observation), 1.0 if way == "random" else self._share.value
        if self._noise is None or len(self._noise[1]) != count:
            drawn = torch.empty((count, self._actions + 1))
            self._noise = (drawn, drawn.numpy())
        self._noise[0].uniform_(generator=generator)
        noise = self._noise[1]
        preference = noise[:, 1:]
        if epsilon < 1:
            greedy = noise[:, 0] >= epsilon
            how_many = np.count_nonzero(greedy)  # a tenth of what any() and all() cost
            if how_many == len(greedy):
                preference = self._policy.values_on_host(observation)
            elif how_many:
                preference = np.where(greedy[:, None], self._policy.values_on_host(observation), preference)
        return preference.argmax(-1)

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """Return the value of the best action in each observation, in units of reward (N,)."""
        return self._policy.values(observation).amax(-1) / self.settings.reward_scale


class _OnDevice:
    """A number, on the host and as a tensor; no part of the state, since it is written before it is read."""

    def __init__(self, value: float, device: torch.device) -> None:
        self.tensor, self.value = torch.tensor(value, device=device), value

    def write(self, value: float, is_read: bool) -> None:
        """Change it; the tensor only if somebody reads that."""
        self.value = value
        if is_read:
            self.tensor.fill_(value)


def _distribution(settings: DQNConfig) -> ValueDistribution:
    if settings.distribution == "categorical":
        return CategoricalValue(settings.atoms, settings.v_min, settings.v_max)
    return QuantileValue(settings.quantiles) if settings.distribution == "quantile" else MeanValue()
