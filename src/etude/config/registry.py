"""Names for parts: algorithms, networks, buffers, optimisers, callbacks and sinks chosen in a config.

A registry maps a name to a place in the code without importing it, so that listing what exists costs nothing. Parts come
from here, from a decorator (`@register_algorithm("mine")`), from an installed package's entry points (group
`etude.<kind>`), or from an import path (`my_module:MyClass` or `my_module.MyClass`).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from etude.config.algorithm import AlgorithmSettings
from etude.errors import EtudeError, UserError, did_you_mean

Class = TypeVar("Class", bound=type)


class Registry:
    """The parts of one kind, by name."""

    def __init__(
        self,
        kind: str,
        builtin: Mapping[str, tuple[str, str]],
        *,
        needs: Sequence[str] = (),
        supplied: Sequence[str] = (),
        settings: type = object,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.needs = tuple(needs)
        """What a class must have to be of this kind."""
        self.supplied = tuple(supplied)
        """Arguments that Etude itself gives; a user can't."""
        self.settings = settings
        """What a class's `Config` is derived from, where it has one."""
        self._builtin = dict(builtin)
        self._aliases = dict(aliases or {})
        self._registered: dict[str, type] = {}

    def register(self, name: str) -> Callable[[Class], Class]:
        """Decorate a class to make `name` mean it; a name can be taken only once."""

        def decorate(cls: Class) -> Class:
            # A package may give the same class its name by an entry point too.
            others = [place for place in self._places(name) if place != f"{cls.__module__}:{cls.__qualname__}"]
            if others:
                raise UserError(f"{self.kind} '{name}' is registered already, for {others[0]}; give yours another name")
            self._registered[name] = cls
            return cls

        return decorate

    def names(self) -> list[str]:
        """Return every known name, sorted."""
        return sorted({*self._builtin, *self._registered, *self._entry_points()})

    def builtin_names(self) -> list[str]:
        """Return the names that come with Etude, sorted."""
        return sorted(self._builtin)

    def describe(self) -> dict[str, str]:
        """Return each name with one line about it, without importing the built-in ones."""
        lines = {name: description for name, (_, description) in self._builtin.items()}
        for name, entry in self._entry_points().items():
            lines[name] = f"from {entry.value}"
        for name, cls in self._registered.items():
            lines[name] = (cls.__doc__ or "").strip().split("\n")[0]
        return dict(sorted(lines.items()))

    def resolve(self, name: str, *, allow_imports: bool = True) -> Any:
        """Return the class that `name` means; an import path is followed only if `allow_imports`."""
        if len(places := self._places(name)) > 1:
            raise UserError(
                f"{self.kind} '{name}' is registered more than once, for {' and for '.join(places)}; uninstall the package of "
                "one, or name the class by its import path"
            )
        if name in self._registered:
            return self._registered[name]
        name = self._aliases.get(name, name)
        if name in self._builtin:
            return load_object(self._builtin[name][0])
        if name in self._entry_points():
            return self._load_entry_point(name)
        if is_import_path(name):
            if not allow_imports:
                raise UserError(
                    f"{self.kind} '{name}' is code from an import path, and this config did not come from your own files; "
                    "pass --trust (in Python trust=True) if you know where it is from"
                )
            return import_own(name, self.kind)
        raise UserError(f"unknown {self.kind} '{name}'{did_you_mean(name, self.names())} (known: {', '.join(self.names())})")

    def _places(self, name: str) -> list[str]:
        """Everything that this name is given to, as module:Name."""
        own = self._builtin.get(self._aliases.get(name, name))
        cls = self._registered.get(name)
        installed = [entry.value for entry in self._installed() if entry.name == name]
        here = [] if cls is None else [f"{cls.__module__}:{cls.__qualname__}"]
        return list(dict.fromkeys([*([] if own is None else [own[0]]), *here, *installed]))

    def _load_entry_point(self, name: str) -> Any:
        entry = self._entry_points()[name]
        try:
            return entry.load()
        except (ImportError, AttributeError) as error:
            package = entry.dist.name if entry.dist is not None else entry.module
            raise EtudeError(f"{self.kind} '{name}' of the package {package} can't be loaded: {error}") from error

    def _entry_points(self) -> dict[str, importlib.metadata.EntryPoint]:
        return {entry.name: entry for entry in self._installed()}

    def _installed(self) -> importlib.metadata.EntryPoints:
        return _installed_parts(f"etude.{self.kind}", tuple(sys.path))


