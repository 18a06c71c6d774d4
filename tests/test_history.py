"""The gradients of a training run as one table: steps, accumulation, updates, several processes."""

import io

import pandas
import pytest
import torch
from pandas.testing import assert_frame_equal
from torch import distributed, multiprocessing, nn

import gradlab


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def batch():
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(1))


def train(model, optimizer, inputs, steps=3, accumulate=1):
    for step in range(steps):
        optimizer.zero_grad()
        for _ in range(accumulate):
            model(inputs * (step + 1)).square().mean().backward()
        optimizer.step()


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr=lr)


def test_a_step_is_an_optimizer_step_and_its_backward_passes_are_told_apart():
    model = network()
    optimizer = sgd(model)
    with gradlab.watch(model, every=2, optimizer=optimizer) as history:
        train(model, optimizer, batch(), steps=5, accumulate=3)
    table = history.table()
    assert history.step == 5
    assert table.groupby("step")["backward"].unique().map(list).to_dict() == {s: [0, 1, 2] for s in (0, 2, 4)}
    # The same batch three times over: every pass has its own gradient, not what .grad has accumulated.
    weights = table[table["parameter"] == "0.weight"]
    assert weights.groupby("step")["norm"].nunique().eq(1).all()


def test_without_an_optimizer_a_step_is_a_backward_pass():
    model = network()
    with gradlab.watch(model, every=3) as history:
        for _ in range(7):
            model(batch()).sum().backward()
    assert history.table()["step"].unique().tolist() == [0, 3, 6]


def test_readings_equal_plain_autograd_at_every_step():
    model, twin = network(), network()
    optimizer, twins = sgd(model), sgd(twin)
    with gradlab.watch(model, optimizer=optimizer) as history:
        train(model, optimizer, batch())
    table = history.table().set_index(["step", "parameter"])
    for step in range(3):
        twins.zero_grad()
        twin(batch() * (step + 1)).square().mean().backward()
        for name, parameter in twin.named_parameters():
            assert table.loc[(step, name), "norm"] == pytest.approx(parameter.grad.double().norm().item(), rel=1e-6)
        twins.step()


def test_the_update_of_plain_sgd_is_the_learning_rate_times_the_gradient():
    model = network()
    optimizer = sgd(model, lr=0.01)
    sizes = {name: parameter.detach().double().norm().item() for name, parameter in model.named_parameters()}
    with gradlab.watch(model, optimizer=optimizer) as history:
        train(model, optimizer, batch(), steps=1)
    readings = history.table().dropna(subset="parameter").set_index("parameter")
    for name, size in sizes.items():
        assert readings.loc[name, "update_ratio"] == pytest.approx(0.01 * readings.loc[name, "norm"] / size, rel=1e-4)


def test_a_scaled_loss_gives_the_unscaled_readings():
    plain, mixed = network(), network()
    optimizer, scaler = sgd(mixed), torch.amp.GradScaler("cpu", init_scale=2.0**14)
    with gradlab.watch(mixed, optimizer=optimizer, loss_scale=scaler.get_scale) as history:
        scaler.scale(mixed(batch()).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    with gradlab.watch(plain) as expected:
        plain(batch()).square().mean().backward()
    assert history.step == 1
    norms = history.table()["norm"], expected.table()["norm"]
    assert norms[0].to_list() == pytest.approx(norms[1].to_list(), rel=1e-5)


def test_the_table_goes_to_csv_and_back():
    model = network()
    optimizer = sgd(model)
    with gradlab.watch(model, optimizer=optimizer, layers="all") as history:
        train(model, optimizer, batch(), accumulate=2)
    table = history.table()
    assert_frame_equal(gradlab.read_csv(io.StringIO(gradlab.to_csv(table))), table, check_exact=True)


def test_only_the_latest_rows_are_kept():
    model = network()
    with gradlab.watch(model, keep_rows=20) as history:
        for _ in range(10):
            model(batch()).sum().backward()
    table = history.table()
    assert len(table) <= 20
    assert table["step"].max() == 9


def test_nothing_stays_on_the_model_or_the_optimizer():
    model = network()
    optimizer = sgd(model)
    with gradlab.watch(model, optimizer=optimizer):
        train(model, optimizer, batch(), steps=1)
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(parameter._backward_hooks for parameter in model.parameters())
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


@pytest.mark.parametrize(("name", "value"), [("every", 0), ("every", 1.5), ("every", True), ("keep_rows", -3)])
def test_an_impossible_setting_is_refused(name, value):
    with pytest.raises(gradlab.CaptureError, match=f"{name} = .*whole number from 1"):
        gradlab.watch(network(), **{name: value})


def _one_of_two(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = sgd(model)
    with gradlab.watch(model, optimizer=optimizer) as history:
        train(model, optimizer, batch()[rank * 4 : rank * 4 + 4])
    history.table().to_pickle(f"{folder}/{rank}.pickle")
    distributed.destroy_process_group()


def test_two_processes_report_the_whole_batch(tmp_path):
    multiprocessing.spawn(_one_of_two, args=(str(tmp_path),), nprocs=2)
    first, second = (pandas.read_pickle(tmp_path / f"{rank}.pickle") for rank in range(2))
    assert_frame_equal(first, second)

    model = network()
    optimizer = sgd(model)
    with gradlab.watch(model, optimizer=optimizer) as history:
        train(model, optimizer, batch())
    names = first[["layer", "parameter"]].apply(lambda column: column.str.removeprefix("module."))
    assert_frame_equal(first.assign(**names), history.table(), rtol=1e-5)
