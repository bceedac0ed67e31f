"""Etude's CarRacing is Gymnasium's, only faster: the same pixels, rewards, ends, random numbers and places of the car."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec

from etude.config.schema import EnvironmentConfig
from etude.environments.gymnasium import GymnasiumVector
from etude.environments.make import make_copy, make_environment
from tests.environments.test_snapshot import stored

pytest.importorskip("Box2D")
pytest.importorskip("pygame")

with warnings.catch_warnings():  # SWIG's types crash the interpreter where their warning is an error
    warnings.simplefilter("ignore")
    from gymnasium.envs.box2d import car_racing as gymnasiums

    from etude.environments.box2d import car_racing, panel_drawing

Reference: Any = gymnasiums.CarRacing
CarRacing: Any = car_racing.CarRacing

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "random colours": {"domain_randomize": True},
    "discrete": {"continuous": False},
    "discrete, random colours": {"continuous": False, "domain_randomize": True},
}


def steer_along(env: Any) -> np.ndarray:
    """Drive after the road, not too fast; visits tiles and takes turns."""
    hull, track = env.car.hull, np.array([place[2:] for place in env.track])
    position = np.array(tuple(hull.position))
    ahead = track[(np.square(track - position).sum(1).argmin() + 6) % len(track)] - position
    turn = (np.arctan2(-ahead[0], ahead[1]) - hull.angle + np.pi) % (2 * np.pi) - np.pi
    speed = np.hypot(*hull.linearVelocity)
    return np.array([np.clip(-2 * turn, -1, 1), 0.6 * (speed < 45), 0.3 * (abs(turn) > 0.6 and speed > 25)], np.float32)


def leave_the_field(env: Any) -> np.ndarray:
    """Drive straight on over the grass, after some skidding."""
    return np.array([0.3 * (env.t < 0.5), 1.0 if env.t < 0.5 else 0.3, 0], np.float32)


def wander(env: Any) -> Any:
    generator = np.random.default_rng(round(50 * env.t) // 6)
    if not env.continuous:
        return int(generator.choice([0, 1, 2, 3, 3, 3, 4]))
    return generator.uniform([-1, 0, 0], [1, 1, 1]).astype(np.float32)


def facts(env: Any) -> Any:
    """What pictures don't show of a car: where it is and how it moves, its wheels, what it left on the ground."""
    hull, wheels = env.car.hull, env.car.wheels
    bodies = [(*body.position, body.angle, *body.linearVelocity, body.angularVelocity) for body in (hull, *wheels)]
    turning = [(wheel.omega, wheel.phase, wheel.gas, wheel.brake, wheel.steer, len(wheel.tiles)) for wheel in wheels]
    traces = [(trace.color, trace.poly, trace.grass) for trace in env.car.particles]
    colors = [list(color) for _, color in env.road_poly]
    return bodies, turning, traces, colors, env.reward, env.tile_visited_count, env.np_random.bit_generator.state


def assert_same_episode(theirs: Any, ours: Any, seed: int, act: Any, steps: int) -> dict[str, Any]:
    expected, _ = theirs.reset(seed=seed)
    picture, _ = ours.reset(seed=seed)
    np.testing.assert_array_equal(picture, expected)
    info: dict[str, Any] = {}
    for step in range(steps):
        action = act(theirs)
        expected, *signals, info = theirs.step(action)
        picture, *our_signals, our_info = ours.step(action)
        np.testing.assert_array_equal(picture, expected, err_msg=f"step {step}")
        assert (our_signals, our_info) == (signals, info), step
        if signals[1]:
            break
    assert facts(ours) == facts(theirs)
    return info


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_pixel_is_gymnasiums_while_it_zooms_in_and_after(options: dict[str, Any]) -> None:
    act = steer_along if options.get("continuous", True) else wander
    assert_same_episode(Reference(**options), CarRacing(**options), 3, act, 70)


