"""Diffusion Policy (Chi et al. 2023): chunks of actions, made from noise, given what was seen.

    seen   o_{t−1} o_t  ─→ encoder ─→ condition ┐
    chunk  a_t … a_{t+horizon−1} with noise ────┴→ denoiser ─→ the noise;   loss = |ε̂ − ε|²

Of each chunk the first `action_steps` are carried out, then the next one is made: what was seen meanwhile counts. Acting is by
averages of the weights over the updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.acting.policy import PartsPolicy
from etude.components.critics import Follow, target_of
from etude.components.diffusion import Diffusion
from etude.components.distributions import DeterministicHead, check_mask
from etude.components.networks.denoisers import ACTIONS, CONDITION, STEP, denoiser_space
from etude.components.networks.modes import evaluating
from etude.components.networks.spec import NetworkSpec
from etude.components.normalizers import ObservationNormalizer
from etude.compute.accelerate import at_once
from etude.compute.noise import Noise
from etude.compute.trees import map_tree
from etude.config.constraints import Bounds, Component, PositiveInt, PositiveSchedule, at_least
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import Part
from etude.datasets.buffer import DatasetBuffer
from etude.environments.spaces import observation_specs
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.learning.optimizers import build_optimizer
from etude.learning.update import Batch, Out, Stage, Update
from etude.workflows.base import ActResult, Context, Mode, PolicyWorkflow, State
from etude.workflows.metrics import Metrics
from etude.workflows.offline import LearnsFromData, OfflineConfig, scale_of_data


@dataclass(frozen=True)
class DiffusionPolicyConfig(OfflineConfig):
    """Diffusion Policy."""

    name: str = "diffusion_policy"
    """The registered name of the algorithm."""
    learning_rate: PositiveSchedule = Schedule.constant(3e-4)
    """Step size. Higher learns faster and breaks sooner; lin_3e-4 lowers it to 0 over the run."""
    observation_steps: PositiveInt = 2
    """Observations that a chunk is made from, the newest last."""
    horizon: PositiveInt = 16
    """Actions in a chunk. Longer is smoother and harder to learn."""
    action_steps: PositiveInt = 8
    """Actions of a chunk that are carried out before the next one is made. Fewer reacts sooner and costs more."""
    diffusion_steps: Annotated[int, at_least(2)] = 100
    """Steps from actions to noise."""
    sampler: Literal["ddim", "ddpm"] = "ddim"
    """How chunks are made: ddim in a few steps, ddpm in all of them with noise in each."""
    sampling_steps: PositiveInt = 10
    """Steps of ddim. More is closer to the data and slower."""
    embedding: PositiveInt = 64
    """Numbers that each observation becomes."""
    ema: Annotated[float, Bounds(low=0, high=0.99999)] = 0.995
    """How slowly the averages of the weights follow, which act; 0: the weights themselves."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("adamw", {"weight_decay": 1e-6})
    """adam, adamw, sgd or an import path, with its options."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from super().problems(config)
        if self.action_steps > self.horizon:
            yield f"algorithm.action_steps={self.action_steps}: a chunk has only algorithm.horizon={self.horizon} actions"
        if self.sampler == "ddim" and self.sampling_steps > self.diffusion_steps:
            most = f"algorithm.diffusion_steps={self.diffusion_steps}"
            yield f"algorithm.sampling_steps={self.sampling_steps}: there are only {most}"


class ChunkPolicy(PartsPolicy):
    """Makes a chunk of actions, carries out the first of them, and makes the next.

    The state of N episodes: the newest observations, the chunk at hand, and how many of its actions were carried out.
    """

    def __init__(
        self,
        normalizer: ObservationNormalizer,
        encoder: nn.Module,
        denoiser: nn.Module,
        head: DeterministicHead,
        settings: DiffusionPolicyConfig,
        observation_space: gymnasium.Space[Any],
    ) -> None:
        super().__init__(normalizer=normalizer, encoder=encoder, denoiser=denoiser, head=head)
        self._settings, self._space, self._head = settings, observation_space, head
        self._normalizer, self._encoder, self._denoiser = normalizer, encoder, denoiser
        self.diffusion = Diffusion(settings.diffusion_steps).to(head.middle.device)
        self._on_gpu = head.middle.device.type == "cuda"
        self._graphs: dict[int, Callable[..., Tensor]] = {}

    @property
    def observation_steps(self) -> int:
        """How many observations a chunk is made from."""
        return self._settings.observation_steps

    @property
    def action_steps(self) -> int:
        """How many actions of a chunk are carried out."""
        return self._settings.action_steps

    @property
    def noise_shape(self) -> torch.Size:
        """What a chunk is made of: first noise, and for ddpm more on the way. (1 + steps, horizon, A)"""
        more = self._settings.diffusion_steps - 1 if self._settings.sampler == "ddpm" else 0
        return torch.Size((1 + more, self._settings.horizon, self._head.actions))

    def initial_state(self, n: int) -> State:
        """Return that nothing was seen, and every chunk is used up."""
        settings, device = self._settings, self._head.middle.device
        specs = observation_specs(self._space)
        parts = {
            name: torch.zeros((n, settings.observation_steps, *spec.shape), dtype=spec.dtype, device=device)
            for name, spec in specs.items()
        }
        return {
            "seen": parts[""] if set(parts) == {""} else parts,
            "chunk": torch.zeros(n, settings.action_steps, self._head.actions, device=device),
            "done": torch.full((n,), settings.action_steps, device=device),
        }

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Return the next action of each chunk; where one is used up, or an episode begins, a new one is made first."""
        seen = map_tree(lambda before, now: _shifted(before, now, is_first), state["seen"], observation)
        due = is_first | (state["done"] >= self._settings.action_steps)
        chunk, done = state["chunk"], state["done"].masked_fill(due, 0)
        # On a GPU a chunk is one of all rows; elsewhere, only those that need one are worth the time.
        rows = due.nonzero().squeeze(1)
        if len(rows):
            noise, more = self._noise(len(due) if self._on_gpu else len(rows), generator)
            if self._on_gpu:
                chunk = torch.where(due[:, None, None], self.make(seen, noise, more), chunk)
            else:
                made = self.make(map_tree(lambda part: part[rows], seen), noise, more)
                chunk = chunk.index_copy(0, rows, made)
        sample = chunk[torch.arange(len(done), device=done.device), done]
        following = {"seen": seen, "chunk": chunk, "done": done + 1}
        return ActResult(self._head.to_environment(sample), following, {"sample": sample})

    def make(self, seen: Observation, noise: Tensor, more: Tensor) -> Tensor:
        """Return what `made` does; on a GPU captured, a graph for each number of episodes, and overwritten by the next call."""
        if not self._on_gpu:
            return self.made(seen, noise, more)
        if len(noise) not in self._graphs:
            self._graphs[len(noise)] = at_once(self.made, noise.device)
        return self._graphs[len(noise)](seen, noise, more)

    def made(self, seen: Observation, noise: Tensor, more: Tensor) -> Tensor:
        """Return chunks (N, action_steps, A) for what was seen (N, observation_steps, ...); a function of tensors."""
        settings = self._settings
        with evaluating(self._switched):
            condition = encoded(self._encoder, self._normalizer, seen)

            def predict(value: Tensor, step: int) -> Tensor:
                here = value.new_full((value.shape[0], 1), step / settings.diffusion_steps)
                return self._denoiser({ACTIONS: value, STEP: here, CONDITION: condition}).view_as(value)

            if settings.sampler == "ddpm":
                chunk = self.diffusion.ddpm(predict, noise, more)
            else:
                chunk = self.diffusion.ddim(predict, noise, settings.sampling_steps)
        return chunk[:, : settings.action_steps]

    def _noise(self, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return what chunks are made of."""
        draws, *shape = self.noise_shape
        drawn = torch.empty((draws, count, *shape), device=generator.device).normal_(generator=generator)
        return drawn[0], drawn[1:]


def _shifted(before: Tensor, now: Tensor, is_first: Tensor) -> Tensor:
    """(N, T, ...), (N, ...): the newest last; where an episode begins, it alone."""
    following = torch.cat([before[:, 1:], now.unsqueeze(1)], 1)
    alone = now.unsqueeze(1).expand_as(following)
    return torch.where(is_first.reshape(-1, *[1] * (following.ndim - 1)), alone, following)


def encoded(encoder: nn.Module, normalizer: ObservationNormalizer, seen: Observation) -> Tensor:
    """(N, T, ...) → (N, T, features)"""
    steps = next(iter(seen.values())).shape[:2] if isinstance(seen, dict) else seen.shape[:2]
    flat = map_tree(lambda part: part.flatten(0, 1), seen)
    return encoder(normalizer(flat)).unflatten(0, steps)


class DiffusionPolicy(PolicyWorkflow, LearnsFromData):
    """Diffusion Policy."""

    Config = DiffusionPolicyConfig
    evaluation_mode = "sample"
    learns_from = DatasetBuffer
    settings: DiffusionPolicyConfig
    encoder: nn.Module
    denoiser: nn.Module

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """A small encoder, and a U-Net."""
        encoder = {"type": "mlp", "hidden_dims": [128], "activation": "relu"}
        return {"encoder": encoder, "denoiser": {"type": "denoising_unet"}}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes."""
        check_mask(observation_space, _head(action_space))

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """What each observation becomes, and the noise in a chunk."""
        settings, actions = config.algorithm, _head(action_space).actions
        reads = denoiser_space(settings.horizon, actions, settings.observation_steps, settings.embedding)
        return {
            "encoder": NetworkSpec(settings.embedding),
            "denoiser": NetworkSpec(settings.horizon * actions, reads),
        }

    def initialize(self, context: Context) -> None:
        """Bind the networks, measure the data, and keep averages of the weights."""
        super().initialize(context)
        settings = self.settings
        self.head = _head(context.action_space).to(context.device)
        self.normalizer = scale_of_data(context, settings.normalize)
        self.mean_encoder, self.mean_denoiser = target_of(self.encoder), target_of(self.denoiser)
        self._policy = ChunkPolicy(
            self.normalizer, self.mean_encoder, self.mean_denoiser, self.head, settings, context.observation_space
        )
        parameters = [*self.encoder.parameters(), *self.denoiser.parameters()]
        rate = self.scheduled("learning_rate")
        self.optimizer = build_optimizer(settings.optimizer, {"denoiser": (parameters, rate)})
        update = Update(
            [Stage("denoiser", self.loss, self.optimizer, settings.max_grad_norm)],
            after=Follow([self.encoder, self.denoiser], [self.mean_encoder, self.mean_denoiser], 1 - settings.ema),
        )
        self._executor = self.executor(update)

    def loss(self, batch: Batch, noise: Noise) -> Out:
        """How far the noise in chunks is from what it is taken for."""
        clean = self.head.from_environment(batch["action"])  # (B, H, A)
        diffusion = self._policy.diffusion
        step = (noise.uniform("step", (len(clean),)) * diffusion.steps).long().clamp(max=diffusion.steps - 1)
        added = noise.normal("added", clean.shape)
        condition = encoded(self.encoder, self.normalizer, batch["observation"])
        here = (step / diffusion.steps).unsqueeze(1)
        given = {ACTIONS: diffusion.noised(clean, added, step), STEP: here, CONDITION: condition}
        found = self.denoiser(given).view_as(clean)
        return Out((found - added).square().mean(), {})

    def gathered(self, buffer: DatasetBuffer, columns: Mapping[str, Any], index: Tensor) -> Batch:
        """Return what was seen up to some steps, and what was done from there on."""
        return buffer.chunks(columns, index, self.settings.observation_steps, self.settings.horizon)

    def learn(self, batch: Batch) -> Metrics:
        """Take one gradient step on a batch."""
        return self._executor.learn(batch)


def _head(space: gymnasium.Space[Any]) -> DeterministicHead:
    if isinstance(space, spaces.Box):
        return DeterministicHead(space)
    raise UserError(f"diffusion_policy acts in Box spaces, not {type(space).__name__}; bc takes discrete actions")
