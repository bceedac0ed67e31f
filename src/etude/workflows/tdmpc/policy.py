"""What TD-MPC2 imagines, and how it acts: by planning in what it imagines, or by its policy network alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor, nn

from etude.acting.policy import ActorPolicy, ActResult, Mode, PartsPolicy, Policy, State
from etude.components.distributions import SquashedGaussian
from etude.components.networks.groups import GroupReader
from etude.components.networks.modes import evaluating
from etude.components.networks.normed_mlp import BatchedNormedMLP
from etude.components.planners import Plan, Planner, shifted
from etude.components.two_hot import TwoHot
from etude.compute.accelerate import compile_apart
from etude.environments.vector import Observation
from etude.workflows.tdmpc.config import TDMPCConfig

BINS, REACH = 101, 10.0
"""Rewards and values are two-hot in symlog: up to about ± 22,000."""
BELIEVED = 2
"""How many critics, drawn at random, are believed at a time."""


class Discount(nn.Module):
    """The discount, kept with the weights: it may follow from an episode's length, which a policy by itself does not know.

    So is the smallest deviation of a plan, where that changes over a run.
    """

    gamma: Tensor
    min_std: Tensor | None

    def __init__(self, gamma: float, min_std: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("gamma", torch.tensor(gamma))
        self.register_buffer("min_std", min_std)  # the tensor itself, which the schedule writes to


class WorldModel:
    """Latents, and what is known of them: where actions lead, what they earn, whether the task ends, what they are worth."""

    def __init__(self, parts: dict[str, nn.Module], settings: TDMPCConfig, device: torch.device) -> None:
        self.parts = parts
        self.normalizer, self.encoder, self.dynamics, self.reward, self.critic, self.actor, self.head, self.discount = (
            parts[name] for name in ("normalizer", "encoder", "dynamics", "reward", "critic", "actor", "head", "discount")
        )
        self.actions: int = self.head.actions  # type: ignore[assignment] # a BoundedHead's
        self.two_hot = TwoHot(BINS, REACH, "in symlog").to(device)
        self.episodic, self.critics = settings.episodic, settings.sizes.critics

    @property
    def gamma(self) -> Tensor:
        """The discount, on the device."""
        return self.discount.gamma  # type: ignore[return-value] # a buffer

    def encode(self, observation: Observation) -> Tensor:
        """(*batch, ...) → latents (*batch, D)"""
        return self.encoder(self.normalizer(observation))

    def policy(self, latent: Tensor) -> SquashedGaussian:
        """Return the policy network's distribution over actions (*batch, A), on the scale where bounds are ±1."""
        return self.head(self.actor(latent))

    def ahead(self, latent: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(B, D), (B, H, A) → latents with actions (B, H, D + A), and where each leads (B, H, D)."""
        pairs: list[Tensor] = []
        led_to: list[Tensor] = []
        for action in actions.unbind(1):
            pairs.append(torch.cat([latent, action], -1))
            latent = self.dynamics(pairs[-1])
            led_to.append(latent)
        return torch.stack(pairs, 1), torch.stack(led_to, 1)

    def earned(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """(..., D + A) → logits of the reward (..., bins), and the logit of the task's end (...)."""
        outputs = self.reward(pairs)
        return outputs[..., :BINS], outputs[..., BINS]

    def believed(self, critics: nn.Module, pairs: Tensor, uniform: Tensor | None) -> Tensor:
        """(..., D + A), (E,) → the values of two critics at random (2, ...); None: there are but two."""
        if uniform is None:
            return self.two_hot.mean(critics(pairs))
        chosen = uniform.topk(BELIEVED).indices
        if isinstance(critics, BatchedNormedMLP):  # the others need not be computed
            return self.two_hot.mean(critics(pairs, chosen))
        return self.two_hot.mean(critics(pairs).index_select(0, chosen))

    def value_of(self, latent: Tensor, actions: Tensor, uniform: Tensor | None) -> Tensor:
        """Return what sequences of actions are worth: (N, D), (N, S, H, A) → (N, S).

        The rewards on the way, and the critics' value of what the policy network would do then; all of it less likely to come
        where the task may have ended before.
        """
        count, samples, horizon, size = actions.shape
        start = latent.unsqueeze(1).expand(-1, samples, -1).reshape(count * samples, -1)
        pairs, led_to = self.ahead(start, actions.reshape(-1, horizon, size))
        rewards, ends = self.earned(pairs)
        goes_on = self.gamma * (-ends).sigmoid() if self.episodic else self.gamma.expand(ends.shape)
        counts = goes_on.cumprod(1)  # (N · S, H): what the step after each counts
        rewards = self.two_hot.mean(rewards)
        last = led_to[:, -1]
        value = self.believed(self.critic, torch.cat([last, self.policy(last).mode()], -1), uniform).mean(0)
        total = rewards[:, 0] + (rewards[:, 1:] * counts[:, :-1]).sum(1) + counts[:, -1] * value
        return total.view(count, samples)

    def proposed(self, latent: Tensor, noise: Tensor) -> Tensor:
        """Return what the policy network would do: (N, D), (H, N, P, A) → (N, P, H, A)."""
        latent = latent.unsqueeze(1).expand(-1, noise.shape[2], -1)
        actions: list[Tensor] = []
        for each in noise:
            if actions:
                latent = self.dynamics(torch.cat([latent, actions[-1]], -1))
            actions.append(self.policy(latent).at(each))
        return torch.stack(actions, 2)


class TDMPCPolicy(PartsPolicy):
    """Plans at every decision, beginning with what is left of the last plan; or acts by the policy network.

    explore: an elite's action, drawn by weight, with the plan's deviation as noise. sample: without the noise. greedy: the
    plan's mean. The state is that mean, (N, H, A).
    """

    def __init__(self, model: WorldModel, settings: TDMPCConfig) -> None:
        super().__init__(**model.parts)
        self._model, self._settings = model, settings
        self._head: Any = model.head
        scheduled: Tensor | None = model.discount.min_std  # type: ignore[assignment] # a buffer, or None
        smallest = settings.min_std.start if scheduled is None else scheduled
        self._planner = Planner(settings.elites, settings.temperature, smallest, settings.max_std, settings.momentum)
        self._compiled: dict[int, Callable[..., tuple[Tensor, ...]]] = {}

    @property
    def capturable(self) -> bool:
        """Everything here is a function of tensors."""
        return True

    def initial_state(self, n: int) -> State:
        """Return n plans that know nothing."""
        if not self._settings.plan:
            return None
        return torch.zeros(n, self._settings.horizon, self._model.actions, device=self._model.gamma.device)

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Return the environment action; extras hold it on the scale where bounds are ±1."""
        return self.decide(observation, state, is_first, mode=mode, generator=generator)[0]

    @torch.no_grad()
    def decide(
        self,
        observation: Observation,
        state: State,
        is_first: Tensor,
        *,
        mode: Mode,
        generator: Generator,
        compiled: bool = False,
    ) -> tuple[ActResult, Plan | None]:
        """Act, and return the plan behind it, if there is one; `compiled` is for those who go on with as many tasks."""
        with evaluating(self._switched):
            latent = self._model.encode(observation)
            if not self._settings.plan:
                policy = self._model.policy(latent)
                sample = policy.mode() if mode == "greedy" else policy.sample(generator)
                return ActResult(self._head.to_environment(sample), state, {"sample": sample}), None
            plan = self.plan(latent, shifted(state, is_first), generator, compiled=compiled)
        if mode == "greedy":
            sample = plan.mean[:, 0]
        else:
            sample = plan.draw(torch.rand(latent.shape[0], device=latent.device, generator=generator))
            if mode == "explore":
                noise = torch.empty_like(sample).normal_(generator=generator)
                sample = (sample + plan.std[:, 0] * noise).clamp(-1, 1)
        return ActResult(self._head.to_environment(sample), plan.mean, {"sample": sample}), plan

    def plan(self, latent: Tensor, mean: Tensor, generator: Generator, *, compiled: bool = False) -> Plan:
        """Plan from latents (N, D) and where planning begins (N, H, A)."""
        settings, (count, horizon, size) = self._settings, mean.shape
        on = {"device": latent.device, "generator": generator}
        drawn = settings.samples - settings.policy_samples
        noise = torch.randn(settings.iterations, count, drawn, horizon, size, **on)
        critics = self._model.critics
        believed = torch.rand(settings.iterations, critics, **on) if critics > BELIEVED else [None] * settings.iterations
        proposals = None
        if settings.policy_samples:
            wanted = torch.randn(horizon, count, settings.policy_samples, size, **on)
            proposals = self._model.proposed(latent, wanted)
        if compiled and count not in self._compiled:
            self._compiled[count] = compile_apart(self._improved, latent.device)
        improved = self._compiled[count] if compiled else self._improved
        plan = Plan.nothing(mean, settings.max_std)
        for each, uniform in zip(noise, believed, strict=True):
            plan = Plan(*improved(latent, plan.mean, plan.std, each, proposals, uniform))
        return plan

    def _improved(
        self, latent: Tensor, mean: Tensor, std: Tensor, noise: Tensor, proposals: Tensor | None, uniform: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Take one iteration of planning: a function of tensors, which can be compiled."""
        return (
            *self._planner.improved(
                lambda actions: self._model.value_of(latent, actions, uniform), mean, std, noise, proposals
            ),
        )

    def one_pass(self) -> Policy:
        """Return its policy network alone, where it acts without planning."""
        if self._settings.plan:
            return self
        encoder, actor = self._model.encoder, self._model.actor
        reads: nn.Module = nn.Sequential(encoder, actor)
        if isinstance(encoder, GroupReader):
            reads = GroupReader(nn.Sequential(encoder.network, actor), encoder.key)
        return ActorPolicy(self._model.normalizer, reads, self._head)  # type: ignore[arg-type] # a normaliser