@cache
def _installed_parts(group: str, path: tuple[str, ...]) -> importlib.metadata.EntryPoints:
    """The entry points of a group on a path. Looking through every package takes ten milliseconds, a hundred times a run."""
    return importlib.metadata.entry_points(group=group)


def is_import_path(name: str) -> bool:
    """Whether `name` looks like `package.module:Class` or `module.Class`."""
    return all(part.isidentifier() for part in name.replace(":", ".").split(".")) and ("." in name or ":" in name)


def load_object(path: str, kind: str = "part") -> Any:
    """Import `module:Name` or `module.Name`."""
    module_name, _, attribute = path.partition(":") if ":" in path else path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Only the module that the user named is the user's slip; one missing further down is a fault of that module.
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise
        raise UserError(f"{kind} '{path}': there is no module '{error.name}' here") from None
    found = getattr(module, attribute, None)
    if found is None:
        near = did_you_mean(attribute, [name for name in vars(module) if not name.startswith("_")])
        raise UserError(f"{kind} '{path}': module '{module_name}' has no '{attribute}'{near}")
    return found


def import_own(path: str, kind: str = "part") -> Any:
    """Import a user's `module:name` or `module.name`, from the current folder too."""
    _see_current_folder()
    return load_object(path, kind)


def _see_current_folder() -> None:
    """Find a user's modules in the current folder, as `python` itself would."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()


def _within(package: str, places: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return places inside a package, by name, as places."""
    return {name: (f"{package}.{place}", description) for name, (place, description) in places.items()}


