"""Ground is made from its seed, gets harder from row to row, and is as high as the simulator feels it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from etude.config.compose import compose
from etude.config.robots import ActionConfig, ResetConfig, TerrainConfig
from etude.errors import EtudeError
from etude.robots.environment import RobotVector
from etude.robots.terrain import KINDS, PLATFORM, Levels, Terrain, Tile
from tests.robots.robots import SEEN, actions, rest, robots

EVERY_KIND = TerrainConfig(type="tiles", kinds=dict.fromkeys(KINDS, 1.0), columns=len(KINDS), levels=3)
CPU = torch.device("cpu")


def tile(kind: str, difficulty: float, seed: int = 0) -> np.ndarray:
    return KINDS[kind](Tile(80, 0.1, difficulty, np.random.default_rng(seed)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tile_has_a_level_place_to_begin_and_is_the_same_from_the_same_seed(kind: str) -> None:
    heights = tile(kind, 0.7)
    middle = Tile(80, 0.1, 0.7, np.random.default_rng(0)).distance() < PLATFORM - 0.1
    assert heights.shape == (80, 80)
    assert np.ptp(heights[middle]) < 1e-9
    assert np.array_equal(heights, tile(kind, 0.7))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("flat", "stepping_stones", "gap")])
def test_harder_tiles_are_steeper(kind: str) -> None:
    steepness = [float(np.abs(np.diff(tile(kind, difficulty), axis=0)).max()) for difficulty in (0.1, 0.5, 1.0)]
    assert steepness == sorted(steepness)
    assert steepness[2] > 1.5 * steepness[0]


def test_stairs_rise_by_equal_steps() -> None:
    row = tile("stairs_up", 1.0)[40, 40:]
    rises = np.unique(np.round(np.diff(row), 6))
    assert rises.tolist() == [0.0, 0.18]
    assert np.array_equal(tile("stairs_down", 1.0), -tile("stairs_up", 1.0))


def test_the_height_between_heights_is_in_proportion() -> None:
    terrain = Terrain(EVERY_KIND, CPU)
    cell = EVERY_KIND.cell
    where = terrain.low + (np.array([100, 200]) + 0.5) * cell
    four = terrain.heights[100:102, 200:202]
    offsets = np.array([[0.0, 0.0], [0.5, 0.0], [0.5, 0.5]]) * cell
    points = torch.as_tensor(where + offsets, dtype=torch.float32)
    expected = torch.tensor([four[0, 0], four[:, 0].mean(), four.mean()], dtype=torch.float32)
    assert torch.allclose(terrain.height(points), expected, atol=1e-5)


def test_robots_stand_on_the_ground_that_the_task_knows() -> None:
    environment = robots(18, terrain=EVERY_KIND, reset=ResetConfig(velocity=0.0))
    rest(environment, 60)
    assert bool(environment.state.feet_in_contact.all())
    assert torch.allclose(environment.state.feet_height, torch.zeros(18, 4), atol=0.004)
    assert torch.allclose(environment.state.base_height, torch.tensor(environment.description.height), atol=0.03)


def test_the_height_scan_turns_with_the_robot_and_sees_the_stairs() -> None:
    stairs = TerrainConfig(type="tiles", kinds={"stairs_up": 1.0}, columns=1, levels=1, curriculum=False)
    seen = {"actor": {"height_scan": {"length": 4.0, "width": 0.2, "step": 0.1}}}
    environment = robots(1, terrain=stairs, observations=seen, reset=ResetConfig(0.0, 0.0, 0.0, 0.0))
    rest(environment, 30)
    scan = rest(environment, 1).observation.view(41, 3)[:, 1]  # type: ignore[union-attr]
    assert float(scan[20]) == pytest.approx(0.0, abs=0.03)  # under the robot
    assert float(scan[0] - scan[20]) == pytest.approx(-0.18 * 4, abs=0.2)  # steps rise to both sides
    assert float(scan[0]) == pytest.approx(float(scan[-1]), abs=0.2)


def test_levels_rise_for_those_who_walk_off_and_fall_for_those_who_get_nowhere() -> None:
    terrain = Terrain(EVERY_KIND, CPU)
    levels = Levels(terrain, 4, torch.Generator().manual_seed(0), training=True)
    levels.level[:] = torch.tensor([1, 1, 1, 2])
    far = levels.origin + torch.tensor([[5.0, 0], [0.1, 0], [2.0, 0], [5.0, 0]])
    everyone = torch.tensor([True, True, True, True])
    levels.move(everyone, levels.judge(far, asked=torch.tensor([8.0, 8.0, 3.0, 8.0])))
    assert levels.level[:3].tolist() == [2, 0, 1]
    assert 0 <= int(levels.level[3]) <= 2  # from beyond the hardest row to any
    before = levels.level.clone()
    levels.move(torch.zeros(4, dtype=torch.bool), levels.judge(far, asked=torch.full((4,), 8.0)))
    assert torch.equal(levels.level, before)
    still = Levels(terrain, 4, torch.Generator().manual_seed(0), training=False)
    still.move(everyone, still.judge(far, asked=torch.full((4,), 8.0)))
    assert still.level.tolist() == [0, 0, 0, 0]


def test_levels_are_logged_and_part_of_the_exact_state() -> None:
    def make() -> RobotVector:
        seen = {"actor": {**SEEN, "height_scan": {"noise": 0.05}}}
        return robots(9, training=True, steps=12, terrain=EVERY_KIND, observations=seen)

    whole, other = make(), make()
    for seed in range(20):
        whole.step(actions(whole, seed))
    other.load_state_dict(whole.state_dict())
    for seed in range(20, 40):
        one, two = (environment.step(actions(environment, seed)) for environment in (whole, other))
        assert torch.equal(one.observation, two.observation)  # type: ignore[arg-type] # one group
        assert torch.equal(one.info["terrain_level"], two.info["terrain_level"])
    assert whole.levels is not None
    assert torch.equal(
        one.info["terrain_level"] if not bool(one.truncated.any()) else whole.levels.level.float(), whole.levels.level.float()
    )


def test_a_robot_at_the_edge_of_the_world_is_cut_off_not_terminated() -> None:
    environment = robots(1, terrain=EVERY_KIND)
    assert environment.terrain is not None
    environment.simulation.batch.qpos[0, 0] = environment.terrain.half_extent[0] - 0.5  # type: ignore[attr-defined]
    step = rest(environment, 1)
    assert (bool(step.truncated[0]), bool(step.terminated[0])) == (True, False)


def test_the_rough_task_is_the_flat_one_on_tiles() -> None:
    flat, rough = (compose(f"quadruped-{ground}:ppo").config.environment.robot for ground in ("flat", "rough"))
    assert flat is not None
    assert rough is not None
    assert rough.terrain.type == "tiles"
    assert set(flat.rewards) < set(rough.rewards)
    assert rough.rewards["track_turn"] == flat.rewards["track_turn"]
    assert set(rough.observations["actor"]) - set(flat.observations["actor"]) == {"height_scan"}


def test_every_kind_of_the_rough_task_has_the_columns_that_its_share_says() -> None:
    task = compose("quadruped-rough:ppo").config.environment.robot
    assert task is not None
    kinds = Terrain(task.terrain, CPU).column_kinds
    assert {kind: kinds.count(kind) / len(kinds) for kind in kinds} == pytest.approx(task.terrain.kinds)


def drawn_up(action: ActionConfig) -> float:
    """By how much actions of a thigh and a calf raise a foot at most, within 5 cm of the place where it stands."""
    scene = robots(1, action=action).scene
    names = list(scene.joints)
    thigh, calf = (names.index(f"FL_{part}") for part in ("thigh", "calf"))
    length = -float(scene.model.body("FL_calf").pos[2])
    asked = np.linspace(-1, 1, 101)
    low, high = scene.position_limits[calf]
    angle = scene.default_pose[thigh] + scene.action_scale[thigh] * asked[:, None]
    knee = angle + np.clip(scene.default_pose[calf] + scene.action_scale[calf] * asked, low, high)[None]
    ahead, up = (-length * (of(angle) + of(knee)) for of in (np.sin, np.cos))
    near = np.abs(ahead - ahead[50, 50]) < 0.05
    return float((up - up[50, 50])[near].max())


def test_actions_of_the_rough_task_lift_feet_onto_high_steps_and_those_of_the_flat_one_do_not() -> None:
    flat, rough = (compose(f"quadruped-{ground}:ppo").config.environment.robot for ground in ("flat", "rough"))
    assert flat is not None
    assert rough is not None
    # Of the highest stairs but one; onto the highest a body that leans back brings its feet.
    step = float(np.abs(np.diff(tile("stairs_up", 0.8), axis=0)).max())
    assert drawn_up(flat.action) < step < drawn_up(rough.action)


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ({"stairs": 1.0}, r"terrain.kinds.stairs: unknown kind of ground"),
        ({"flat": 0.0}, r"at least one kind needs a share above 0"),
        ({"flat": -1.0}, r"kinds.flat=-1: must be at least 0"),
    ],
)
def test_wrong_kinds_are_named(kinds: dict[str, float], said: str) -> None:
    with pytest.raises(EtudeError, match=said):
        robots(1, terrain=TerrainConfig(type="tiles", kinds=kinds))
