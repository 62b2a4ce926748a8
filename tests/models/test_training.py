import gc
import multiprocessing
import random
import time
import weakref
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from counterpath.models.layers import mlp
from counterpath.models.training import EarlyStopping, Run, seeded, train
from counterpath.utils.errors import InputError, TrainingError

ADAM = partial(torch.optim.Adam, lr=1e-2)


def _data(rows: int = 200) -> tuple[Tensor, Tensor]:
    with seeded(1):
        x = torch.randn(rows, 4)
    return x, (x[:, :1] * x[:, 1:2]).tanh()


def _train(
    checkpoint: Path | None = None, *, epochs: int = 6, seed: int = 0, **changes: object
) -> tuple[nn.Module, list[float]]:
    with seeded(seed):
        network = mlp([4, 16, 1])

    def loss(batch: tuple[Tensor, ...], generator: torch.Generator) -> Tensor:
        x, y = batch
        noise = 0.1 * torch.randn(x.shape, generator=generator)
        return (network(x + noise) - y).square().mean()

    options = {"batch_size": 32, "optimizer": ADAM} | changes
    run = Run(seed=seed, checkpoint=checkpoint, seconds_between=0.0, progress=False)
    return network, train("toy", network, loss, _data(), epochs=epochs, run=run, **options)  # type: ignore[arg-type]


def _same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_training_lowers_the_loss_and_ends_in_evaluation_mode() -> None:
    network, losses = _train(epochs=30)
    assert len(losses) == 30
    assert losses[-1] < 0.7 * losses[0]
    assert not network.training


def test_a_seed_decides_everything_and_the_caller_s_random_state_nothing() -> None:
    torch.manual_seed(1)
    one = _train()[0]
    before = torch.get_rng_state()
    torch.manual_seed(2)
    assert _same(one, _train()[0])
    assert not _same(one, _train(seed=1)[0])
    torch.manual_seed(1)
    _train()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("optimizer", [ADAM, partial(torch.optim.RMSprop, lr=1e-3, weight_decay=0.05)])
def test_a_run_that_is_stopped_in_any_epoch_goes_on_to_the_same_weights(tmp_path: Path, optimizer: object) -> None:
    whole, losses = _train(optimizer=optimizer)

    class StopError(Exception):
        pass

    for epoch in range(1, 6):
        folder = tmp_path / str(epoch)
        finished = iter(range(100))

        def stopping(parameters, limit=6 * epoch + 3, finished=finished):  # type: ignore[no-untyped-def]
            made = optimizer(parameters)  # type: ignore[operator]
            made.register_step_pre_hook(
                lambda *_: (_ for _ in ()).throw(StopError) if next(finished) == limit else None
            )
            return made

        with pytest.raises(StopError):
            _train(folder, optimizer=stopping)
        resumed, resumed_losses = _train(folder, optimizer=optimizer)
        assert _same(whole, resumed)
        assert losses == resumed_losses


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kill_9_at_five_random_moments_changes_nothing(tmp_path: Path) -> None:
    """One run, killed again and again, must end with the bits of a run that was left alone."""
    whole = _train(tmp_path / "whole", epochs=120)[0]
    folder, dice, survived = tmp_path / "killed", random.Random(0), 0
    # All processes are copies of one that has imported everything, or that would be most of what they do.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    for _ in range(5):
        process = context.Process(target=_train, args=(folder,), kwargs={"epochs": 120})
        process.start()
        begun = folder / "toy.safetensors"
        deadline = time.monotonic() + 60
        before = begun.stat().st_mtime_ns if begun.exists() else 0
        while process.is_alive() and time.monotonic() < deadline:
            if begun.exists() and begun.stat().st_mtime_ns != before:
                break  # training has begun (again): now kill it somewhere inside
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.15))
        process.kill()
        process.join()
        survived += process.exitcode == 0
    assert survived < 5, "the run ended before any kill: the test tests nothing"
    resumed, losses = _train(folder, epochs=120)
    assert len(losses) == 120
    assert _same(whole, resumed)
    for name in ("whole", "killed"):
        assert [path.name for path in (tmp_path / name).glob("*.safetensors")] == ["toy.safetensors"]
    pair = [load_file(tmp_path / name / "toy.safetensors") for name in ("whole", "killed")]
    assert all(torch.equal(pair[0][key], pair[1][key]) for key in pair[0])


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = _train(tmp_path)[0]
    refuse = partial(_refusing, ADAM)
    assert _same(first, _train(tmp_path, optimizer=refuse)[0])


def _refusing(make, parameters):  # type: ignore[no-untyped-def]
    optimizer = make(parameters)
    optimizer.register_step_pre_hook(lambda *_: pytest.fail("a finished run took a step"))
    return optimizer


