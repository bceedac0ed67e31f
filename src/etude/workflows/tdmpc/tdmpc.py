"""TD-MPC2: a world model that is learnt by what it predicts, and planned in (Hansen, Su and Wang 2024).

    o₀ ─enc→ z₀ ─a₀→ z₁ ─a₁→ z₂ ─a₂→ z₃          z unrolled from the first observation; a, r, o are replayed
             │       │       │
             r̂,q̂     r̂,q̂     r̂,q̂                  rewards, ends and values of each (z, a)

    model    Σ ρᵗ [ c₁ |zₜ₊₁ − sg enc(oₜ₊₁)|² + c₂ CE(r̂ₜ, rₜ) + c₃ CE(q̂ₜ, yₜ) + c₄ BCE(end) ]
    target   yₜ = rₜ + γ (1 − terminated) min of two Q'(enc(oₜ₊₁), a'),  a' ~ π
    policy   Σ ρᵗ [ mean of two Q(zₜ, π(zₜ)) / S + entropy ],  S the running range of values; latents as they were
    acting   plans in z, see `etude.workflows.tdmpc.policy`

A window goes on across the ends of episodes: steps behind the first end in it count for nothing. What a time limit cuts is
worth the value of where it really led; a real end is worth its reward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn
from torch.nn import functional

from etude.components import plan_view
from etude.components.critics import Follow, target_of
from etude.components.distributions import SmoothGaussianHead, check_mask
from etude.components.networks.encoder import FlatEncoder
from etude.components.networks.groups import ACTOR, group_of
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.spec import NetworkSpec
from etude.components.normalizers import ObservationNormalizer
from etude.components.random_shift import Draw, RandomShift
from etude.components.return_scale import ReturnScale
from etude.compute.noise import Noise
from etude.compute.trees import at
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import Part
from etude.environments.episode_limit import steps_per_decision
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.learning.optimizers import build_optimizer
from etude.learning.sources import Replayed
from etude.learning.update import Batch, Out, Stage, Update
from etude.workflows.base import ActResult, Context, HookResult, Mode, Phase, PolicyWorkflow, State, hook
from etude.workflows.off_policy import OffPolicy, random_actions
from etude.workflows.tdmpc.config import TDMPCConfig, passes_on
from etude.workflows.tdmpc.policy import BELIEVED, BINS, Discount, TDMPCPolicy, WorldModel

USUAL_GAMMA = 0.99
SHARE_OF_ENCODER = 0.3
"""The encoder's step size, as a share of the others'."""
PLANS_REPAY_COMPILING, UPDATES_REPAY_COMPILING = 5_000, 20_000
"""Gradient steps from which a third off each plan repays half a minute of compiling for the CPU; or off each update, two."""
STATES_SHOWN, WINDOWS_SHOWN = 4, 12
PLANNED = ("collect/plan_return", "collect/plan_std")


class TDMPC(PolicyWorkflow, OffPolicy):
    """TD-MPC2."""

    Config = TDMPCConfig
    settings: TDMPCConfig
    supports_samplers = False
    of_rank = ("planned",)
    compiles_on_gpu = True
    fixed_schedules = ("min_std",)
    columns = ("observation", "sample", "reward", "terminated", "is_first", "next_observation")
    encoder: nn.Module
    dynamics: nn.Module
    reward: nn.Module
    critic: nn.Module
    actor: nn.Module

    # ---- what the config needs to know ------------------------------------------------------------------------------------

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Normalised layers everywhere, as wide as `algorithm.size` says; latents on simplices of 8."""
        latent = {"type": "normed_mlp", "simplex": 8}
        return {
            "encoder": latent,
            "dynamics": dict(latent),
            "reward": {"type": "normed_mlp"},
            "critic": {"type": "normed_mlp", "dropout": 0.01},
            "actor": {"type": "normed_mlp"},
        }

    @classmethod
    def default_phases(cls, config: Config) -> Sequence[Mapping[str, Any]]:
        """Random actions, as many updates, then an update for each planned decision."""
        settings, seed = config.algorithm, _seed_steps(config)
        train = {"name": "train", "hooks": ["collect", {"update": {"ratio": settings.updates_per_decision}}]}
        if not settings.learning_starts:
            return [train]
        if seed >= config.training.total_steps:  # no step would be left to plan
            return [{"name": "seed", "hooks": ["collect"]}]
        updates = settings.learning_starts if settings.pretrain is None else settings.pretrain
        pretrain = {"name": "pretrain", "type": "offline", "hooks": ["update"], "duration_updates": updates}
        return [{"name": "seed", "hooks": ["collect"], "duration_steps": seed}, *([pretrain] if updates else []), train]

    @classmethod
    def gradient_steps(cls, config: Config) -> int:
        """Those on random actions, and those of planned decisions."""
        settings, steps = config.algorithm, config.training.total_steps - _seed_steps(config)
        first = settings.learning_starts if settings.pretrain is None else settings.pretrain
        return first + int(steps / steps_per_decision(config.environment) * settings.updates_per_decision) if steps > 0 else 0

    @classmethod
    def repays_compiling(cls, config: Config) -> int:
        """Planning repays it early, updates later."""
        return PLANS_REPAY_COMPILING if config.algorithm.plan else UPDATES_REPAY_COMPILING

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes."""
        if not isinstance(action_space, spaces.Box):
            raise UserError(
                f"tdmpc plans continuous actions, not {type(action_space).__name__}; use dqn or ppo for discrete ones"
            )
        check_mask(observation_space, SmoothGaussianHead(action_space))

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """All but the encoder read latents; rewards, ends and values begin as zeros."""
        size, head = config.algorithm.sizes, SmoothGaussianHead(action_space)  # type: ignore[arg-type] # checked
        if passes_on(config):
            size = size._replace(latent=FlatEncoder(group_of(ACTOR, observation_space) or observation_space).size)
        pair, hidden = size.latent + head.actions, (size.hidden, size.hidden)
        return {
            "encoder": NetworkSpec(size.latent, hidden_dims=size.encoder, group=ACTOR),
            "dynamics": NetworkSpec(size.latent, inputs=pair, hidden_dims=hidden),
            "reward": NetworkSpec(BINS + 1, inputs=pair, hidden_dims=hidden, output_gain=0.0),
            "critic": NetworkSpec(BINS, inputs=pair, hidden_dims=hidden, output_gain=0.0, copies=size.critics),
            "actor": NetworkSpec(head, inputs=size.latent, hidden_dims=hidden),
        }

    # ---- what it is made of -----------------------------------------------------------------------------------------------

    def initialize(self, context: Context) -> None:
        """Bind the networks, and build what surrounds them."""
        super().initialize(context)
        settings, device = self.settings, context.device
        self.head = SmoothGaussianHead(context.action_space).to(device)  # type: ignore[arg-type] # checked
        mode = context.config.environment.normalize_observations
        self.normalizer = ObservationNormalizer(context.observation_space, mode).to(device)
        self.discount = Discount(_discount(context), None if settings.min_std.is_constant else self.scheduled("min_std")).to(
            device
        )
        self.shift = RandomShift(context.observation_space, settings.random_shift)
        names = ("normalizer", "encoder", "dynamics", "reward", "critic", "actor", "head", "discount")
        self.model = WorldModel({name: getattr(self, name) for name in names}, settings, device)
        self.target_critic = target_of(self.critic)
        self._policy = TDMPCPolicy(self.model, settings)
        self._compiles_plans = self.compiles  # for as many tasks as are explored; not for evaluating others
        self.scale = ReturnScale()
        self.return_low, self.return_high = self.scale.initial(device).values()
        self.planned = torch.zeros(len(PLANNED), device=device)
        """The value and the deviation of the last plan."""
        self._counts = settings.rho ** torch.arange(settings.horizon + 1, device=device)
        rate, of_encoder = self.scheduled("learning_rate"), self.scheduled("encoder_learning_rate")
        rest = [parameter for part in (self.dynamics, self.reward, self.critic) for parameter in part.parameters()]
        groups = {"encoder": (list(self.encoder.parameters()), of_encoder), "rest": (rest, rate)}
        groups = {name: group for name, group in groups.items() if group[0]}  # an encoder that passes on has no weights
        self.model_optimizer = build_optimizer(settings.optimizer, groups)
        self.policy_optimizer = build_optimizer(_steadier(settings.optimizer), {"": (list(self.actor.parameters()), rate)})
        self._executor = self.executor(self.losses())

    def _schedule(self, name: str) -> Schedule:
        if name == "encoder_learning_rate" and self.settings.encoder_learning_rate is None:
            rate = super()._schedule("learning_rate")
            return replace(rate, start=SHARE_OF_ENCODER * rate.start, end=SHARE_OF_ENCODER * rate.end)
        return super()._schedule(name)

    def losses(self) -> Update:
        """The model with its critics, then the policy network on the latents that this unrolled, then the target critics."""
        clip = self.settings.max_grad_norm
        own = {"return_low": self.return_low, "return_high": self.return_high}
        return Update(
            [
                Stage("model", self.model_loss, self.model_optimizer, clip),
                Stage("policy", self.policy_loss, self.policy_optimizer, clip, state=own),
            ],
            after=Follow([self.critic], [self.target_critic], self.settings.tau),
            # A model that is unrolled, forth and back, takes two minutes. On a GPU it is captured, which is as good.
            is_compilable=self.context.device.type == "cpu"
            and self.gradient_steps(self.context.config) >= UPDATES_REPAY_COMPILING,
        )

    # ---- losses -----------------------------------------------------------------------------------------------------------

    def model_loss(self, batch: Batch, noise: Noise) -> Out:
        """Predict latents, rewards, ends and values along each window (B, H)."""
        model, settings = self.model, self.settings
        terminated = batch["terminated"].float()
        inside = _inside(batch)
        with torch.no_grad():
            led_to = model.encode(self.shift(batch["next_observation"], _named("next_shift", noise)))
            targets = self.targets(batch, led_to, noise)
        first = model.encode(self.shift(at(batch["observation"], (slice(None), 0)), _named("first_shift", noise)))
        pairs, latents = model.ahead(first, batch["sample"])
        rewards, ends = model.earned(pairs)
        values = self.critic(pairs)  # (E, B, H, bins)
        losses = {  # (B, H) each, with how much it counts
            "consistency": (settings.consistency_coef, (latents - led_to).square().mean(-1)),
            "reward": (settings.reward_coef, model.two_hot.loss(rewards, batch["reward"])),
            "value": (settings.value_coef, model.two_hot.loss(values, targets).mean(0)),
        }
        if settings.episodic:
            by_end = functional.binary_cross_entropy_with_logits(ends, terminated, reduction="none")
            losses["termination"] = (settings.termination_coef, by_end)
        share = inside * self._counts[:-1] / settings.horizon
        means = {name: (share * each).sum(1).mean() for name, (_, each) in losses.items()}
        metrics = {f"train/{name}_loss": mean.detach() for name, mean in means.items()}
        steps = self.context.world.sum(inside.sum())
        if settings.episodic:
            right = ((ends.detach() > 0) == batch["terminated"]).float()
            metrics["train/termination_accuracy"] = self.context.world.sum((right * inside).sum()) / steps
        metrics["train/q_target_mean"] = self.context.world.sum((targets * inside).sum()) / steps
        loss = torch.stack([losses[name][0] * mean for name, mean in means.items()]).sum()
        # Behind a real end there is nothing to do; where a time limit has cut, there would be.
        worth_acting = torch.cat([torch.ones_like(inside[:, :1]), inside * (1 - terminated)], 1)  # (B, H + 1)
        carry = {"latents": torch.cat([first[:, None], latents], 1), "weight": worth_acting}
        return Out(loss, metrics, carry=carry)

    def targets(self, batch: Batch, led_to: Tensor, noise: Noise) -> Tensor:
        """Return what the critics are to say: (B, H), from latents of where each step led (B, H, D)."""
        policy, model = self.model.policy(led_to), self.model
        action = policy.at(noise.normal("next_action", policy.mean.shape))
        chosen = self.chosen("target_critics", noise)
        value = model.believed(self.target_critic, torch.cat([led_to, action], -1), chosen).amin(0)
        return batch["reward"] + model.gamma * batch["terminated"].logical_not() * value

    def policy_loss(self, batch: Batch, carry: Mapping[str, Any], state: Mapping[str, Tensor], noise: Noise) -> Out:
        """Climb the critics on latents (B, H + 1), keep some entropy."""
        latents, weight, model = carry["latents"], carry["weight"], self.model
        policy = model.policy(latents)
        action = policy.at(noise.normal("action", policy.mean.shape))
        chosen = self.chosen("critics", noise)
        value = model.believed(self.critic, torch.cat([latents, action], -1), chosen).mean(0)  # (B, H + 1)
        scale = self.scale.updated(state, self.context.world.gather(value[:, 0]))
        # Before squashing, and times the number of actions, as the authors' code has it; constants are left out.
        entropy = model.actions * policy.log_std.sum(-1)
        gain = value / self.scale.divisor(scale) + self.settings.entropy_coef * entropy
        metrics = {
            "train/q_mean": value[:, 0].detach().mean(),
            "train/policy_std": policy.log_std.detach().exp().mean(),
            "train/return_scale": self.scale.divisor(scale),
        }
        return Out(-(gain * weight * self._counts).mean(), metrics, state=scale)

    def chosen(self, name: str, noise: Noise) -> Tensor | None:
        """Return the numbers that decide which critics are believed, (E,); None where all are."""
        count = self.model.critics
        if count <= BELIEVED:
            return None
        drawn = noise.uniform(name, (count,))
        self.context.world.broadcast_([drawn])  # one draw for all rows, whosever they are
        return drawn

    # ---- hooks ------------------------------------------------------------------------------------------------------------

    @hook(collects=True, counts_steps=True)
    def collect(self, phase: Phase, count: int) -> HookResult:
        """Take `count` vector steps, and note what each plan promised."""
        decisions = env_steps = 0
        for _ in range(count):
            plans = self.settings.plan and not self.is_warming_up()
            done = super().collect(phase, 1)
            decisions, env_steps = decisions + done.decisions, env_steps + done.env_steps
            if plans:
                self.metrics.add_row(self.planned, PLANNED, group="plan")
        return HookResult(decisions=decisions, env_steps=env_steps)

    @hook
    def update(self, phase: Phase, count: int) -> HookResult:
        """Take `count` gradient steps on windows from the phase's buffer, once it holds enough."""
        buffer: Any = self.buffer(phase)
        if not buffer.ready:
            return HookResult()
        source = Replayed(buffer, self.columns, self.settings.batch_size, self.context.streams["buffer"])
        self.note(self._executor.run(source, count, self.scheduled_before(phase)))
        return HookResult(updates=count)

    # ---- acting -----------------------------------------------------------------------------------------------------------

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Act as the policy does; while exploring, note what the plan promises."""
        compiled = mode == "explore" and self._compiles_plans
        result, plan = self._policy.decide(observation, state, is_first, mode=mode, generator=generator, compiled=compiled)
        if plan is not None and mode == "explore":
            self.planned.copy_(torch.stack([plan.value.mean(), plan.std[:, 0].mean()]))
        return result

    def act_randomly(self, observation: Observation, state: State, is_first: Tensor, *, generator: Generator) -> ActResult:
        """Any action, each as likely as the others."""
        return random_actions(self.head, state, is_first, generator)

    @property
    def capturable(self) -> bool:
        """As the policy."""
        return self._policy.capturable

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """Return what all critics together say of the policy network's action, in raw observations (N,)."""
        model = self.model
        with evaluating(mode_dependent(self.critic)):
            latent = model.encode(observation)
            outputs = self.critic(torch.cat([latent, model.policy(latent).mode()], -1))
        return model.two_hot.mean(outputs).mean(0)

    @torch.no_grad()
    def media(self, generator: Generator) -> Mapping[str, Tensor]:
        """Plans from a few replayed states beside the policy network's actions, and predicted beside received rewards."""
        replay: Any = next(iter(self.context.buffers.values()))
        if not replay.ready:
            return {}
        batch, model = replay.peek(WINDOWS_SHOWN, generator, self.columns), self.model
        with evaluating(mode_dependent(*model.parts.values())):
            first = model.encode(at(batch["observation"], (slice(None), 0)))
            predicted = model.two_hot.mean(model.earned(model.ahead(first, batch["sample"])[0])[0])
            states = first[:STATES_SHOWN]
            nothing = states.new_zeros(len(states), self.settings.horizon, model.actions)
            plan = self._policy.plan(states, nothing, generator)
            own = model.proposed(states, nothing.movedim(1, 0).unsqueeze(2))[:, 0]
        shown = {"rewards": plan_view.rewards(batch["reward"], predicted, _inside(batch))}
        return {"plans": plan_view.plans(plan, own), **shown} if self.settings.plan else shown


