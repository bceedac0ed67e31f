"""An update is the same update however it runs: what is carried on, own tensors, noise, batch norm, projections, paces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from etude.compute.accelerate import Mode
from etude.compute.noise import Noise
from etude.errors import UserError
from etude.learning import compiled
from etude.learning.execute import make_executor
from etude.learning.update import Out, Stage, Update
from tests.learning.toys import Rows, Toy


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        exact = tolerance == 0 or not value.is_floating_point()
        torch.testing.assert_close(
            other[name],
            value,
            rtol=0 if exact else tolerance,
            atol=0 if exact else tolerance,
            msg=lambda m, n=name: f"{n}: {m}",
        )


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be compiled, as it is: the pure form without the half minute that compiling takes."""

    def as_it_is(function: Any, device: torch.device, *fixed: Any, kept: Any = None) -> Any:
        def call(*given: Any) -> Any:
            with torch.no_grad():
                return function(*given, *fixed)

        return call

    monkeypatch.setattr(compiled, "compile_apart", as_it_is)


def assert_runs_alike(mode: Mode, count: int, **options: Any) -> None:
    eager, fast = Toy(**options), Toy(mode, **options)
    assert fast.executor.mode == mode
    for _ in range(3):
        said, also = eager.run(count), fast.run(count)
        assert said.keys() == also.keys()
        for stage, table in said.items():
            assert table.keys == also[stage].keys
            torch.testing.assert_close(also[stage].values, table.values, rtol=5e-4, atol=5e-4)
        assert_same(eager.everything(), fast.everything(), 5e-4)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    "options", [{}, {"writes_back": True}, {"accumulate": 3}, {"every": 1}, {"optimizer": "laprop"}], ids=str
)
def test_the_pure_form_is_the_eager_one(options: dict[str, Any]) -> None:
    assert_runs_alike("compiled", 6, **options)


