"""The gradients of a training run as one table: steps, accumulation, updates, several processes."""

import gc
import io
import math
import weakref
from functools import partial

import pandas
import pytest
import torch
from pandas.testing import assert_frame_equal
from processes import in_both_processes
from torch import nn

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


def ratios(history, parameter="0.weight"):
    """(step, backward) -> update ratio, NaN as None."""
    rows = history.table().query("parameter == @parameter")
    return {
        (step, backward): None if math.isnan(ratio) else pytest.approx(ratio, rel=1e-6)
        for step, backward, ratio in zip(rows["step"], rows["backward"], rows["update_ratio"], strict=True)
    }


def update_ratio(before, after):
    return ((after - before).double().norm() / before.double().norm()).item()


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_forward_between_backward_and_step_changes_no_reading(every):
    model, twin = network(), network()
    optimizer, twins = sgd(model), sgd(twin)
    expected = {}
    with gradlab.watch(model, every=every, optimizer=optimizer) as history:
        for step in range(7):
            for each, its in ((model, optimizer), (twin, twins)):
                its.zero_grad()
                each(batch()).square().mean().backward()
            with torch.no_grad():
                model(batch())
            before = twin[0].weight.detach().clone()
            optimizer.step()
            twins.step()
            if step % every == 0:
                expected[step, 0] = update_ratio(before, twin[0].weight.detach())
    assert ratios(history) == expected
    assert not set(history.table()["status"]) & {"unsupported", "never_called"}


def test_a_step_without_a_backward_pass_leaves_the_rows_before_as_they_are():
    model = network()
    optimizer = sgd(model)
    with gradlab.watch(model, optimizer=optimizer) as history:
        train(model, optimizer, batch(), steps=1)
        alone = ratios(history)
        optimizer.param_groups[0]["lr"] = 10.0
        optimizer.step()
        assert ratios(history) == alone
        train(model, optimizer, batch(), steps=1)
    assert history.step == 3
    assert set(ratios(history)) == {(0, 0), (2, 0)}


def test_a_pass_over_forwards_of_an_unwatched_step_says_so():
    model = network()
    optimizer = sgd(model, lr=0.0)
    with gradlab.watch(model, every=2, optimizer=optimizer) as history:
        train(model, optimizer, batch(), steps=1)
        output = model(batch())
        optimizer.zero_grad()
        optimizer.step()
        output.sum().backward()
        optimizer.step()
    late = history.table().query("step == 2")
    assert set(late[late["role"] == "output"]["status"]) == {"unsupported"}
    assert late[late["role"] == "output"]["note"].str.contains("a step that is not watched").all()
    assert set(late[late["role"] != "output"]["status"]) == {"ok"}


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.LBFGS])
def test_a_step_with_a_closure_has_the_update_at_its_last_backward_pass(optimizer):
    model = network()
    its = optimizer(model.parameters(), lr=0.1)

    def closure():
        its.zero_grad()
        loss = model(batch()).square().mean()
        loss.backward()
        return loss

    expected = {}
    with gradlab.watch(model, optimizer=its) as history:
        for step in range(2):
            before = model[0].weight.detach().clone()
            its.step(closure) if step else its.step(closure=closure)
            expected[step] = update_ratio(before, model[0].weight.detach())
    found = ratios(history)
    last = {step: max(backward for s, backward in found if s == step) for step in expected}
    assert {key: ratio for key, ratio in found.items() if ratio is not None} == {
        (step, last[step]): ratio for step, ratio in expected.items()
    }


def test_an_optimizer_that_steps_inside_backward_ends_the_step_of_that_pass():
    model = network()
    optimizer = torch.optim.SGD([model[0].weight], lr=0.1)

    def step(parameter):
        optimizer.step()
        optimizer.zero_grad()

    handle = model[0].weight.register_post_accumulate_grad_hook(step)
    expected = {}
    with gradlab.watch(model, every=2, optimizer=optimizer) as history:
        for number in range(5):
            before = model[0].weight.detach().clone()
            model(batch()).square().mean().backward()
            if number % 2 == 0:
                expected[number, 0] = update_ratio(before, model[0].weight.detach())
    handle.remove()
    assert ratios(history) == expected


def test_a_gradient_penalty_is_one_backward_pass():
    model = network()
    optimizer = sgd(model)
    with gradlab.watch(model, optimizer=optimizer) as history:
        inputs = batch().requires_grad_()
        (gradient,) = torch.autograd.grad(model(inputs).square().sum(), inputs, create_graph=True)
        before = model[0].weight.detach().clone()
        gradient.square().sum().backward()
        optimizer.step()
    assert ratios(history) == {(0, 0): update_ratio(before, model[0].weight.detach())}