algorithms = Registry(
    "algorithm",
    {
        "a2c": ("etude.workflows.a2c:A2C", "Advantage actor-critic, one gradient step a rollout; any actions"),
        "bc": (
            "etude.workflows.bc:BC",
            "Behaviour cloning from a dataset: Gaussian, mixture, memory; discrete and bounded continuous actions",
        ),
        "cma_es": (
            "etude.workflows.cma_es:CMAESWorkflow",
            "Evolution of a small policy by CMA-ES: whole episodes, no gradients; discrete and bounded continuous actions",
        ),
        "dqn": (
            "etude.workflows.dqn:DQN",
            "Deep Q-networks: double, dueling, prioritised, n-step, distributional; discrete actions",
        ),
        "diffusion_policy": (
            "etude.workflows.diffusion_policy:DiffusionPolicy",
            "Diffusion Policy from a dataset: chunks of actions made from noise; bounded continuous actions",
        ),
        "flash_sac": (
            "etude.workflows.flash_sac:FlashSAC",
            "FlashSAC: soft actor-critic with batch norms, weights of length 1, distributions of returns; continuous actions",
        ),
        "dreamer": (
            "etude.workflows.dreamer.dreamer:Dreamer",
            "DreamerV3: a world model, and a policy that learns in its imagination; discrete and continuous actions",
        ),
        "dreamer_v1": (
            "etude.workflows.dreamer.dreamer:DreamerV1",
            "The first Dreamer: a Gaussian state, and a policy that learns by gradients through the model",
        ),
        "dreamer_v2": (
            "etude.workflows.dreamer.dreamer:DreamerV2",
            "DreamerV2: a state of classes with balanced divergences; discrete and continuous actions",
        ),
        "iql": (
            "etude.workflows.iql:IQL",
            "Implicit Q-learning from a dataset, then fine-tuning online if asked; bounded continuous actions",
        ),
        "planet": (
            "etude.workflows.planet:Planet",
            "PlaNet: a world model alone, planned in at every decision; continuous actions",
        ),
        "ppo": (
            "etude.workflows.ppo:PPO",
            "Proximal policy optimisation; discrete, multi-discrete and continuous actions",
        ),
        "ppo_amp": (
            "etude.workflows.ppo_amp:PPOAMP",
            "PPO with an adversarial motion prior: a discriminator says how like a reference motion a robot moves",
        ),
        "ppo_student": (
            "etude.workflows.ppo_student:PPOStudent",
            "PPO whose policy, which sees more, teaches a student in the same run",
        ),
        "q_learning": (
            "etude.workflows.q_learning:QLearning",
            "Tabular Q-learning, for discrete observations and actions",
        ),
        "reinforce": ("etude.workflows.reinforce:Reinforce", "REINFORCE: a policy, whole episodes, no critic; any actions"),
        "sac": ("etude.workflows.sac:SAC", "Soft actor-critic with automatic temperature; continuous and discrete actions"),
        "sql": ("etude.workflows.sql:SQL", "Soft Q-learning with a sampler of many modes; continuous actions"),
        "td3": (
            "etude.workflows.td3:TD3",
            "Twin delayed deterministic policy gradients, DDPG as settings of it; continuous actions",
        ),
        "td3_bc": (
            "etude.workflows.td3_bc:TD3BC",
            "TD3 on a dataset with behaviour cloning, then fine-tuning online if asked; bounded continuous actions",
        ),
        "tdmpc": (
            "etude.workflows.tdmpc.tdmpc:TDMPC",
            "TD-MPC2: a world model without pictures, planned in at every decision; continuous actions",
        ),
        "tqc": (
            "etude.workflows.tqc:TQC",
            "Truncated quantile critics: soft actor-critic on distributions; continuous actions",
        ),
        "world_models": (
            "etude.workflows.world_models.world_models:WorldModels",
            "World Models: a learnt eye and memory, and a linear controller by evolution, in the task or in a dream",
        ),
        "random": ("etude.workflows.random_policy:RandomPolicy", "Uniformly random actions, the baseline for any task"),
    },
    needs=("act", "learn", "default_networks", "default_buffers", "default_num_envs", "Config"),
    settings=AlgorithmSettings,
)
networks = Registry(
    "network",
    {
        "mlp": ("etude.components.networks.mlp:MLP", "Fully connected layers"),
        "cnn": ("etude.components.networks.cnn:CNN", "Convolutions over images, then fully connected layers"),
        "normed_mlp": (
            "etude.components.networks.normed_mlp:NormedMLP",
            "Fully connected layers with layer norms, and latents on simplices",
        ),
        "batch_normed_mlp": (
            "etude.components.networks.batch_normed_mlp:BatchNormedMLP",
            "Fully connected layers with batch norms, as in CrossQ",
        ),
        "residual_mlp": (
            "etude.components.networks.residual_mlp:ResidualMLP",
            "Residual blocks with batch norm, layer norm or on a sphere, as in FlashSAC, Simba and SimbaV2",
        ),
        "identity": ("etude.components.networks.identity:Identity", "No network: the observation itself, as one vector"),
        "denoising_unet": (
            "etude.components.networks.denoisers:DenoisingUNet",
            "The noise in a chunk of actions, by convolutions over time",
        ),
        "denoising_transformer": (
            "etude.components.networks.denoisers:DenoisingTransformer",
            "The noise in a chunk of actions, by attention",
        ),
        "decoder": ("etude.components.networks.decoder:Decoder", "From features back to vectors and pictures"),
        "world_mlp": (
            "etude.components.networks.world_mlp:WorldMLP",
            "Fully connected layers with RMSNorm and SiLU, as in DreamerV3",
        ),
        "world_encoder": (
            "etude.components.networks.world_encoder:WorldEncoder",
            "What a world model reads: pictures by convolutions and max-pooling, vectors by their symlog",
        ),
        "world_decoder": (
            "etude.components.networks.world_decoder:WorldDecoder",
            "From a world model's state back to pictures and vectors",
        ),
        "vae": (
            "etude.components.networks.vae:VAE",
            "A variational autoencoder: pictures of 64 x 64 pixels and vectors to a few numbers, and back",
        ),
        "head": ("etude.components.networks.head:Head", "Its own outputs on another network's features"),
        "gru": ("etude.components.networks.recurrent:GRU", "Memory by gated recurrent units"),
        "lstm": ("etude.components.networks.recurrent:LSTM", "Long short-term memory"),
        "transformer": (
            "etude.components.networks.transformer:Transformer",
            "Memory by causal self-attention over the last observations of the episode",
        ),
    },
    needs=("forward",),
    supplied=("observation_space", "output_size", "input_space", "output_space", "generator", "output_gain"),
)
encoders = Registry(
    "encoder",
    {
        "flat": ("etude.components.networks.keyed_encoder:FlatPart", "The values themselves, discrete ones one-hot"),
        "mlp": ("etude.components.networks.keyed_encoder:MLPEncoder", "Fully connected layers"),
        "cnn": ("etude.components.networks.conv_encoder:ConvEncoder", "Convolutions over an image"),
    },
    needs=("forward",),
    supplied=("space", "generator"),
)
buffers = Registry(
    "buffer",
    {
        "dataset": ("etude.datasets.buffer:DatasetBuffer", "Episodes that were recorded before, the same for the whole run"),
        "hindsight": (
            "etude.buffers.replay:HindsightBuffer",
            "For tasks with goals: transitions as if what was reached had been the goal",
        ),
        "prioritized": (
            "etude.buffers.replay:PrioritizedReplayBuffer",
            "The last transitions, sampled in proportion to their priority",
        ),
        "replay": ("etude.buffers.replay:ReplayBuffer", "The last transitions, sampled uniformly; n-step returns"),
        "rollout": ("etude.buffers.rollout:RolloutBuffer", "One on-policy rollout, time-major"),
    },
)
views = Registry("view", {})
"""What a replay makes of the transitions that were drawn; all are users' own."""
optimizers = Registry(
    "optimizer",
    {
        "adam": ("torch.optim:Adam", "Adam"),
        "adamw": ("torch.optim:AdamW", "Adam with decoupled weight decay"),
        "laprop": (
            "etude.learning.rules:LaProp",
            "LaProp on gradients clipped by the size of what they change, as in DreamerV3",
        ),
        "rmsprop": ("torch.optim:RMSprop", "RMSprop"),
        "sgd": ("torch.optim:SGD", "Stochastic gradient descent, with momentum if asked"),
    },
    supplied=("params", "lr"),
)
callbacks = Registry(
    "callback",
    {
        "plateau": ("etude.orchestration.plateau:Plateau", "An alert, or the end, once a metric no longer improves"),
        "q_contours": ("etude.using.q_contours:QContours", "Pictures of the Q-function while it is learnt, in the run's logs/"),
        "video": ("etude.using.training_videos:RecordVideos", "Videos of the policy while it learns, in the run's videos/"),
    },
)
sinks = Registry(
    "sink",
    {"neptune": ("etude.telemetry.neptune:NeptuneSink", "Metrics, media and policies for Neptune (package: neptune)")},
    needs=("write", "flush", "close"),
    supplied=("run",),
)
wrappers = Registry(
    "wrapper",
    _within(
        "etude.environments.wrappers",
        {
            "action_clip": ("actions:ActionClip", "Continuous actions clipped to the task's bounds"),
            "action_lag": ("imperfections:ActionLag", "Actions that take effect some steps late"),
            "action_mask": ("actions:ActionMask", "Only some of the discrete actions allowed"),
            "action_remap": ("actions:ActionRemap", "A list of the task's actions to choose from"),
            "action_rescale": ("actions:ActionRescale", "Continuous actions in a range of your own"),
            "action_reward": ("bonuses:ActionReward", "A reward or cost for each discrete action"),
            "breakout_features": ("objects:BreakoutFeatures", "Breakout's objects as twelve numbers"),
            "cartpole_shaping": ("potentials:CartPoleShaping", "CartPole: a potential of angle and position"),
            "channels_first": ("images:ChannelsFirst", "A picture's channels moved to the front"),
            "crop": ("images:Crop", "A picture without its edges"),
            "discrete_encoder": ("encoding:DiscreteEncoder", "Discrete observations as numbers, bits or one-hot"),
            "fire_reset": ("episodes:FireReset", "A button pressed when an episode begins"),
            "frame_skip": ("timing:FrameSkip", "Each action held for several steps"),
            "grayscale": ("images:Grayscale", "Brightness instead of colours"),
            "history": ("stacking:History", "The last observations as one flat vector"),
            "life_loss": ("episodes:LifeLoss", "A lost life ends the episode, and the game goes on"),
            "mountaincar_shaping": ("potentials:MountainCarShaping", "MountainCar: a potential of energy"),
            "noise": ("imperfections:Noise", "Random errors of observations"),
            "noop_start": ("episodes:NoopStart", "A random number of idle steps first"),
            "normalize_observations": ("normalization:NormalizeObservations", "Sets environment.normalize_observations"),
            "normalize_rewards": ("normalization:NormalizeRewards", "Sets environment.normalize_rewards"),
            "observation_lag": ("imperfections:ObservationLag", "Observations that come some steps late"),
            "pixel_observations": ("pixels:PixelObservations", "The task's picture of itself as the observation"),
            "pong_features": ("objects:PongFeatures", "Pong's objects as eight numbers"),
            "pong_shaping": ("potentials:PongShaping", "Pong's objects: a potential of paddle and ball"),
            "resize": ("images:Resize", "Another size of picture, by area"),
            "reward_clip": ("rewards:RewardClip", "Rewards within bounds, or only their signs"),
            "reward_scale": ("rewards:RewardScale", "Rewards multiplied, and a constant added"),
            "stack": ("stacking:Stack", "The last observations, frames as channels"),
            "state_count_bonus": ("bonuses:StateCountBonus", "A reward for what was seldom seen"),
            "sticky_actions": ("timing:StickyActions", "The action before repeated now and then"),
            "time_feature": ("timing:TimeFeature", "The time that is left as part of the observation"),
            "time_limit": ("timing:TimeLimit", "Episodes cut after some decisions"),
            "video": ("episode_videos:RecordEpisodes", "Videos of the episodes of training"),
            "vizdoom_shaping": ("vizdoom:VizdoomShaping", "Doom: rewards for kills, health and ammunition"),
        },
    ),
    supplied=("env",),
    # What configs from elsewhere call them.
    aliases={
        "ActionRewardShaper": "action_reward",
        "BreakoutV5_FeatureExtractor": "breakout_features",
        "CartPoleV1_RewardShaper": "cartpole_shaping",
        "DiscreteActionSpaceRemapperWrapper": "action_remap",
        "DiscreteEncoder": "discrete_encoder",
        "FrameSkip": "frame_skip",
        "MountainCarV0_RewardShaper": "mountaincar_shaping",
        "MountainCarV0_StateCountBonus": "state_count_bonus",
        "PixelObservationWrapper": "pixel_observations",
        "PongV5_FeatureExtractor": "pong_features",
        "PongV5_RewardShaper": "pong_shaping",
        "StickyActions": "sticky_actions",
        "VizDoom_RewardShaper": "vizdoom_shaping",
    },
)