def test_the_compiled_form_is_the_eager_one() -> None:
    assert_runs_alike("compiled", 1, every=1, writes_back=True, skip=torch.zeros(()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("optimizer", ["adam", "laprop"])
@pytest.mark.parametrize("writes_back", [False, True])
@pytest.mark.parametrize("mode", ["captured", "compiled and captured"])
def test_the_captured_form_is_the_eager_one(mode: Mode, writes_back: bool, optimizer: str) -> None:
    assert_runs_alike(mode, 6, device="cuda", writes_back=writes_back, optimizer=optimizer)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_many_updates_are_as_many_calls_of_one(mode: Mode) -> None:
    whole, parted = Toy(mode), Toy(mode)
    tables = whole.run(100)
    lines = [parted.run(1) for _ in range(100)]
    assert_same(whole.everything(), parted.everything(), 0)
    for stage, table in tables.items():
        assert torch.equal(table.values, torch.cat([line[stage].values for line in lines if stage in line]))


def test_a_stage_takes_part_in_every_nth_update_and_after_runs_at_its_own_pace() -> None:
    toy = Toy(every=2)
    took_part, moved = [], []
    for _ in range(6):
        before = toy.target.weight.clone()
        took_part.append("head" in toy.run(1))
        moved.append(not torch.equal(before, toy.target.weight))
    assert took_part == [False, True] * 3
    assert moved == [False, False, True] * 2


def test_a_count_that_is_loaded_goes_on() -> None:
    toy, other = Toy(every=3), Toy(every=3)
    toy.run(2)
    other.executor.load_state_dict(toy.executor.state_dict())
    assert "head" in other.run(1)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("optimizer", ["adam", "laprop"])
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_step_that_is_skipped_leaves_everything_as_it_was(mode: Mode, optimizer: str) -> None:
    skip = torch.zeros(())
    toy = Toy(mode, writes_back=True, optimizer=optimizer, skip=skip, every=1)
    toy.run(3)
    skip.fill_(1)
    before = {name: value.clone() for name, value in toy.everything().items() if not is_of_skipped(name)}
    assert before["latent"].any()
    toy.run(4)
    after = toy.everything()
    assert_same(before, {name: after[name] for name in before}, 0)
    skip.zero_()
    toy.run(1)
    assert not torch.equal(before["model.0.weight"], toy.model[0].weight)


def is_of_skipped(name: str) -> bool:
    """What goes on where steps are skipped: random streams, and targets that follow weights which stand still."""
    return name in ("stream", "noise") or name.startswith("target.")


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("optimizer", ["adam", "laprop"])
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_an_update_that_was_saved_amid_its_paces_goes_on_to_the_same_end(mode: Mode, optimizer: str) -> None:
    whole, begun, rest = (Toy(mode, writes_back=True, optimizer=optimizer) for _ in range(3))
    whole.run(11)
    begun.run(5)
    rest.run(2)  # has moments and compiled code of its own, and both stay in their place
    rest.load(begun.state())
    rest.run(6)
    assert_same(whole.everything(), rest.everything(), 0)


def test_statistics_of_batches_are_not_taken_of_pieces() -> None:
    toy = Toy()
    stages = [replace(stage, accumulate=2) for stage in toy.executor.update.stages]
    with pytest.raises(UserError, match=r"algorithm.accumulate: .*batch norm.* set it to 1"):
        make_executor(Update(stages), {"model": toy.model})


def test_the_same_name_is_the_same_noise_and_another_one_is_not() -> None:
    noise = Noise(torch.Generator().manual_seed(1))
    first = noise.normal("a", (3,))
    assert torch.equal(noise.normal("a", (3,)), first)
    assert not torch.equal(noise.normal("b", (3,)), first)
    assert list(noise.requests) == ["a", "b"]
    low, high = noise.uniform("c", (1000,), -2, 5).aminmax()
    assert -2 <= low < -1.9
    assert 4.9 < high <= 5


def test_what_is_asked_for_later_than_compiled_is_said() -> None:
    with pytest.raises(AssertionError, match="noise 'new' was not asked for"):
        Noise(drawn={}).normal("new", (2,))


@pytest.mark.usefixtures("uncompiled")
def test_a_loss_that_takes_a_batch_alone_and_returns_two_things_will_do() -> None:
    layer = nn.Linear(1, 1)
    rate = torch.tensor(0.1)
    results = []
    for mode in ("eager", "compiled"):
        torch.manual_seed(1)
        layer.reset_parameters()
        stage = Stage("", lambda batch: (layer(batch["x"]).square().mean(), {}), torch.optim.Adam(layer.parameters(), rate))
        executor = make_executor(Update([stage]), {"layer": layer}, mode=mode)
        results.append(executor.learn({"x": torch.ones(4, 1)})["train/loss"])
    torch.testing.assert_close(*results)


def test_carry_comes_without_gradients() -> None:
    layer, seen = nn.Linear(2, 2), []

    def first(batch: Any) -> Out:
        hidden = layer(batch["x"])
        return Out(hidden.square().mean(), {}, carry={"hidden": {"deep": hidden}})

    def second(batch: Any, carry: Any) -> tuple[Tensor, dict[str, Tensor]]:
        seen.append(carry["hidden"]["deep"].requires_grad)
        return layer(batch["x"]).mean(), {}

    stages = [Stage(name, loss, torch.optim.SGD(layer.parameters(), 0.1)) for name, loss in (("a", first), ("b", second))]
    make_executor(Update(stages), {"layer": layer}).learn({"x": torch.ones(3, 2)})
    assert seen == [False]


@pytest.mark.usefixtures("uncompiled")
def test_sources_that_say_more_or_less_of_their_rows_take_turns() -> None:
    toy, said = Toy("compiled"), []

    class Plain(Rows):
        """Rows whose batches are of the same shape, and that losses say nothing about."""

        identity = "plain"

    def loss(batch: Any) -> Out:
        wrong = toy.model(batch["x"]).mean(-1)
        return Out(wrong.square().mean(), {}, per_row={"latent": wrong} if toy.source.identity is None else {})

    stage = Stage("model", loss, toy.optimizers[0])
    executor = make_executor(Update([stage]), {"model": toy.model}, mode="compiled")
    own, plain = toy.source, Plain(toy.rows)
    for source in (own, plain, own, plain):
        toy.source = source
        said.append(set(executor.steps(source, source.columns, source.draw(1), executor.due(1)).per_row()))
    assert said == [{"latent"}, set(), {"latent"}, set()]


def test_a_look_at_the_losses_draws_nothing_from_the_global_stream() -> None:
    toy = Toy("compiled")
    toy.model.append(nn.Dropout(0.5))
    assert isinstance(toy.executor, compiled.Compiled)
    before = torch.get_rng_state()
    asked = toy.executor._asked_for(toy.source.gather(toy.source.columns, torch.arange(4)))
    assert [list(requests) for requests in asked] == [["jitter"], ["spread"]]
    assert torch.equal(torch.get_rng_state(), before)
