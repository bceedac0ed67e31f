"""World Models (Ha and Schmidhuber 2018): learn to see, learn what comes next, and evolve a controller that is tiny.

    collect   random behaviour ─→ replay
    V         observation ─→ z                 a variational autoencoder; every observation is then encoded once
    M         z, a, h ─→ h', what z' may be    a mixture-density LSTM, on latents that are drawn anew for every batch
    C         a = W [z, h] + b                 evolved by CMA-ES: in the task, or in M's dreams

Each is a phase of one run, by hooks of their own, so that other orders are data too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import torch
from torch import Generator, Tensor

from etude.acting.actor import Actor
from etude.buffers.base import ColumnSpecs
from etude.buffers.replay import ReplayBuffer
from etude.components.evolution import CMAES
from etude.components.latent_dreams import LatentDreams, chances
from etude.components.mdn_rnn import MDNRNN
from etude.components.networks.spec import NetworkSpec
from etude.components.networks.vae import VAE, Posterior
from etude.components.networks.world_encoder import is_picture, parts_of
from etude.components.normalizers import RunningMoments
from etude.components.open_loop_view import dream_media, open_loop_media
from etude.components.two_hot import symlog
from etude.components.world_actions import world_actions
from etude.compute.accelerate import is_captured
from etude.compute.noise import Noise
from etude.compute.random_streams import derive_seed
from etude.compute.trees import at, first_leaf, map_tree
from etude.config.schema import Config
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import ACTION_MASK, Observation
from etude.errors import UserError
from etude.learning.execute import Executor
from etude.learning.optimizers import build_optimizer
from etude.learning.sources import Replayed
from etude.learning.update import Batch, Out, Stage, Update
from etude.workflows.base import ActResult, Context, Mode, State, Workflow, hook
from etude.workflows.hooks import HookResult, LeftAmidError, Phase, never
from etude.workflows.judging import Judging
from etude.workflows.metrics import Metrics
from etude.workflows.world_models.config import LATENT, WorldModelsConfig
from etude.workflows.world_models.policy import EXPLORER, REMEMBERED, Candidates, Controller, RandomBehaviour, WorldModelsPolicy

ENCODED_AT_ONCE = 512
STEPS_A_CYCLE = 100
"""Vector steps between two looks at whether it is time to log, save or stop."""
STEPS_UNHEEDED = 20
"""Steps of a dream between two looks at whether it is time to stop."""
WINDOWS_SHOWN, STEPS_SEEN, STEPS_DREAMT = 6, 5, 100
"""Windows in a film, how many of their steps V sees before M predicts, and the length of a film of dreams."""


class WorldModels(Workflow):
    """V sees, M remembers and foresees, C acts."""

    Config = WorldModelsConfig
    learns_from = ReplayBuffer
    settings: WorldModelsConfig
    vae: VAE
    memory: MDNRNN | None
    supports_ranks = True
    of_rank = ("judging", "dealt")
    columns = (LATENT, "action", "reward", "terminated", "is_first")
    """What of replayed steps M reads."""

    # ---- what the config needs to know --------------------------------------------------------------------------------

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """V; M and C follow from the algorithm's settings."""
        return {"vae": {"type": "vae"}}

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        """Windows of 32 steps."""
        return {"replay": {"type": "replay", "sequence": 32}}

    @classmethod
    def default_phases(cls, config: Config) -> Sequence[Mapping[str, Any]]:
        """Random behaviour, V, M, and evolution: in dreams, or in the task for the rest of the budget."""
        settings = config.algorithm
        phases: list[dict[str, Any]] = [
            {"name": "collect", "hooks": ["collect"], "duration_steps": settings.collect_steps},
            {"name": "vae", "type": "offline", "hooks": ["update_vae"], "duration_updates": settings.vae_updates},
        ]
        if settings.memory == "learnt":
            learn = {"type": "offline", "hooks": ["update_memory"], "duration_updates": settings.memory_updates}
            phases.append({"name": "memory", **learn})
        if settings.dream:
            dream = {"type": "offline", "hooks": ["dream"], "duration_updates": settings.generations}
            return [*phases, {"name": "dream", **dream}]
        evolve = {"name": "evolve", "hooks": [{"evolve": {"count": STEPS_A_CYCLE}}]}
        return [*phases, evolve] if _steps_left(config) else phases

    @classmethod
    def remarks(cls, config: Config) -> list[str]:
        """Say where nothing is left to evolve in."""
        settings = config.algorithm
        if settings.dream or config.training.phases or _steps_left(config):
            return []
        return [
            f"algorithm.collect_steps={settings.collect_steps}: leaves nothing of training.total_steps="
            f"{config.training.total_steps} to evolve the controller in; lower it, or set algorithm.dream to true"
        ]

    @classmethod
    def gradient_steps(cls, config: Config) -> int:
        """Return how many gradient steps V and M take."""
        settings = config.algorithm
        return settings.vae_updates + (settings.memory_updates if settings.memory == "learnt" else 0)

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes and discrete actions, without masks."""
        world_actions(action_space, 0.0)
        if ACTION_MASK in leaf_spaces(observation_space):
            raise UserError(
                f"observation '{ACTION_MASK}': world_models dreams of latents, and which actions these allow nobody knows; "
                "use ppo, dqn or sac"
            )

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """V reads what is seen."""
        return {"vae": NetworkSpec(config.algorithm.latent_dim, methods=("observe", "decode", "loss", "measure"))}

    @classmethod
    def extra_columns(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> ColumnSpecs:
        """What V takes each observation for."""
        return {LATENT: ((2 * config.algorithm.latent_dim,), torch.float32)}

    # ---- making it ----------------------------------------------------------------------------------------------------

    def initialize(self, context: Context) -> None:
        """Bind V, and build M, C and what learns them."""
        super().initialize(context)
        settings, device = self.settings, context.device
        self.head = world_actions(context.action_space, 0.0).to(device)
        self.memory = None
        if settings.memory != "off":
            generator = Generator().manual_seed(derive_seed(context.config.experiment.seed, "init", "memory"))
            own = {"size": settings.memory_size, "mixtures": settings.mixtures, "generator": generator}
            self.memory = MDNRNN(settings.latent_dim, self.head.actions, **own).to(device)
        features = settings.latent_dim + (0 if self.memory is None else settings.memory_size)
        self.controller = Controller(features, self.head).to(device)
        of_task = (context.observation_space, context.action_space)
        self._policy = WorldModelsPolicy(self.vae, self.memory, self.controller, self.head, of_task)
        self._at_random = RandomBehaviour(self._policy, self.controller, settings.exploration, settings.exploration_std)
        size, copies = self.controller.size, context.num_envs
        self.evolution = CMAES(torch.zeros(size), settings.sigma, settings.population)
        self.judging = Judging(settings.population, size, settings.episodes, copies, device, context.world)
        self.dealt = torch.zeros(copies, size, device=device)
        """The controller that each copy of the environment judges."""
        self.turns = torch.zeros(2, dtype=torch.int64)
        """Whether evolution has the environment, and how often it has had to give it back."""
        self.encoded = torch.zeros(2, dtype=torch.int64)
        """V's updates when observations were last encoded, and the number of the step up to which they are."""
        self.measured = torch.zeros((), dtype=torch.bool)
        """Whether V knows on which scale vectors are."""
        self.vae_optimizer = self._optimizer(self.vae, "vae_learning_rate")
        update = Update([Stage("vae", self.vae_loss, self.vae_optimizer)])
        self._vae_executor = self.executor(update)
        self._memory_executor: Executor | None = None
        if settings.memory == "learnt":
            assert self.memory is not None
            self.memory_optimizer = self._optimizer(self.memory, "memory_learning_rate")
            stage = Stage("memory", self.memory_loss, self.memory_optimizer, settings.max_grad_norm)
            # Compiling the sequence whole would unroll it; its cell is a region, which is compiled by itself.
            self._memory_executor = self.executor(Update([stage], is_compilable=False))
        if self.memory is not None:
            self._dreams = LatentDreams(self.memory, self.controller, self.head, settings.temperature)
            self._dream_step = self.accelerated(self._dreams.step)
        captured = is_captured(context.mode)
        candidates = Candidates(self._policy, self.dealt)
        self._candidates = Actor(candidates, "greedy", context.streams["action"], captured=captured)

    def _optimizer(self, part: torch.nn.Module, rate: str) -> torch.optim.Optimizer:
        return build_optimizer(self.settings.optimizer, {"": ([*part.parameters()], self.scheduled(rate))})

    # ---- losses -------------------------------------------------------------------------------------------------------

    def vae_loss(self, batch: Batch, noise: Noise) -> Out:
        """V's loss on observations (B, ...)."""
        drawn = noise.normal("latent", (len(first_leaf(batch["observation"])), self.settings.latent_dim))
        loss, error, divergence = self.vae.loss(batch["observation"], drawn, self.settings.kl_tolerance)
        return Out(loss.mean(), {"train/reconstruction_loss": error.mean(), "train/kl": divergence.mean()})

    def memory_loss(self, batch: Batch, noise: Noise) -> Out:
        """M's loss on windows (B, L, ...), with latents that are drawn anew."""
        assert self.memory is not None
        steps = map_tree(lambda column: column.transpose(0, 1), dict(batch))
        mean, log_var = steps[LATENT].chunk(2, -1)
        latent = Posterior(mean, log_var).draw(noise.normal("latent", mean.shape))
        action = self.head.from_environment(steps["action"])
        settings, world = self.settings, self.context.world
        losses = self.memory.losses(latent, action, steps["is_first"], steps["reward"], steps["terminated"], world)
        loss = losses["nll"] + settings.reward_weight * losses["reward"] + settings.done_weight * losses["done"]
        names = {"nll": "train/memory_nll", "reward": "train/reward_loss", "done": "train/done_loss"}
        return Out(loss, {names[key]: value for key, value in losses.items()})

    # ---- hooks --------------------------------------------------------------------------------------------------------

    @hook
    def update_vae(self, phase: Phase, count: int) -> HookResult:
        """Take `count` steps of V on single observations, once there are enough."""
        buffer = self._replay(phase)
        if not buffer.ready:
            return HookResult()
        self._measure(buffer)
        streams, size = self.context.streams, self.settings.batch_size
        source = Replayed(buffer, ("observation",), size, streams["buffer"], single=True)
        self.note(self._vae_executor.run(source, count, self.scheduled_before(phase)))
        return HookResult(updates=count)

    @hook
    def update_memory(self, phase: Phase, count: int) -> HookResult:
        """Take `count` steps of M on windows of latents; what V has not encoded yet as it is now is encoded first."""
        buffer, executor = self._replay(phase), self._memory_executor
        if executor is None:
            raise UserError(
                f"phase '{phase.name}': algorithm.memory={self.settings.memory} leaves M as it is; set it to learnt"
            )
        if not buffer.ready:
            return HookResult()
        self._encode(buffer)
        source = Replayed(buffer, self.columns, self.settings.memory_batch_size, self.context.streams["buffer"])
        self.note(executor.run(source, count, self.scheduled_before(phase)))
        return HookResult(updates=count)

    @hook(collects=True, counts_steps=True)
    def collect(self, phase: Phase, count: int) -> HookResult:
        """Take `count` vector steps of random behaviour into the phase's buffer."""
        collector = self.context.collector
        assert collector is not None, "collecting needs an environment"
        if count and self.turns[0]:  # evolution's episodes are no part of what is stored
            self.turns += torch.tensor([-1, 1])
            returned, root = int(self.turns[1]), self.context.streams.root
            first = self.context.world.rank * self.context.num_envs  # by place among all copies
            seeds = [derive_seed(root, "collect", returned, first + copy) for copy in range(self.context.num_envs)]
            collector.begin_anew(seeds, self.initial_state)
        return super().collect(phase, count)

    @hook(collects=True, counts_steps=True)
    def evolve(self, phase: Phase, count: int) -> HookResult:
        """Take `count` vector steps, in each copy with the controller that is judged there; generations follow one another."""
        collector, judging = self.context.collector, self.judging
        assert collector is not None, "evolving in the task needs an environment"
        self.set_schedules(phase)
        decisions = generations = 0
        for _ in range(count):
            if judging.is_complete:
                judging.begin(self.evolution.ask(self._chance_of_generation()))
            restarts = collector.restarts + int(self.turns[1])
            if judging.begins_turn(restarts):
                seeds = judging.begin_turn(self.context.streams.root, restarts, common=True)
                collector.begin_anew(seeds, self.initial_state)
                self.dealt.copy_(judging.dealt())
                self.turns[0] = 1
            decisions += collector.take(self._candidates, judging.add, 1, counting=judging.counted)
            if judging.is_complete:
                self._judged(judging.candidates, judging.fitness())
                generations += 1
        env_steps = decisions * collector.environment.action_repeat
        return HookResult(decisions=decisions, env_steps=env_steps, updates=generations)

    @hook(takes_long=True)
    def dream(self, phase: Phase, count: int) -> HookResult:
        """Evolve `count` generations of controllers in M's dreams; no environment is stepped.

        Asked to stop amid the first one it leaves off, and dreams it again another time.
        """
        buffer = self._replay(phase)
        if self.settings.memory != "learnt":
            raise UserError(f"phase '{phase.name}': algorithm.memory={self.settings.memory} can't dream; set it to learnt")
        if not buffer.ready:
            return HookResult()
        self.set_schedules(phase)
        self._encode(buffer)
        generator = self.context.streams["dream"]
        before = generator.get_state()
        for number in range(count):
            candidates = self.evolution.ask(self._chance_of_generation())
            self.context.world.broadcast_([candidates])
            try:
                fitness = self._fitness_in_dreams(candidates, buffer, generator, never if number else phase.asked_to_stop)
            except LeftAmidError:
                generator.set_state(before)
                raise
            self._judged(candidates, fitness)
        return HookResult(updates=count)

    def _fitness_in_dreams(
        self, candidates: Tensor, buffer: ReplayBuffer, generator: Generator, asked_to_stop: Callable[[], bool]
    ) -> Tensor:
        """Return what candidates (n, P) earn in a dream on average, (n,); each process dreams its share for all."""
        world, settings = self.context.world, self.settings
        share = settings.episodes * (world.rank + 1) // world.size - settings.episodes * world.rank // world.size
        starts = self._beginnings(buffer, max(1, share), generator)  # one with no share dreams along
        weights = candidates.to(self.context.device, torch.float32)
        earned = self.dreamt(weights, starts, settings.dream_steps, generator, asked_to_stop)
        return earned.mean(1) if world.size == 1 else world.sum(earned[:, :share].sum(1)) / settings.episodes

    def learn(self, batch: Batch) -> Metrics:
        """Take one step of V on observations (B, ...), or on those of windows."""
        windows = batch["reward"].ndim == 2
        seen = map_tree(lambda part: part.flatten(0, 1), batch["observation"]) if windows else batch["observation"]
        return self._vae_executor.learn({"observation": seen})

    def _replay(self, phase: Phase) -> ReplayBuffer:
        buffer = self.buffer(phase)
        assert isinstance(buffer, ReplayBuffer)
        return buffer

    def _chance_of_generation(self) -> Generator:
        """Return random numbers of this generation's own, on the host, where evolution is."""
        return Generator().manual_seed(derive_seed(self.context.streams.root, "generation", self.evolution.generation))

    def _judged(self, candidates: Tensor, fitness: Tensor) -> None:
        """Let evolution know how good candidates (n, P) were, (n,), and the controller be what it would try next."""
        fitness = fitness.to("cpu", torch.float64)
        self.evolution.tell(candidates, fitness)
        self.controller.weights.copy_(self.evolution.mean)
        metrics = {"mean": fitness.mean(), "best": fitness.max(), "std": fitness.std(), "sigma": self.evolution.sigma}
        self.metrics.add({f"train/fitness_{name}": value for name, value in metrics.items()}, group="generation")

    # ---- what V sees, once ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _measure(self, buffer: ReplayBuffer) -> None:
        """Have V look once at the scale of everything that was seen before it learns."""
        if not self.measured:
            for batch in self._walk(buffer, 0):
                self.vae.measure(batch["observation"])
            for moments in self.vae.modules():
                if isinstance(moments, RunningMoments):
                    moments.merge(self.context.world)
            self.context.world.broadcast_([*self.vae.buffers()])  # whatever else a VAE of one's own may have measured
            self.measured.fill_(True)

    @torch.no_grad()
    def _encode(self, buffer: ReplayBuffer) -> None:
        """Encode what was not yet, or by a V that has learnt since."""
        learnt, done = self._vae_executor.taken.value, self.encoded.tolist()
        for batch in self._walk(buffer, done[1] if learnt == done[0] else 0):
            posterior = self.vae.observe(batch["observation"])
            buffer.learned(batch["index"], batch["generation"], **{LATENT: torch.cat(posterior, -1)})
        self.encoded.copy_(torch.tensor([learnt, buffer.store.written]))

    def _walk(self, buffer: ReplayBuffer, first: int) -> Any:
        return buffer.walk(("observation",), first=first, at_once=ENCODED_AT_ONCE, device=self.context.device)

    # ---- dreams -------------------------------------------------------------------------------------------------------

    def _beginnings(self, buffer: ReplayBuffer, count: int, generator: Generator) -> Tensor:
        """Draw how episodes began, as V sees it: latents (count, Z)."""
        held = buffer.store.flat["is_first"].nonzero().flatten()  # what was never written is no beginning
        which = torch.randint(max(1, len(held)), (count,), generator=generator, device=generator.device)
        place = held[which.to(held.device)] if len(held) else which.to(held.device)
        mean, log_var = buffer.store.flat[LATENT][place].to(generator.device).chunk(2, -1)
        return Posterior(mean, log_var).draw(torch.randn(mean.shape, generator=generator, device=generator.device))

    @torch.no_grad()
    def dreamt(
        self,
        weights: Tensor,
        starts: Tensor,
        steps: int,
        generator: Generator,
        asked_to_stop: Callable[[], bool] = never,
    ) -> Tensor:
        """Return what controllers (n, P) earn in dreams from latents (E, Z), all at once: (n, E)

        Every controller dreams the same dreams: it is the same chance that decides in them. A reward counts by how likely
        it is that the dream had not ended before. Asked to stop on the way it raises `LeftAmidError`.
        """
        episodes, size = starts.shape
        dream: tuple[Tensor, ...] = self._dreams.begin(starts.expand(len(weights), -1, -1).reshape(-1, size))
        each = weights.repeat_interleave(episodes, 0)
        for step in range(steps):
            if step % STEPS_UNHEEDED == 0 and asked_to_stop():
                raise LeftAmidError
            dream = self._dream_step(dream, each, *chances(starts, generator))
        return dream[-1].view(len(weights), episodes).clone()

    # ---- acting -------------------------------------------------------------------------------------------------------

    def initial_state(self, n: int) -> State:
        """Return M's state, and what random behaviour carries: the weights of each episode, or where actions have wandered."""
        explorer = torch.zeros(n, self._at_random.size, device=self.context.device)
        return {REMEMBERED: self._policy.initial_state(n), EXPLORER: explorer}

    @torch.no_grad()
    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Act as the policy does; to explore, at random."""
        remembered, explorer = state[REMEMBERED], state[EXPLORER]
        if mode != "explore":
            result = self._policy.act(observation, remembered, is_first, mode=mode, generator=generator)
        else:
            result, explorer = self._at_random(observation, remembered, explorer, is_first, generator)
        not_encoded = torch.zeros(len(is_first), 2 * self.settings.latent_dim, device=self.context.device)
        return ActResult(result.action, {REMEMBERED: result.state, EXPLORER: explorer}, {LATENT: not_encoded})

    @property
    def capturable(self) -> bool:
        """As the policy."""
        return self._policy.capturable

    def policy(self) -> WorldModelsPolicy:
        """Return V, M and C."""
        return self._policy

    # ---- looking into the model ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def media(self, generator: Generator) -> Mapping[str, Tensor]:
        """What V makes of a few windows, and M of what follows, beside what came; and dreams of the controller."""
        replay, space = next(iter(self.context.buffers.values())), self.context.observation_space
        if not isinstance(replay, ReplayBuffer) or not replay.ready or not self._vae_executor.taken.value:
            return {}
        names = ("observation", "action", "is_first")
        batch = replay.peek(WINDOWS_SHOWN, generator, names)
        steps = map_tree(lambda column: column.transpose(0, 1), {name: batch[name] for name in names})
        length = len(steps["is_first"])
        foresees = self.settings.memory == "learnt" and self._memory_executor is not None and self._memory_executor.taken.value
        context = min(STEPS_SEEN, length // 2) if foresees else length
        latents = self.vae.observe(steps["observation"]).mean
        if foresees:
            latents = self._dreams.foreseen(latents, steps["action"], steps["is_first"], context, generator)
        made = _shown(self.vae.decode(latents), space)
        shown = open_loop_media(steps["observation"], at(made, slice(0, context)), at(made, slice(context, length)), space)
        if not foresees:
            return shown
        dreamt = self._dreams.walked(
            latents[0], self.controller.weights, min(STEPS_DREAMT, self.settings.dream_steps), generator
        )
        return {**shown, **dream_media(self.vae.decode(dreamt), space)}


def _steps_left(config: Config) -> bool:
    return config.training.total_steps > config.algorithm.collect_steps


def _shown(made: Observation, space: gymnasium.Space[Any]) -> Observation:
    """As charts and films take what a decoder makes: pictures as they are, vectors in symlog."""
    parts = {"": made} if isinstance(made, Tensor) else made
    shown = {name: parts[name] if is_picture(part) else symlog(parts[name]) for name, part in parts_of(space).items()}
    return shown.get("", shown)
