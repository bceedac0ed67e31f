"""What mjlab's Go1 task is made of and what its terms say of some states, in a .npz file. For a python that has mjlab 1.6."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from robots_mjlab import TASK, prepare_imports

FIELDS = (
    "geom_type", "geom_size", "geom_contype", "geom_conaffinity", "geom_condim", "geom_friction", "geom_solref", "geom_solimp",
    "geom_margin", "geom_gap", "body_mass", "body_inertia", "body_ipos", "jnt_range", "actuator_gainprm", "actuator_biasprm",
    "actuator_forcerange", "dof_armature", "dof_damping", "dof_frictionloss",
)  # fmt: skip
OPTIONS = (
    "timestep", "integrator", "cone", "impratio", "solver", "iterations", "ls_iterations", "tolerance", "ls_tolerance",
    "gravity",
)  # fmt: skip
FEET = ("FR", "FL", "RR", "RL")


def model_facts(model: Any) -> dict[str, np.ndarray]:
    """Return the fields of a compiled model, its names and its solver's options; both sides are asked by this."""
    facts = {f"model/{name}": np.array(getattr(model, name)) for name in FIELDS}
    facts |= {f"option/{name}": np.array(getattr(model.opt, name)) for name in OPTIONS}
    for kind, count in (("geom", model.ngeom), ("body", model.nbody), ("joint", model.njnt), ("actuator", model.nu)):
        names = [getattr(model, kind)(i).name.removeprefix("robot/") for i in range(count)]
        facts[f"names/{kind}"] = np.array(names)
    return facts


def main(arguments: Sequence[str] | None = None) -> int:
    """Step some robots with smooth random actions and write down states and terms."""
    options = _parser().parse_args(arguments)
    prepare_imports()
    sys.stdout = sys.stderr
    import mjlab.tasks  # noqa: F401 # registers the tasks
    import torch
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import load_env_cfg

    task = load_env_cfg(TASK)
    task.scene.num_envs, task.seed = options.num_envs, 3
    environment: Any = ManagerBasedRlEnv(cfg=task, device="cpu")
    environment.reset()
    torch.manual_seed(0)
    action = torch.zeros(options.num_envs, environment.action_manager.total_action_dim)
    size = torch.linspace(0.2, 2.0, options.num_envs)[:, None]  # from a gentle motion to joints at their limits
    moments: list[dict[str, Any]] = []
    for _ in range(options.steps):
        action = 0.8 * action + size * torch.randn(action.shape)
        seen, *_ = environment.step(action)
        moments.append(_moment(environment, seen))
    facts = {name: np.stack([np.array(moment[name]) for moment in moments]) for name in moments[0]}
    np.savez(options.out, **facts, **model_facts(environment.sim.mj_model))  # type: ignore[arg-type]
    return 0


def _moment(environment: Any, seen: Any) -> dict[str, Any]:
    """Return the state after a step and what terms say of it, asked anew: mjlab's own see it one physics step late."""
    robot, contact = environment.scene["robot"], environment.scene["feet_ground_contact"]
    sites, _ = robot.find_sites(FEET, preserve_order=True)
    actions = environment.action_manager
    moment = {
        "qpos": environment.sim.data.qpos,
        "qvel": environment.sim.data.qvel,
        "action": actions.action,
        "previous_action": actions.prev_action,
        "command": environment.command_manager.get_command("twist"),
        "feet_force": contact.data.force,
        "feet_landed": contact.compute_first_contact(dt=environment.step_dt),
        "feet_air_time": contact.data.current_air_time,
        "feet_height": environment.scene["foot_height_scan"].data.heights,
        "feet_velocity": robot.data.site_lin_vel_w[:, sites],
        "encoder_bias": robot.data.encoder_bias,
        "critic": seen["critic"],
    }
    for name in environment.reward_manager.active_terms:
        term = environment.reward_manager.get_term_cfg(name)
        if term.weight != 0 and name != "foot_swing_height":  # that one can't be asked twice: it forgets the swing
            moment[f"reward/{name}"] = term.func(environment, **term.params) * term.weight * environment.step_dt
    return {name: _copied(value) for name, value in moment.items()}


def _copied(value: Any) -> np.ndarray:
    return np.array(value.numpy() if hasattr(value, "numpy") else value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=60)
    return parser


if __name__ == "__main__":
    sys.exit(main())