value_functions = Registry(
    "value_function",
    {
        "feedforward_V_function": ("etude.components.value_functions:VFunction", "The value of an observation"),
        "feedforward_Q_function": ("etude.components.value_functions:QFunction", "The value of a continuous action"),
        "double_feedforward_Q_function": ("etude.components.value_functions:DoubleQFunction", "Two of them"),
        "ensemble_feedforward_Q_function": ("etude.components.value_functions:EnsembleQFunction", "As many as `critics` says"),
    },
    needs=("forward", "Config"),
    supplied=("observation_space", "action_space", "seed"),
)
samplers = Registry(
    "sampler",
    {"SimpleSampler": ("etude.workflows.sampler:SimpleSampler", "Steps and whole paths of a policy, and batches of a pool")},
    needs=("sample", "Config"),
    supplied=("environment", "policy", "pool", "seed", "mode", "device"),
)

# What else lies above the settings and the environments, and is imported when it is asked for.
FAMILY_OF = "etude.environments.families:family_of"
"""Which family an environment's id belongs to."""
ROBOTS = "etude.robots.environment:RobotVector"
"""The environment that a config with `environment.robot` means."""

REGISTRIES = {
    registry.kind: registry
    for registry in (algorithms, networks, encoders, buffers, views, optimizers, callbacks, sinks, wrappers)
}

register_algorithm = algorithms.register
register_network = networks.register
register_encoder = encoders.register
register_buffer = buffers.register
register_view = views.register
register_callback = callbacks.register
register_sink = sinks.register
register_wrapper = wrappers.register
register_value_function = value_functions.register
register_sampler = samplers.register