def test_a_shared_tensor_has_its_update_under_both_names():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    optimizer = sgd(model)
    before = model[0].weight.detach().clone()
    with gradlab.watch(model, optimizer=optimizer) as history:
        train(model, optimizer, batch(), steps=1)
    expected = {(0, 0): update_ratio(before, model[0].weight.detach())}
    assert ratios(history) == ratios(history, "1.weight") == expected


def test_there_is_no_update_ratio_of_a_parameter_that_was_zero_or_became_infinite():
    model = network()
    nn.init.zeros_(model[0].bias)
    optimizer = sgd(model)
    with gradlab.watch(model, optimizer=optimizer) as history:
        model(batch()).square().mean().backward()
        with torch.no_grad():
            model[0].weight.grad[0, 0] = math.inf
        optimizer.step()
    assert ratios(history, "0.bias") == ratios(history, "0.weight") == {(0, 0): None}
    assert ratios(history, "2.weight") != {(0, 0): None}


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


class Inf(nn.Linear):
    """Its class has a name that a CSV reader takes for a number."""


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a\rb", nn.Linear), ("\r", nn.Linear), ("a\r\nb\n", nn.Linear), ("a", Inf)]
    + [("a", type(name, (nn.Linear,), {})) for name in ("Infinity", "True", "1e5", "NA")],
)  # fmt: skip
def test_names_of_layers_and_classes_survive_the_csv(name, kind):
    model = nn.Sequential()
    model.add_module(name, kind(4, 1))
    for layers in (None, ""):
        with gradlab.watch(model, layers=layers) as history:
            model(batch()).sum().backward()
        table = history.table()
        assert_frame_equal(gradlab.read_csv(io.StringIO(gradlab.to_csv(table))), table, check_exact=True)


@pytest.mark.filterwarnings("ignore:no gradient was captured")
def test_a_table_without_rows_survives_the_csv():
    with gradlab.watch(network()) as history:
        pass
    table = history.table()
    assert len(table) == 0
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


class Wrapper:
    """As libraries and own code wrap an optimiser; it takes no hooks."""

    def __init__(self, optimizer):
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups


class Subclass(torch.optim.Optimizer):
    """One that is an optimiser by type, without having been made into one."""

    def __init__(self, optimizer):
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups


@pytest.mark.parametrize("wrapper", [Wrapper, Subclass])
def test_what_takes_no_step_hooks_is_refused_and_nothing_stays(wrapper):
    model = network()
    with (
        pytest.raises(gradlab.CaptureError, match="takes no step hooks"),
        gradlab.watch(model, optimizer=wrapper(sgd(model))),
    ):
        pass
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(parameter._backward_hooks for parameter in model.parameters())


def test_a_kept_history_keeps_neither_the_model_nor_the_optimizer():
    model = network()
    optimizer = sgd(model)
    with gradlab.watch(model, optimizer=optimizer) as history:
        train(model, optimizer, batch(), steps=1)
    kept = [weakref.ref(model), weakref.ref(model[0].weight), weakref.ref(optimizer)]
    del model, optimizer
    gc.collect()
    assert [each() for each in kept] == [None, None, None]
    assert len(history.table())


@pytest.mark.parametrize(("name", "value"), [("every", 0), ("every", 1.5), ("every", True), ("keep_rows", -3)])
def test_an_impossible_setting_is_refused(name, value):
    with pytest.raises(gradlab.CaptureError, match=f"{name} = .*whole number from 1"):
        gradlab.watch(network(), **{name: value})


def _one_of_two(rank, folder):
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = sgd(model)
    with gradlab.watch(model, optimizer=optimizer) as history:
        train(model, optimizer, batch()[rank * 4 : rank * 4 + 4])
    history.table().to_pickle(folder / f"{rank}.pickle")


def test_two_processes_report_the_whole_batch(tmp_path):
    in_both_processes(tmp_path, partial(_one_of_two, folder=tmp_path))
    first, second = (pandas.read_pickle(tmp_path / f"{rank}.pickle") for rank in range(2))
    assert_frame_equal(first, second)

    model = network()
    optimizer = sgd(model)
    with gradlab.watch(model, optimizer=optimizer) as history:
        train(model, optimizer, batch())
    names = first[["layer", "parameter"]].apply(lambda column: column.str.removeprefix("module."))
    assert_frame_equal(first.assign(**names), history.table(), rtol=1e-5)
