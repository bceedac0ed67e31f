"""A gradient computed in pieces is the gradient of the whole; and each group's share of its norm is logged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etude.compute.noise import Noise
from etude.config.compose import compose
from etude.learning.execute import make_executor
from etude.learning.optimizers import gradient_norms
from etude.learning.update import Out, Stage, Update
from etude.telemetry.jsonl import read_rows
from etude.training import assembly
from tests.runs_compared import train

ROWS = 50
SETTINGS: dict[str, tuple[str, ...]] = {
    "ppo": ("algorithm.clip_value_loss=0.3", "algorithm.entropy_coef=0.01", "algorithm.normalize_advantages=batch"),
    "a2c": ("algorithm.entropy_coef=0.01",),
    "reinforce": ("algorithm.entropy_coef=0.01", "algorithm.max_grad_norm=0.5"),
}


def learner(name: str, accumulate: int) -> Any:
    """A workflow in double precision."""
    words = (*SETTINGS[name], f"algorithm.accumulate={accumulate}", "algorithm.optimizer=adam", "experiment.device=cpu")
    config = assembly.resolve(compose(f"Pendulum-v1:{name}", words=words).config)
    environment = assembly.make_environment(config.environment, num_envs=1)
    workflow: Any = assembly.build_workflow(config, environment.single_observation_space, environment.single_action_space)
    for role in ("actor", "critic", "head"):
        if hasattr(workflow, role):
            part = getattr(workflow, role).double()
            part.encoder = nn.Identity()  # which would bring observations to single precision
    return workflow


def batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(ROWS, *shape, generator=generator, dtype=torch.float64)

    columns = {name: normal() for name in ("advantages", "returns", "values", "log_prob", "weights")}
    return {**columns, "observation": normal(3), "sample": normal(1)}


@pytest.mark.parametrize("pieces", [2, 7, ROWS, 1000])
@pytest.mark.parametrize("name", SETTINGS)
def test_pieces_give_the_parameters_of_the_full_batch(name: str, pieces: int) -> None:
    whole, cut = learner(name, 1), learner(name, pieces)
    for _ in range(3):
        one, other = whole.learn(batch()), cut.learn(batch())
    for role in ("actor", "critic", "head"):
        if hasattr(whole, role):
            for left, right in zip(getattr(whole, role).parameters(), getattr(cut, role).parameters(), strict=True):
                assert left.dtype == torch.float64
                torch.testing.assert_close(right, left, rtol=0, atol=1e-10)
    assert one.keys() == other.keys()
    for key in one:
        torch.testing.assert_close(other[key], one[key], rtol=0, atol=1e-6, check_dtype=False)


def test_a_batch_that_is_normalised_as_a_whole_is_not_normalised_in_pieces() -> None:
    """Were it, the pieces' own means would be taken from the advantages, and the step would be another one."""
    (stage,) = learner("ppo", 5).losses().stages
    assert stage.prepare is not None
    scaled = stage.prepare(batch())["advantages"]
    assert float(scaled.mean()) == pytest.approx(0, abs=1e-12)
    assert float(scaled[:10].mean()) != pytest.approx(0, abs=1e-3)


def test_what_belongs_to_rows_stays_in_their_order() -> None:
    weight = nn.Linear(1, 1, bias=False)
    nn.init.ones_(weight.weight)

    def loss(rows: Any) -> Out:
        errors = weight(rows["x"][:, None]).square().squeeze(-1)
        return Out(errors.mean(), {}, per_row={"priority": errors})

    stage = Stage("q", loss, torch.optim.SGD(weight.parameters(), 0.0), accumulate=3)
    executor = make_executor(Update([stage]), {"weight": weight})
    rows = torch.arange(7.0)
    (report,) = executor.once({"x": rows}, (True, True), Noise())
    assert report is not None
    torch.testing.assert_close(report.per_row["priority"], rows.square())


def test_the_squares_of_the_groups_norms_add_up_to_the_whole_norms(tmp_path: Path) -> None:
    # Compiled, every metric is the eager one's: `test_gradient_step.py`.
    words = ("training.total_steps=512", "algorithm.epochs=1", "algorithm.batch_size=1.0", "logging.every_steps=1")
    run = train("CartPole-v1:ppo", tmp_path, *words, "evaluation.every_steps=0")
    logged = [row for row in read_rows(run.metrics_path) if "train/grad_norm" in row]
    assert logged
    for row in logged:  # one gradient step each
        squares = row["train/grad_norm_actor"] ** 2 + row["train/grad_norm_critic"] ** 2
        assert squares == pytest.approx(row["train/grad_norm"] ** 2, rel=1e-4)
        assert row["train/grad_norm_actor"] > 0


def test_one_group_is_the_whole() -> None:
    layer = nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    alone = gradient_norms(torch.optim.SGD(layer.parameters(), 0.1))
    assert alone.keys() == {""}
    assert torch.equal(alone[""], nn.utils.get_total_norm([p.grad for p in layer.parameters()]))  # type: ignore[misc]
    groups = [{"params": [layer.weight], "name": "slope"}, {"params": [layer.bias]}]
    norms = {name: float(norm) for name, norm in gradient_norms(torch.optim.SGD(groups, 0.1)).items()}
    assert norms == {"": pytest.approx(3**0.5), "slope": pytest.approx(2**0.5), "1": pytest.approx(1.0)}