@pytest.mark.parametrize(
    "change", [{"epochs": 7}, {"seed": 1}, {"batch_size": 16}, {"optimizer": partial(torch.optim.Adam, lr=1e-3)}]
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    _train(tmp_path)
    with pytest.raises(TrainingError, match=r"toy\.safetensors belongs to another run"):
        _train(tmp_path, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", ["truncated", "empty", "text"])
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    _train(tmp_path)
    path = tmp_path / "toy.safetensors"
    content = path.read_bytes()
    path.write_bytes({"truncated": content[: len(content) // 2], "empty": b"", "text": b"hello" * 100}[damage])
    with pytest.raises(TrainingError, match=r"toy\.safetensors is damaged"):
        _train(tmp_path)


def test_a_loss_that_is_no_number_fails_early_with_advice() -> None:
    network = nn.Linear(4, 1)
    with pytest.raises(TrainingError, match=r"became nan in epoch 1.*learning rate below 0.01"):
        train(
            "toy", network, lambda batch, _: network(batch[0]).mean() * torch.nan, _data(), epochs=3, batch_size=32,
            optimizer=ADAM, run=Run(progress=False),
        )  # fmt: skip


@pytest.mark.parametrize(("value", "text"), [(float("nan"), "row 7, column 2"), (float("inf"), "row 7, column 2")])
def test_data_that_are_not_finite_are_refused_by_row_and_column(value: float, text: str) -> None:
    x, y = _data()
    x[7, 2] = value
    with pytest.raises(InputError, match=text):
        train(
            "toy",
            nn.Linear(4, 1),
            lambda *_: torch.zeros(()),
            (x, y),
            epochs=1,
            batch_size=8,
            optimizer=ADAM,
            run=Run(),
        )


def test_no_rows_or_unequal_rows_are_refused() -> None:
    x, y = _data()
    for tensors, text in (((x[:0], y[:0]), "no rows"), ((x, y[:3]), "differ in rows")):
        with pytest.raises(InputError, match=text):
            train(
                "toy",
                nn.Linear(4, 1),
                lambda *_: torch.zeros(()),
                tensors,
                epochs=1,
                batch_size=8,
                optimizer=ADAM,
                run=Run(),
            )


def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    with seeded(0):
        network = nn.Linear(4, 1)
    loss = lambda batch, _: (network(batch[0]) - batch[1]).square().mean()  # noqa: E731
    train("toy", network, loss, _data(), epochs=2, batch_size=32, optimizer=ADAM, run=Run(progress=True))
    assert "training toy" in capsys.readouterr().err


def test_early_stopping_ends_with_the_best_weights_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """The losses are made up, so that the third epoch is the best, and patience ends two later."""

    def run(folder: Path | None, epochs: int) -> tuple[dict[str, Tensor], EarlyStopping, list[dict[str, Tensor]]]:
        with seeded(0):
            network = mlp([4, 8, 1])
        seen: list[dict[str, Tensor]] = []
        made_up = iter([5.0, 4.0, 3.0, 1.0, 2.0, 2.0, 0.0])

        def held_out() -> float:
            assert not network.training
            seen.append({key: value.clone() for key, value in network.state_dict().items()})
            return next(made_up)

        stopping = EarlyStopping(held_out, patience=2)
        settings = Run(checkpoint=folder, seconds_between=0.0, progress=False)
        loss = lambda batch, _: (network(batch[0]) - batch[1]).square().mean()  # noqa: E731
        train(
            "toy", network, loss, _data(), epochs=epochs, batch_size=50, optimizer=ADAM, run=settings, stopping=stopping
        )
        return network.state_dict(), stopping, seen

    weights, stopping, seen = run(None, 20)
    assert (stopping.losses, stopping.best) == ([5.0, 4.0, 3.0, 1.0, 2.0, 2.0], 3)
    assert all(torch.equal(weights[key], seen[3][key]) for key in weights)
    for _ in range(2):
        again, resumed, _ = run(tmp_path, 20)
        assert resumed.losses == stopping.losses
        assert all(torch.equal(weights[key], again[key]) for key in weights)


def test_an_epoch_of_a_large_table_is_a_part_of_it() -> None:
    sizes: list[int] = []
    network = nn.Linear(4, 1)

    def loss(batch: tuple[Tensor, ...], _: torch.Generator) -> Tensor:
        sizes.append(len(batch[0]))
        return (network(batch[0]) - batch[1]).square().mean()

    train(
        "toy", network, loss, _data(), epochs=2, batch_size=10, optimizer=ADAM, run=Run(progress=False), epoch_rows=40
    )
    assert sizes == [10] * 8


def test_nothing_holds_the_data_after_a_training() -> None:
    x, network = torch.randn(64, 4), mlp([4, 8, 1])
    data = weakref.ref(x)
    run = Run(progress=False)
    gc.disable()  # cycles would be found sooner or later, which is late for a table that fills the memory
    try:
        train(
            "toy",
            network,
            lambda batch, _: network(batch[0]).mean(),
            (x,),
            epochs=1,
            batch_size=32,
            optimizer=ADAM,
            run=run,
        )
        del x
        assert data() is None
    finally:
        gc.enable()