def test_a_second_episode_is_the_same_too() -> None:
    theirs, ours = Reference(), CarRacing()
    for seed in (1, 2):
        assert_same_episode(theirs, ours, seed, leave_the_field, 12)


def test_tracks_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    theirs, ours = Reference(), CarRacing()
    talkative = CarRacing(verbose=True)
    for env in (theirs, ours, talkative):
        env._render = lambda mode: None  # drawing is tested elsewhere, and slow
    for seed in range(12):  # some need several attempts, and have borders across their start
        for env in (theirs, ours, talkative):
            env.reset(seed=seed)
        assert ours.track == talkative.track == theirs.track
        assert ours.start_alpha == theirs.start_alpha
        assert [polygon for polygon, _ in ours.road_poly] == [polygon for polygon, _ in theirs.road_poly]
        assert tiles(ours) == tiles(theirs)
        assert facts(ours) == facts(theirs)
    assert "Track generation" in capsys.readouterr().out


def tiles(env: Any) -> list[Any]:
    shapes = [(tile.fixtures[0].sensor, tile.fixtures[0].shape.vertices) for tile in env.road]
    return [(tile.idx, tile.road_visited, tile.road_friction, *shape) for tile, shape in zip(env.road, shapes, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("act", [steer_along, leave_the_field, wander])
@pytest.mark.parametrize("options", [OPTIONS["plain"], OPTIONS["random colours"]], ids=["plain", "random colours"])
def test_whole_episodes_are_the_same(options: dict[str, Any], act: Any, seed: int) -> None:
    info = assert_same_episode(Reference(**options), CarRacing(**options), seed, act, 1_500)
    if act is steer_along:
        assert info == {"lap_finished": True}
    if act is leave_the_field:
        assert info == {"lap_finished": False}, "it was to see the edge of the field"


def test_the_edge_of_the_field_is_drawn() -> None:
    theirs, ours = Reference(), CarRacing()
    for env in (theirs, ours):
        env.reset(seed=1)
        env.t = 1.0
    for x, y, angle in [(325, 20, 0.3), (-300, 310, 2.0), (10, -290, -1.2), (270, 285, 0.0), (286, 0, np.pi / 2)]:
        pictures = []
        for env in (theirs, ours):
            env.car.hull.transform = (x, y), angle
            pictures.append(env._render("state_pixels"))
        np.testing.assert_array_equal(*pictures)


def test_bars_that_leave_the_panel_are_drawn() -> None:
    theirs, ours = Reference(), CarRacing()
    pictures = []
    for env in (theirs, ours):
        env.reset(seed=1)
        env.t = 1.0
        env.car.wheels[3].omega = 612.0
        assert not panel_drawing.fits(env.car)
        pictures.append(env._render("state_pixels"))
    np.testing.assert_array_equal(*pictures)


@pytest.mark.parametrize(("omega", "fits"), [(-390.0, True), (399.0, True), (-612.0, False)])
def test_wheels_may_turn_backwards(omega: float, fits: bool) -> None:
    pictures = []
    for env in (Reference(), CarRacing()):
        env.reset(seed=2)
        env.car.wheels[1].omega = omega
        assert panel_drawing.fits(env.car) is fits
        pictures.append(env._render("state_pixels"))
    np.testing.assert_array_equal(*pictures)


def test_pictures_for_people_are_the_same() -> None:
    theirs, ours = Reference(render_mode="rgb_array"), CarRacing(render_mode="rgb_array")
    for env in (theirs, ours):
        env.reset(seed=4)
    for _ in range(3):
        for _ in range(20):
            for env in (theirs, ours):
                env.step(np.array([0.4, 1, 0], np.float32))
        np.testing.assert_array_equal(ours.render(), theirs.render())
    assert len(theirs.car.particles) > 0, "there were to be skid marks"


def test_scores_can_be_drawn_after_pygame_was_quit() -> None:
    import pygame

    panel_drawing.score("0001")
    pygame.quit()
    panel_drawing.score.cache_clear()
    assert panel_drawing.score("0001").get_width() > 0


def test_a_picture_is_not_changed_by_later_ones() -> None:
    env = CarRacing()
    first, _ = env.reset(seed=1)
    kept = first.copy()
    env.step(np.array([0, 1, 0], np.float32))
    np.testing.assert_array_equal(first, kept)


def test_what_gymnasium_refuses_is_refused() -> None:
    env = CarRacing(continuous=False)
    env.reset(seed=1)
    with pytest.raises(gymnasium.error.InvalidAction):
        env.step(7)


# ---- who gets it ----------------------------------------------------------------------------------------------------------


def config(**options: Any) -> EnvironmentConfig:
    return EnvironmentConfig(id="CarRacing-v3", num_envs=2, max_episode_steps=30, **options)


def test_etude_makes_its_own_class_unless_it_is_told_to_make_gymnasiums() -> None:
    assert type(make_copy(config()).unwrapped) is CarRacing
    assert type(make_copy(config(), "rgb_array").unwrapped) is CarRacing
    assert type(make_copy(config(backend="gymnasium")).unwrapped) is Reference
    assert type(gymnasium.make("CarRacing-v3").unwrapped) is Reference, "the registry is everybody's"


def test_a_class_that_somebody_registered_stays_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs: Any = type("Theirs", (Reference,), {})
    spec = gymnasium.registry["CarRacing-v3"]
    monkeypatch.setitem(gymnasium.registry, "CarRacing-v3", EnvSpec(spec.id, theirs))
    assert type(make_copy(config()).unwrapped) is theirs


def test_states_of_one_class_go_on_in_the_other() -> None:
    """Also a run that was begun when there was only Gymnasium's."""
    vectors = {backend: make_environment(config(backend=backend)) for backend in ("auto", "gymnasium")}
    moves = torch.from_numpy(np.random.default_rng(1).uniform([-1, 0, 0], [1, 1, 0.5], (18, 2, 3)).astype(np.float32))
    for vector in vectors.values():
        assert isinstance(vector.base, GymnasiumVector)
        vector.reset([5, 6])
        assert vector.snapshot == "rewind"
    for move in moves[:12]:
        vectors["gymnasium"].step(move)
    vectors["auto"].load_state_dict(stored(vectors["gymnasium"].state_dict()))
    for move in moves[12:]:
        ours, theirs = (vectors[backend].step(move) for backend in ("auto", "gymnasium"))
        assert torch.equal(ours.observation, theirs.observation)  # type: ignore[arg-type] # a picture
        assert torch.equal(ours.reward, theirs.reward)


def test_workers_step_it() -> None:
    here, there = make_environment(config()), make_environment(config(workers=1))
    try:
        for vector in (here, there):
            vector.reset([1, 2])
        move = torch.tensor([[0.1, 0.5, 0.0]] * 2)
        assert torch.equal(here.step(move).observation, there.step(move).observation)  # type: ignore[arg-type] # pictures
    finally:
        there.close()


def test_a_long_polygon_is_left_out_where_gymnasium_leaves_it_out() -> None:
    """Gymnasium looks at corners alone: where all of them are far away, even what crosses the picture is not drawn."""
    strip = [(-60.0, 1.0), (60.0, 1.0), (60.0, -1.0), (-60.0, -1.0)]
    pictures = []
    for env in (Reference(), CarRacing()):
        env.reset(seed=1)
        env.t = 1.0
        env.car.hull.transform = (0, 0), 0.0
        env.road_poly = [(strip, (255, 0, 0))]
        env.road = []
        if isinstance(env, CarRacing):
            env._prepared = None
            env._prepare()
        pictures.append(env._render("state_pixels"))
    np.testing.assert_array_equal(*pictures)
    assert not (pictures[0] == (255, 0, 0)).all(-1).any()
