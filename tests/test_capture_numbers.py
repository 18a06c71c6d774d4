"""Gradients of every kind of number: zero, tiny, huge, not finite, half precision, complex, sparse, empty, of no dimension."""

import math
import warnings

import pytest
import torch
from torch import nn
from truth import batch, captured, each_method, parameters, readings, seeded, statuses

from gradlab import capture_gradients


class Scale(nn.Module):
    """Multiplies by its weight: the gradient of the output is what the test sends back, that of the weight is times x."""

    def __init__(self, dtype=torch.float32, size=3):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, dtype=dtype))

    def forward(self, x):
        return x * self.weight


def send_back(gradient, method="tensor_hooks", **options):
    """The records of a layer whose output receives exactly this gradient."""
    model = Scale(gradient.dtype, gradient.shape)

    def run(model):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            model(torch.ones_like(gradient)).backward(gradient)

    (done,) = captured(model, run, method, **options).passes
    assert torch.equal(done.outputs[0].gradient.nan_to_num(7.0), gradient.nan_to_num(7.0))
    return done


NAN, INF = math.nan, math.inf


@each_method
@pytest.mark.parametrize(
    ("values", "status"),
    [
        ([1.0, -2.0, 0.0], "ok"),
        ([0.0, 0.0, -0.0], "all_zero"),
        ([1e-25, 0.0, -1e-26], "tiny"),
        ([1e-44, 0.0, 0.0], "tiny"),
        ([2e-19, 0.0, 0.0], "ok"),
        ([1e25, 0.0, -1.0], "huge"),
        ([3e38, -3e38, 3e38], "huge"),
        ([1e19, 0.0, 0.0], "ok"),
        ([NAN, 1.0, 2.0], "non_finite"),
        ([INF, 0.0, 0.0], "non_finite"),
        ([NAN, NAN, -INF], "non_finite"),
        ([1e-25, NAN, 0.0], "non_finite"),
    ],
)
def test_a_status_says_what_the_gradient_is(values, status, method):
    done = send_back(torch.tensor(values), method)
    assert statuses(done) == {("", 0, "0"): status}
    assert parameters(done)["weight"].status == status


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [3, 1000, 70_000])
def test_a_large_sum_of_squares_does_not_overflow(dtype, size):
    value = 60_000.0 if dtype is torch.float16 else 2.0**100
    statistics = send_back(torch.full((size,), value, dtype=dtype)).outputs[0].statistics
    exact = float(torch.tensor(value, dtype=dtype))
    assert statistics.norm == pytest.approx(exact * math.sqrt(size), rel=1e-6)
    assert (statistics.rms, statistics.max_abs) == pytest.approx((exact, exact), rel=1e-6)
    assert statistics.nonfinite_count == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [3, 1000, 70_000])
def test_a_small_sum_of_squares_does_not_vanish(dtype, size):
    statistics = send_back(torch.full((size,), 1e-25, dtype=dtype)).outputs[0].statistics
    exact = float(torch.tensor(1e-25, dtype=dtype))
    assert statistics.norm == pytest.approx(exact * math.sqrt(size), rel=1e-6)
    assert statistics.mean_abs == pytest.approx(exact, rel=1e-6)
    assert statistics.zero_fraction == 0


def test_statistics_are_over_the_finite_entries():
    statistics = send_back(torch.tensor([3.0, NAN, -4.0, INF, 0.0])).outputs[0].statistics
    assert statistics.nonfinite_count == 2
    assert statistics.numel == 5
    assert (statistics.norm, statistics.max_abs, statistics.min, statistics.max) == (5.0, 4.0, -4.0, 3.0)
    assert (statistics.mean_abs, statistics.mean) == pytest.approx((7 / 3, -1 / 3))
    assert statistics.zero_fraction == pytest.approx(1 / 3)


@each_method
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_network_is_measured_in_its_own_numbers(dtype, method):
    model, x = seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))).to(dtype), batch(5, 3).to(dtype)
    h = nn.functional.linear(x, model[0].weight, model[0].bias)
    a = torch.tanh(h)
    y = nn.functional.linear(a, model[2].weight, model[2].bias)
    wanted = torch.autograd.grad(y.square().sum(), [h, a, y])
    (done,) = captured(model, lambda m: m(x).square().sum().backward(), method).passes
    for record, gradient in zip(done.outputs, wanted, strict=True):
        assert record.dtype == str(dtype).removeprefix("torch.")
        assert torch.equal(record.gradient, gradient)
        assert record.statistics.norm == pytest.approx(gradient.double().norm().item(), rel=1e-6)


@each_method
def test_mixed_precision_gives_every_reading_its_own_dtype(method):
    model, x = seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))).float(), batch(5, 3).float()

    def run(model):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
        y.float().square().sum().backward()

    (done,) = captured(model, run, method).passes
    assert [r.dtype for r in done.outputs] == ["bfloat16"] * 3
    assert [r.dtype for r in done.parameters] == ["float32"] * 4
    for record in done.parameters:
        assert torch.equal(record.gradient, model.get_parameter(record.parameter).grad)


