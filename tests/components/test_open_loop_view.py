"""Films and charts of what a world model predicts, beside what really came."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces

from etude.components.open_loop_view import FRAME, PREDICTS, SEES, STEP_WIDTH, STRIP_HEIGHT, chart, open_loop_media
from etude.components.two_hot import symlog

PICTURE = spaces.Box(0, 255, (16, 20, 3), np.uint8)
VECTOR = spaces.Box(-np.inf, np.inf, (3,))


def test_a_film_has_truth_above_the_model_above_the_error() -> None:
    truth = torch.randint(0, 256, (5, 2, 16, 20, 3), dtype=torch.uint8)
    model = truth.float() / 255
    found = open_loop_media(truth, model[:2], model[2:], PICTURE)["open_loop"]
    height, width = 16 + 2 * FRAME, 20 + 2 * FRAME
    assert found.shape == (5, 3 * height, 2 * width, 3)
    assert found.dtype == torch.uint8
    inside = slice(FRAME, FRAME + 16), slice(FRAME, FRAME + 20)
    assert torch.equal(found[3, inside[0], inside[1]], truth[3, 0])
    second = found[3, height : 2 * height, width:]
    assert torch.equal(second[inside], truth[3, 1]), "the model was right"
    assert ((found[3, 2 * height :, width:][inside].int() - 128).abs() <= 1).all(), "no error is grey"


def test_the_models_frame_says_whether_it_sees() -> None:
    truth = torch.zeros(4, 1, 16, 20, 3, dtype=torch.uint8)
    found = open_loop_media(truth, truth[:3].float(), truth[3:].float(), PICTURE)["open_loop"]
    corner = found[:, 16 + 2 * FRAME, 0]
    assert corner.tolist() == [[*SEES]] * 3 + [[*PREDICTS]]


def test_stacks_and_grey_pictures_show_their_newest_frame() -> None:
    space = spaces.Box(0, 255, (4, 16, 20), np.uint8)
    truth = torch.arange(4, dtype=torch.uint8)[:, None, None].expand(3, 1, 4, 16, 20)
    found = open_loop_media(truth, truth[:1] / 255, truth[1:] / 255, space)["open_loop"]
    assert (found[0, FRAME, FRAME : FRAME + 20] == 3).all()


def test_a_dict_has_a_film_and_a_chart() -> None:
    space = spaces.Dict({"camera": PICTURE, "joints": VECTOR, "room": spaces.Discrete(3)})
    camera, room = torch.zeros(4, 1, 16, 20, 3, dtype=torch.uint8), torch.zeros(4, 1)
    truth = {"camera": camera, "joints": torch.randn(4, 1, 3), "room": room}
    made = {"camera": truth["camera"].float(), "joints": symlog(truth["joints"]), "room": torch.zeros(4, 1, 3)}
    found = open_loop_media(truth, {k: v[:2] for k, v in made.items()}, {k: v[2:] for k, v in made.items()}, space)
    assert {name: pixels.ndim for name, pixels in found.items()} == {"open_loop-camera": 4, "open_loop-joints": 3}
    assert found["open_loop-joints"].shape == (3 * STRIP_HEIGHT, 3 * STEP_WIDTH + 1, 3)


def test_a_chart_that_is_right_covers_the_truth() -> None:
    values = torch.linspace(0, 1, 6)[:, None]
    right, wrong = chart(values, values, 3), chart(values, 1 - values, 3)
    grey = torch.tensor((150, 150, 150), dtype=torch.uint8)
    assert not (right == grey).all(-1).any(), "the model's line lies over that of the truth"
    assert (wrong == grey).all(-1).any()
    assert (right == torch.tensor(PREDICTS, dtype=torch.uint8)).all(-1).any()


def test_a_prediction_that_is_not_finite_is_drawn_too() -> None:
    assert chart(torch.zeros(4, 1), torch.full((4, 1), torch.nan), 2).dtype == torch.uint8
