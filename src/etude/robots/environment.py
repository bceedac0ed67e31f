"""Robots as a vector environment: one step is an action, a few physics steps, rewards, ends and observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.compute.captured import Captured
from etude.compute.random_streams import derive_seed
from etude.compute.traced import Traced
from etude.compute.trees import map_tree
from etude.config.schema import EnvironmentConfig
from etude.environments.mirror import Mirror
from etude.environments.vector import Observation, Step, VectorEnvironment
from etude.errors import EtudeError, UserError
from etude.robots.commands import Commands
from etude.robots.driving.drawing import RobotCamera, View, read_view
from etude.robots.goals import means_of_jumps
from etude.robots.models.description import load_robot
from etude.robots.motions.files import load_motion
from etude.robots.motions.following import in_time, with_files
from etude.robots.motions.motion import Motion
from etude.robots.rotations import from_yaw
from etude.robots.scene import build_scene
from etude.robots.simulators.choice import choose_simulator, simulate
from etude.robots.state import Memory, State
from etude.robots.symmetry import mirror_of
from etude.robots.telling import Telling, shares_of_ends
from etude.robots.terms import jumps, motions  # noqa: F401 # which offer their terms
from etude.robots.terms.bodies import bodies_of
from etude.robots.terms.build import Terms
from etude.robots.terms.randomizations import build_randomizations
from etude.robots.terms.table import own_values
from etude.robots.terrain import Levels, Terrain
from etude.robots.trouble import Trouble


class RobotVector(VectorEnvironment):
    """N robots with one task.

    All random numbers come from one stream, whose seed is made of the seeds of all copies: drawing for each robot by itself
    would need the host. On a GPU nothing in a step asks for a number, so that its parts can be captured:

        action ─→ aim ─→ physics (Warp's graph) ─→ judge: ends, rewards, new episodes ─→ settle (Warp's) ─→ look: observations
    """

    snapshot = "exact"

    def __init__(
        self,
        config: EnvironmentConfig,
        num_envs: int,
        *,
        training: bool = False,
        device: torch.device | None = None,
        capture: bool = False,
        compiles: bool = False,
    ) -> None:
        """`device` is where the learner is; `capture` captures the parts of a step as CUDA graphs if they run there too.

        With `compiles` they are compiled before: what is not physics then takes some dozens of kernels in place of hundreds.
        That is for GPUs; on a CPU it works as well, where the simulator is MuJoCo Warp.
        """
        assert config.robot is not None
        task = config.robot
        self._config = config
        self.num_envs, self.training = num_envs, training
        self.description = load_robot(task.files or task.model)
        patterns = [pattern for section in (task.rewards, task.terminations) for pattern in bodies_of(section)]
        kind, self.device = choose_simulator(task.simulator, device, training=training)
        self.terrain = None if task.terrain.type == "flat" else Terrain(task.terrain, self.device)
        if self.terrain is not None and task.reset.position > task.terrain.tile / 2:
            raise UserError(
                f"environment.robot.reset.position={task.reset.position:g}: must be at most half a tile, "
                f"{task.terrain.tile / 2:g} m"
            )
        self.scene = build_scene(task, self.description, patterns, self.terrain)
        self.motion = Motion(load_motion(task.motion, self.scene), self.device) if task.motion.file else None
        self.task = task if self.motion is None else in_time(task, self.motion)
        self.simulation = simulate(kind, self.scene, num_envs, self.device)
        self.dt = task.timestep * task.decimation
        self.max_episode_steps = self.episode_steps = config.max_episode_steps or task.usual_episode_steps
        self.generator = torch.Generator(self.device)
        self._on_host = self.device.type == "cpu" and not compiles  # nobody compiles robots on the host but tests
        self._captures, self._compiles = capture and self.device.type == "cuda", compiles
        self.memory = Memory(self.scene, num_envs, self.device, apart=self._compiles)
        self.state = State(self.simulation, self.memory, self.dt, self.terrain)
        self.state.motion = self.motion
        self.levels = None if self.terrain is None else Levels(self.terrain, num_envs, self.generator, training=training)
        self.telling = Telling(self.levels)
        self.commands = Commands(self.task.commands, self.state, self.generator, training=training)
        if (
            self.levels is not None
            and task.commands.goal != "velocity"
            and task.terrain.curriculum
            and not task.terrain.promote
        ):
            raise UserError(
                "environment.robot.terrain.curriculum=true: goes by velocities; with commands.goal="
                f"{task.commands.goal} switch it off, or say in terrain.promote who is ready for harder ground"
            )
        promote, where = task.terrain.promote, "environment.robot.terrain.promote"
        self._own_promotion = own_values(promote, where, self.state, (num_envs,)) if promote and training else None
        wanted = task.randomization if training else {}
        self.randomizations = build_randomizations(wanted, self.state, self.generator)
        build = Terms(task, self.state, self.dt)
        self.groups = build.groups(self.task.randomization, self.generator, training=training)
        self.rewards, self.terminations = build.rewards(), build.terminations()
        self._weights = torch.tensor([weight for _, weight in self.rewards.values()], device=self.device)[:, None]
        self._counts_at_ends = torch.tensor([name == "termination" for name in self.rewards], device=self.device)[:, None]
        """The price of an end is paid whatever else a step was worth. (terms, 1) bool"""
        self.trouble = Trouble([*self.rewards], len(self.scene.joints), self.device, asks=self._on_host)
        self._action_scale = torch.as_tensor(self.scene.action_scale, dtype=torch.float32, device=self.device)
        # A motor that holds a velocity is asked for none by an action of 0.
        held = np.where(self.scene.controls_position, self.scene.default_pose, 0.0)
        self._action_offset = torch.as_tensor(held, dtype=torch.float32, device=self.device)
        self._lag_steps = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        joints, acted = len(self.scene.joints), self.scene.acted
        self._acted = None if len(acted) == joints else torch.as_tensor(acted, device=self.device)
        self._targets = torch.zeros(num_envs, joints, device=self.device)
        self._targets_before = torch.zeros_like(self._targets)
        self._sent = torch.zeros(int(task.action.lag[1]) // task.decimation + 2, num_envs, joints, device=self.device)
        """What motors were asked for, the newest first: as far back as an action may be late."""
        self._late_substeps = torch.zeros_like(self._lag_steps)
        self.single_action_space = spaces.Box(-1.0, 1.0, (len(acted),), np.float32)
        self.single_observation_space = self._observation_space()
        self._place_nominal = self._nominal_state()
        self.render_fps = 1.0 / self.dt
        self.listener: Callable[[State], None] | None = None
        """Called with the state after every step, before any robot begins again."""
        self._view, self._camera = View(), None
        self._own_memory = dict(vars(self.memory))
        self.traced: list[Traced] = []
        """The parts of a step that are compiled, or were to be."""
        parts = (self._aim, self._judge_and_begin, self._look)
        self._aim_part, self._judge_part, self._look_part = map(self._accelerated, parts)

    def _accelerated(self, part: Callable[..., Any]) -> Callable[..., Any]:
        """Return a part of a step as it is to run."""
        if self._compiles:
            part = Traced(part, f"a robot task's {part.__name__.strip('_')}", forget=self._forget_traced)
            self.traced.append(part)
        return Captured(part, generators=[self.generator]) if self._captures else part

    def _forget_traced(self) -> None:
        """Drop what stands for tensors in code that was traced: of a state's moment, and what a term may have put in memory."""
        self.state.refresh()
        vars(self.memory).update(self._own_memory)

    def _observation_space(self) -> spaces.Space[Any]:
        parts: dict[str, spaces.Space[Any]] = {
            name: spaces.Box(-np.inf, np.inf, (group.size,), np.float32) for name, group in self.groups.items()
        }
        return next(iter(parts.values())) if len(parts) == 1 else spaces.Dict(parts)

    def _nominal_state(self) -> tuple[Tensor, Tensor]:
        """The default pose just above the ground, at rest: (nq,), (nv,)."""
        scene = self.scene
        qpos = torch.as_tensor(scene.model.qpos0, dtype=torch.float32).clone()
        first = scene.base_qpos
        qpos[first : first + 7] = torch.tensor([0.0, 0.0, scene.start_height, 1.0, 0.0, 0.0, 0.0])
        qpos[torch.as_tensor(scene.qpos_address)] = torch.as_tensor(scene.default_pose, dtype=torch.float32)
        return qpos.to(self.device), torch.zeros(scene.model.nv, device=self.device)

    # ---- the contract ----------------------------------------------------------------------------------------------------

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new episodes; all seeds together are the seed of the one stream."""
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} copies")
        self.generator.manual_seed(derive_seed(int(seeds[0]), "robots", *(int(seed) for seed in seeds[1:])))
        everyone = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        if self.levels is not None:
            self.levels.start()
        self.commands.start()
        for randomization in self.randomizations:
            randomization.start()
        self._begin(everyone, with_randomizations=False)
        self.simulation.settle(everyone)
        observation = self._look(everyone)
        self._check_start()
        return observation, {}

    def _check_start(self) -> None:
        """Refuse a task whose episodes would be over as they begin."""
        for name, term in self.terminations.items():
            if bool(term(self.state).all()):
                raise UserError(
                    f"environment.robot.terminations.{name}: holds for every robot at the start of its episode "
                    f"(bases begin {float(self.state.base_height.mean()):.2f} m above the ground)"
                )

    def step(self, action: Tensor) -> Step:
        """Act for every robot; one that falls or whose time is up begins again in the same step."""
        self._aim_part(action)
        lagging = self.task.action.lag[1] > 0
        late = (self._targets_before, self._late_substeps) if lagging else ()
        self.simulation.step(self._targets, self.task.decimation, *late)
        if self._on_host:  # where asking costs nothing, robots that go on need not be begun again
            ended, step = self._judge()
            self.check()
            if not bool(ended.any()):
                return step
            self._begin_again(ended)
        else:
            ended, step = self._judge_part()
        self.simulation.settle(ended)
        observation = self._look_part(ended)
        if self._captures:  # the next step will write over it before this one is stored
            observation = map_tree(torch.clone, observation)
            self.state.refresh()
        return step._replace(observation=observation)

    def check(self) -> None:
        """Raise what has gone wrong in the steps so far; reads the device."""
        self.trouble.check()
        problem = self.simulation.problem()
        if problem is not None:
            raise EtudeError(problem)

    def more_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return shares of ends, and every reward term as it was before its weight: a mean divides as its parts would."""
        more = shares_of_ends(metrics)
        weighted = {name: (metrics.get(f"reward/{name}"), weight) for name, (_, weight) in self.rewards.items()}
        more |= means_of_jumps(metrics)
        return more | {f"reward_raw/{name}": value / weight for name, (value, weight) in weighted.items() if value is not None}

    def _aim(self, action: Tensor) -> None:
        """From an action to targets for the motors."""
        memory = self.memory
        memory.action_before.copy_(memory.previous_action)
        memory.previous_action.copy_(memory.action)
        wanted = action.clamp(-1.0, 1.0)
        if self._acted is None:
            memory.action.copy_(wanted)
        else:  # what no action moves stays 0 there
            memory.action.index_copy_(1, self._acted, wanted)
        targets = self._action_offset + self._action_scale * memory.action
        if self.task.action.stride:
            targets = targets + self.task.action.stride * self.state.stride_now()
        if "motor_offset" in self.state.drawn:
            targets = targets + self.state.drawn["motor_offset"]
        if self.task.action.lag[1] == 0:
            self._targets.copy_(targets)
            return
        self._sent[1:] = self._sent[:-1].clone()
        self._sent[0] = targets
        whole = (self._lag_steps // self.task.decimation)[None, :, None].expand(1, *targets.shape)
        self._targets.copy_(self._sent.gather(0, whole)[0])
        self._targets_before.copy_(self._sent.gather(0, whole + 1)[0])
        self._late_substeps.copy_(self._lag_steps % self.task.decimation)

    def _judge_and_begin(self) -> tuple[Tensor, Step]:
        ended, step = self._judge()
        self._begin_again(ended)
        return ended, step

    def _judge(self) -> tuple[Tensor, Step]:
        """Return whose episodes end, (N,) bool, and the step as if none began again."""
        state, memory = self.state, self.memory
        state.refresh()
        memory.age.add_(1)
        self._watch_feet()
        self.commands.watch(state)
        fell = torch.zeros_like(state.fell)
        ends = {name: term(state) for name, term in self.terminations.items()}
        for end in ends.values():
            fell |= end
        state.fell.copy_(fell)
        late = memory.age >= self.episode_steps
        if self.terrain is not None:
            late |= self.terrain.is_outside(state.base_position[:, :2])  # the task goes on, the ground does not
        truncated = late & ~fell
        if self.listener is not None:
            self.listener(state)
        broken = ~(torch.isfinite(self.simulation.qpos).all(1) & torch.isfinite(self.simulation.qvel).all(1))
        reward, info = self._reward(broken)
        info |= self.telling.tell(state, ends, truncated, broken)
        if self.commands.goals is not None:
            info |= {name: value.masked_fill(broken, 0.0) for name, value in self.commands.goals.told(state).items()}
        self._remember()
        self.commands.step(state)
        for randomization in self.randomizations:
            randomization.step()
        state.refresh()
        seen = {name: group.push(state) for name, group in self.groups.items()}
        # Nothing is known of where broken ones are; their episodes end here, or the run does.
        seen = {name: value.masked_fill(broken[:, None], 0.0) for name, value in seen.items()}
        final = self._observation(seen)
        return fell | truncated, Step(final, reward, fell, truncated, final, info)

    def _begin_again(self, ended: Tensor) -> None:
        """Begin new episodes for robots whose last one has ended, (N,) bool."""
        if self.levels is not None:
            self.levels.move(ended, self._change_of_level())
        self.commands.end(self.state, ended)
        self._begin(ended)

    def _change_of_level(self) -> Tensor:
        """Return 1 for who is ready for harder ground, −1 for who is not for this one. (N,)"""
        if self._own_promotion is not None:
            return self._own_promotion(self.state)
        asked = self.memory.asked_way.norm(dim=-1)
        return self.levels.judge(self.state.base_position[:, :2], asked)  # type: ignore[union-attr] # there are levels

    def _look(self, begun: Tensor) -> Observation:
        """Return what is seen after the robots `begun` (N,) have begun an episode."""
        self.state.refresh()
        return self._observation({name: group.begin(self.state, begun) for name, group in self.groups.items()})

    def _reward(self, broken: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum and its terms. Robots that have blown up earn nothing but the price of an end."""
        total = torch.zeros(self.num_envs, device=self.device)
        info, values = {}, total[None]
        if self.rewards:
            values = torch.stack([term(self.state).float() for term, _ in self.rewards.values()]) * self._weights
            values = values.masked_fill(broken & ~self._counts_at_ends, 0.0)  # (terms, N)
            info = dict(zip((f"reward/{name}" for name in self.rewards), values, strict=True))
            at_ends = values.masked_fill(~self._counts_at_ends, 0.0).sum(0)
            total = values.masked_fill(self._counts_at_ends, 0.0).sum(0)
            total = (total.clamp(min=0) if self.task.only_positive_rewards else total) + at_ends
        unsound = ~torch.isfinite(total)
        self.trouble.note(broken & ~self.state.fell, unsound, values, self.state)
        total = total.masked_fill(unsound, 0.0)
        if self.levels is not None:
            info["terrain_level"] = self.levels.level.float()
        info |= self.commands.info()
        if "unstable" in self.terminations:
            info["unstable"] = broken.float()
        return total, info

    def _watch_feet(self) -> None:
        state, memory = self.state, self.memory
        if not self.scene.feet:
            return
        stands = state.feet_in_contact
        memory.landed.copy_(stands & ~memory.standing)
        memory.last_air_time.copy_(torch.where(memory.landed, memory.air_time + self.dt, memory.last_air_time))
        memory.last_peak_height.copy_(torch.where(memory.landed, memory.peak_height, memory.last_peak_height))
        memory.air_time.copy_(torch.where(stands, 0.0, memory.air_time + self.dt))
        memory.contact_time.copy_(torch.where(stands, memory.contact_time + self.dt, 0.0))
        memory.peak_height.copy_(torch.where(stands, 0.0, torch.maximum(memory.peak_height, state.feet_height)))
        memory.standing.copy_(stands)

    def _remember(self) -> None:
        state, memory = self.state, self.memory
        memory.previous_joint_velocity.copy_(state.joint_velocity)
        memory.previous_base_velocity.copy_(torch.cat([state.base_linear_velocity, state.base_angular_velocity], 1))

    def _begin(self, which: Tensor, *, with_randomizations: bool = True) -> None:
        """Begin episodes for the robots `which`, (N,) bool."""
        reset, scene = self.task.reset, self.scene
        nominal_qpos, nominal_qvel = self._place_nominal
        u = torch.rand((self.num_envs, 9 + len(scene.joints)), generator=self.generator, device=self.device) * 2 - 1
        qpos, qvel = nominal_qpos.repeat(self.num_envs, 1), nominal_qvel.repeat(self.num_envs, 1)
        first, dof = scene.base_qpos, scene.base_dof
        qpos[:, first : first + 2] += reset.position * u[:, :2]
        if self.levels is not None:
            qpos[:, first : first + 2] += self.levels.origin
            qpos[:, first + 2] += self.levels.terrain.height(qpos[:, first : first + 2])
        qpos[:, first + 3 : first + 7] = from_yaw(reset.yaw * u[:, 2])
        qvel[:, dof : dof + 6] = reset.velocity * u[:, 3:9]
        joints = self.state.joint_qpos
        moved = qpos[:, joints] + reset.joints * u[:, 9:]
        qpos[:, joints] = moved.clamp(self.state.position_limits[:, 0], self.state.position_limits[:, 1])
        self.memory.forget(which)
        if with_randomizations:
            for randomization in self.randomizations:
                if randomization.at_reset:
                    randomization.reset(which)
        self.simulation.place(which, qpos, qvel)
        low, high = self.task.action.lag
        if high > 0:
            drawn = torch.rand(self.num_envs, generator=self.generator, device=self.device)
            lag = (low + drawn * (high - low + 1)).floor().clamp(max=high).long()
            self._lag_steps.copy_(torch.where(which, lag, self._lag_steps))
        self._sent.copy_(torch.where(which[:, None], self._action_offset, self._sent))
        self.state.refresh()
        self.commands.begin(self.state, which)
        if self.motion is not None and self.task.motion.start:
            places = (scene, joints, self.state.joint_dofs)
            self.simulation.place(which, *self.motion.reset_state(self.memory.phase, qpos, qvel, places))
            self.state.refresh()

    def _observation(self, parts: dict[str, Tensor]) -> Observation:
        return next(iter(parts.values())) if len(parts) == 1 else parts

    # ---- looking and keeping ---------------------------------------------------------------------------------------------

    def look(self, options: Mapping[str, Any]) -> None:
        """Set how pictures are taken: the fields of `View`."""
        self.close()
        self._view = read_view(options, robots=self.num_envs)

    def render(self) -> np.ndarray:
        """Return a picture of a robot, the first one unless the view says otherwise."""
        if self._camera is None:
            self._camera = RobotCamera(self.scene.model, self.scene.base_body, self._view, self.description.height)
        marks = [] if self.commands.goals is None else self.commands.goals.marks(self.state, self._view.robot)
        return self._camera.take(self.simulation.data(self._view.robot), marks)

    def reference(self, group: str) -> Tensor | None:
        """Return what a group would see in each frame of the motion, without noise, (T, k); None where there is no motion."""
        if self.motion is None:
            return None
        frames = self.motion.frames
        still = replace(self.task.reset, position=0.0, yaw=0.0, joints=0.0, velocity=0.0)
        plain = with_files(replace(self.task, reset=still, simulator="cpu"), self.task)
        posing = RobotVector(replace(self._config, robot=plain, num_envs=frames), frames)
        if group not in posing.groups:
            raise UserError(f"environment.robot.observations.{group}: there is no such group ({', '.join(posing.groups)})")
        posing.commands.fixed_phase = torch.arange(frames) / frames
        observation, _ = posing.reset(range(frames))
        return (observation[group] if isinstance(observation, dict) else observation).to(self.device)

    def mirror(self) -> Mirror:
        """Return how left and right change places in observations and actions."""
        return mirror_of(self.scene, self.task.observations, self.groups, self.device, self.task.commands.goal)

    def close(self) -> None:
        """Free the camera."""
        if self._camera is not None:
            self._camera.close()
            self._camera = None

    def state_dict(self) -> dict[str, Any]:
        """Return simulator, clocks, commands, lags, what was drawn and the stream it was drawn from."""
        return {
            "simulation": self.simulation.state_dict(),
            "memory": self.memory.state_dict(),
            "groups": {name: group.state_dict() for name, group in self.groups.items()},
            "drawn": {name: value.clone() for name, value in self.state.drawn.items()},
            "targets": self._sent.clone(),
            "lag_steps": self._lag_steps.clone(),
            "level": None if self.levels is None else self.levels.level.clone(),
            "commands": self.commands.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every robot where it was."""
        self.simulation.load_state_dict(state["simulation"])
        self.memory.load_state_dict(state["memory"])
        for name, group in self.groups.items():
            group.load_state_dict(state["groups"][name])
        for name, value in state["drawn"].items():
            if name in self.state.drawn:
                self.state.drawn[name].copy_(value)
            else:
                self.state.drawn[name] = value.to(self.device, copy=True)
        self._sent.copy_(state["targets"])  # of earlier versions the last ones alone, which then stand for all
        self._lag_steps.copy_(state["lag_steps"])
        if self.levels is not None:
            self.levels.level.copy_(state["level"])
        self.commands.load_state_dict(state.get("commands", {}))
        self.generator.set_state(state["generator"])
        self.state.refresh()