@each_method
def test_complex_gradients_are_measured_by_their_absolute_value(method):
    model = nn.Sequential(Scale(torch.complex128, 2), Scale(torch.complex128, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([1 + 2j, 3 - 1j]))
        model[1].weight.copy_(torch.tensor([2j, -1 + 0j]))
    x = torch.tensor([1 + 1j, 2.0])
    h = x * model[0].weight
    y = h * model[1].weight
    wanted = torch.autograd.grad((y.conj().imag * torch.tensor([1.0, 2.0])).sum(), [h, y])
    run = lambda m: (m(x).conj().imag * torch.tensor([1.0, 2.0])).sum().backward()  # noqa: E731
    (done,) = captured(model, run, method).passes
    for record, gradient in zip(done.outputs, wanted, strict=True):
        assert torch.equal(record.gradient.resolve_conj(), gradient.resolve_conj())
        assert record.dtype == "complex128"
        assert record.statistics.norm == pytest.approx(math.hypot(*(abs(v) for v in gradient.tolist())))
        assert record.statistics.mean_abs == pytest.approx(sum(abs(v) for v in gradient.tolist()) / 2)
        assert record.statistics.max == record.statistics.max_abs


@each_method
def test_sparse_gradients_are_measured_as_if_dense(method):
    tokens = torch.tensor([[1, 4, 1], [1, 0, 4]])
    dense, sparse = (seeded(lambda flag=flag: nn.Embedding(9, 2, sparse=flag)) for flag in (False, True))
    run = lambda m: m(tokens).square().sum().backward()  # noqa: E731
    found = [captured(model, run, method).passes[0].parameters[0] for model in (dense, sparse)]
    assert sparse.weight.grad.is_sparse
    assert torch.equal(found[1].gradient.to_dense(), found[0].gradient)
    assert found[1].statistics == pytest.approx(found[0].statistics)
    assert (found[1].shape, found[1].status) == ((9, 2), "ok")
    assert found[1].statistics.zero_fraction == 6 / 9


@each_method
def test_an_empty_batch_has_empty_output_gradients_and_zero_weight_gradients(method):
    model = seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))
    (done,) = captured(model, lambda m: m(torch.empty(0, 3, dtype=torch.float64)).sum().backward(), method).passes
    assert set(statuses(done).values()) == {"empty"}
    assert [record.shape for record in done.outputs] == [(0, 4), (0, 4), (0, 1)]
    assert all(record.statistics.numel == 0 and record.statistics.norm == 0 for record in done.outputs)
    assert {str(record.status) for record in done.parameters} == {"all_zero"}


@each_method
def test_numbers_of_no_dimension_have_gradients_too(method):
    class Total(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.tensor(3.0))

        def forward(self, x):
            return (x * self.gain).sum()

    x = batch(2, 3)
    (done,) = captured(seeded(Total), lambda m: (5 * m(x)).backward(), method).passes
    (output,), (gain,) = done.outputs, done.parameters
    assert (output.shape, output.gradient.item(), output.statistics.norm) == ((), 5.0, 5.0)
    assert (gain.shape, gain.role, gain.statistics.numel) == ((), "other", 1)
    assert gain.gradient.item() == pytest.approx(5 * x.sum().item())


@each_method
@pytest.mark.parametrize("shape", [(1,), (300,), (70_000,), (7, 11, 3, 2, 2)])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "expanded", "every other"])
def test_the_layout_in_memory_makes_no_difference(shape, layout, method):
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if layout == "transposed":
        gradient = gradient.permute(*reversed(range(gradient.dim())))
    elif layout == "expanded":
        gradient = gradient.sum().expand(shape)
    elif layout == "every other":
        gradient = gradient.repeat_interleave(2, 0)[::2]
    statistics = send_back(gradient, method).outputs[0].statistics
    values = gradient.flatten().tolist()
    assert statistics.norm == pytest.approx(math.hypot(*values), rel=1e-9)
    assert statistics.mean_abs == pytest.approx(math.fsum(map(abs, values)) / len(values), rel=1e-9)
    assert (statistics.min, statistics.max, statistics.numel) == (min(values), max(values), len(values))


@pytest.mark.parametrize("method", ["tensor_hooks", "retain_grad"])
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_nested_tensors_are_measured_over_all_their_parts(layout, method):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 4)

        def forward(self, x):
            return torch.relu(self.linear(x))

    parts = [batch(2, 3), batch(4, 3)]
    model = seeded(Net)

    def run(model):
        y = model(torch.nested.nested_tensor(parts, layout=layout))
        torch.nested.to_padded_tensor(y, 0.0).square().sum().backward()

    h = [nn.functional.linear(part, model.linear.weight, model.linear.bias) for part in parts]
    wanted = torch.autograd.grad(sum(torch.relu(part).square().sum() for part in h), h)
    with capture_gradients(model, method) as capture:
        run(model)
    statistics = readings(capture.passes[0])["linear", 0, "0"].statistics
    assert statistics.numel == 6 * 4
    assert statistics.norm == pytest.approx(math.hypot(*(g.norm().item() for g in wanted)))


def test_what_has_no_values_has_no_number():
    model = nn.Linear(3, 2, device="meta")
    with capture_gradients(model) as capture:
        model(torch.ones(4, 3, device="meta")).sum().backward()
    for record in (*capture.passes[0].outputs, *capture.passes[0].parameters):
        assert record.status == "unsupported"
        assert record.note


@each_method
def test_the_gradient_of_a_dead_relu_is_zero_and_of_the_layer_after_it_is_not(method):
    model = seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))
    nn.init.constant_(model[0].bias, -100.0)
    (done,) = captured(model, lambda m: m(batch(5, 3)).sum().backward(), method).passes
    assert [str(record.status) for record in done.outputs] == ["all_zero", "ok", "ok"]
    assert torch.equal(done.outputs[0].gradient, torch.zeros(5, 4, dtype=torch.float64))
    assert done.outputs[0].statistics.zero_fraction == 1