def _seed_steps(config: Config) -> int:
    """Return the environment steps of the seed phase, of all processes: enough decisions, a window in each environment."""
    settings, copies = config.algorithm, config.environment.num_envs * config.experiment.processes
    rows = max(math.ceil(settings.learning_starts / copies), settings.horizon)
    return rows * copies * steps_per_decision(config.environment)


def _discount(context: Context) -> float:
    """Return the discount: as set, or by how many decisions an episode has; a policy that is loaded brings its own."""
    if context.config.algorithm.gamma is not None:
        return context.config.algorithm.gamma
    environment = None if context.collector is None else context.collector.environment
    limit = None if environment is None else environment.base.max_episode_steps
    if environment is None or limit is None:
        return USUAL_GAMMA
    fifth = limit / environment.action_repeat / 5
    return min(0.995, max(0.95, (fifth - 1) / fifth))


def _inside(batch: Batch) -> Tensor:
    """Return 1 for steps up to the first end in each window, and 0 behind it: (B, H)."""
    later = batch["is_first"][:, 1:].logical_not().float().cumprod(1)
    return torch.cat([torch.ones_like(batch["reward"][:, :1]), later], 1)


def _named(prefix: str, noise: Noise) -> Draw:
    return lambda name, shape: noise.uniform(f"{prefix} {name}".rstrip(), shape)


def _steadier(optimizer: Part) -> Part:
    """Return the same optimiser with a larger ε, where it has one that is not set: the policy's gradients can be tiny."""
    has_epsilon = optimizer.type in ("adam", "adamw") and "eps" not in optimizer.options
    return replace(optimizer, options={**optimizer.options, "eps": 1e-5}) if has_epsilon else optimizer
