"""What the capture tests compare with: forwards written out by hand and differentiated by `torch.autograd.grad`, no hooks."""

import threading
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradlab import CaptureError, capture_gradients

METHODS = ("tensor_hooks", "retain_grad", "full_backward_hooks")
ABSENT = {"no_gradient", "not_tracked", "never_called", "unsupported"}

each_kind = pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "non-reentrant"])
each_method = pytest.mark.parametrize("method", METHODS)


def seeded(build, seed=0):
    """What `build` makes, in double precision and with the weights of one seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build().double()


def batch(rows, size):
    """A fixed input in double precision."""
    return torch.linspace(-2, 3, rows * size, dtype=torch.float64).reshape(rows, size).cos()


class Trace:
    """A forward written out by hand: every tensor that a layer would return is noted under the layer's name."""

    def __init__(self):
        self.tensors = {}
        self.calls = Counter()

    def note(self, layer, tensor, output="0"):
        call = self.calls[layer, output]
        self.calls[layer, output] += 1
        self.tensors[layer, call, output] = tensor
        return tensor

    def linear(self, layer, module, x):
        return self.note(layer, functional.linear(x, module.weight, module.bias))

    def gradients(self, loss):
        """The gradient at every noted tensor; None where the loss does not depend on it."""
        tracked = {key: tensor for key, tensor in self.tensors.items() if tensor.requires_grad}
        found = torch.autograd.grad(loss, list(tracked.values()), allow_unused=True, retain_graph=True)
        return dict.fromkeys(self.tensors) | dict(zip(tracked, found, strict=True))


def small():
    """A network of two linear layers, "0" and "2", with an activation, "1", between them."""
    return seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))


def forward(model, x, trace):
    """The forward of `small()`, written out."""
    h = trace.note("1", torch.tanh(trace.linear("0", model[0], x)))
    return trace.linear("2", model[2], h)


class Block(nn.Module):
    """Each of its two layers is called twice."""

    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(3, 3), nn.Tanh()

    def forward(self, x):
        return self.act(self.linear(self.act(self.linear(x))))


def block(model, x, trace, name):
    """The forward of `Block`, written out."""
    for _ in range(2):
        x = trace.note(f"{name}.act", torch.tanh(trace.linear(f"{name}.linear", model.linear, x)))
    return x


def parameter_gradients(model, loss):
    """The gradient of every named parameter by `torch.autograd.grad`."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True, retain_graph=True)
    return {name: None for name, _ in model.named_parameters()} | dict(zip(named, found, strict=True))


def captured(model, run, method="tensor_hooks", **options):
    """The capture of `run(model)`; None where full backward hooks refuse, which they may, with a CaptureError."""
    try:
        with capture_gradients(model, method, keep_gradients=True, **options) as capture:
            run(model)
    except CaptureError as error:
        if method != "full_backward_hooks" or "tensor_hooks" not in str(error):
            raise
        return None
    return capture


def readings(backward_pass):
    """(layer, call, output) -> record, each key once."""
    records = {(r.layer, r.call, r.output): r for r in backward_pass.outputs}
    assert len(records) == len(backward_pass.outputs)
    return records


def statuses(backward_pass):
    """(layer, call, output) -> status."""
    return {key: str(record.status) for key, record in readings(backward_pass).items()}


def parameters(backward_pass):
    """Parameter name -> record."""
    return {record.parameter: record for record in backward_pass.parameters}


def close(found, expected):
    """Equal as far as the type allows, also where one is sparse."""
    found, expected = (t.to_dense() if t.layout is not torch.strided else t for t in (found, expected))
    tolerance = 1e-9 if expected.dtype in (torch.float64, torch.complex128) else 1e-5
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * 1e-3, equal_nan=True)


def assert_outputs(backward_pass, expected, method="tensor_hooks"):
    """Every expected reading is there and right, and nothing else has a number.

    Tensor hooks must give every number. The other methods may withhold one, if the record says so with a reason.
    """
    records = readings(backward_pass)
    for key, gradient in expected.items():
        record = records[key]
        if record.gradient is None:
            assert record.statistics is None
            assert record.status in ABSENT
            if gradient is not None:
                assert method != "tensor_hooks", (key, str(record.status))
                assert record.status == "unsupported", (key, str(record.status))
                assert record.note
        else:
            assert gradient is not None, (key, record.gradient)
            close(record.gradient, gradient.detach())
            assert record.statistics.norm == pytest.approx(gradient.detach().double().norm().item(), rel=1e-5)
    extra = {key for key in records.keys() - expected.keys() if records[key].gradient is not None}
    assert not extra


def assert_parameters(backward_pass, expected):
    """Every expected parameter gradient is there and right, for every method."""
    records = parameters(backward_pass)
    for name, gradient in expected.items():
        record = records[name]
        if gradient is None:
            assert record.gradient is None, name
            assert record.status in ABSENT, (name, str(record.status))
        else:
            assert record.gradient is not None, (name, str(record.status))
            close(record.gradient, gradient.detach())


def attached(model):
    """Every hook that hangs on the model's modules and parameters."""
    hooks = []
    for name, module in model.named_modules():
        for kind, value in vars(module).items():
            if kind.endswith("_hooks") and value:
                hooks += [(name, kind, key) for key in value]
    for name, parameter in model.named_parameters():
        hooks += [(name, "tensor", key) for key in parameter._backward_hooks or ()]
        hooks += [(name, "accumulate", key) for key in parameter._post_accumulate_grad_hooks or ()]
    return hooks


def everything_on(model):
    """What hangs on a model: for every module and parameter, its attributes and what is in its hook dictionaries."""
    modules = {
        name: {
            key: list(value) if key.endswith("hooks") or isinstance(value, dict) else value
            for key, value in vars(module).items()
        }
        for name, module in model.named_modules()
    }
    return modules, attached(model), {name: sorted(vars(p)) for name, p in model.named_parameters()}


def differing_in_eight_threads(count, same):
    """The places below `count` at which `same(place)` does not hold, or its error, in eight threads that start together."""
    differing, start = [], threading.Barrier(8)

    def measure(offset):
        start.wait()
        for step in range(count):
            place = (step * 3 + offset * 5) % count
            try:
                if not same(place):
                    differing.append(place)
            except Exception as error:  # a thread's own error would be lost
                differing.append(error)

    threads = [threading.Thread(target=measure, args=(offset,)) for offset in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return differing
