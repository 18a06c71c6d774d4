"""Tensors and graphs live as long as they would without the capture, and are the same afterwards."""

import gc
import weakref

import pytest
import torch
from torch import nn
from truth import batch, each_method, parameter_gradients, seeded

from gradlab import capture_gradients


def small():
    return seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1)))


X = batch(5, 3)


def step(model, x=X):
    loss = model(x).square().sum()
    loss.backward()
    return loss.detach()


@each_method
def test_outputs_and_inputs_are_let_go_once_the_step_is_over(method):
    model, alive = small(), []

    def watch(module, inputs, output):
        alive.extend(weakref.ref(tensor) for tensor in (*inputs, output))

    for module in model:
        module.register_forward_hook(watch)
    with capture_gradients(model, method) as capture:
        for rows in range(1, 6):
            step(model, batch(rows, 3))
        model(batch(1, 3))  # the next forward begins: what a method kept of the step before is let go
        gc.collect()
        assert sum(reference() is not None for reference in alive[:-8]) == 0
    gc.collect()
    assert sum(reference() is not None for reference in alive) == 0
    assert len(capture.passes) == 5


@each_method
def test_no_garbage_collector_is_needed(method):
    model, alive = small(), []
    gc.collect()
    gc.disable()
    try:
        with capture_gradients(model, method):
            for rows in range(1, 4):
                x = batch(rows, 3)
                alive.append(weakref.ref(x))
                step(model, x)
                del x
        assert sum(reference() is not None for reference in alive) == 0
    finally:
        gc.enable()


def test_a_backward_that_failed_is_let_go_at_once():
    class Fail(nn.Module):
        def forward(self, x):
            if self.training:
                x.register_hook(self.fail)
            return x

        def fail(self, gradient):
            raise RuntimeError("on purpose")

    model = seeded(lambda: nn.Sequential(nn.Linear(3, 4), Fail(), nn.Linear(4, 1)))

    def failing_step():
        x = batch(5, 3)
        output = model(x)
        with pytest.raises(RuntimeError, match="on purpose"):
            output.sum().backward()
        return weakref.ref(x), weakref.ref(output)

    with capture_gradients(model) as capture:
        alive = failing_step()
        gc.collect()
        assert [reference() for reference in alive] == [None, None]
        step(model.eval())
    assert len(capture.passes) == 1


@pytest.mark.parametrize("method", ["tensor_hooks", "full_backward_hooks"])  # retain_grad() is about keeping outputs
def test_forwards_without_a_backward_are_let_go(method):
    model, alive = small(), []
    with capture_gradients(model, method) as capture:
        for _ in range(100):
            output = model(X)
            alive.append(weakref.ref(output))
            del output
        gc.collect()
        assert sum(reference() is not None for reference in alive) <= 2
        step(model)
    assert len(capture.passes) == 1


@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad])
def test_memory_does_not_grow_with_evaluations(context):
    class Position(nn.Module):
        def __init__(self):
            super().__init__()
            self.value = nn.Parameter(torch.ones(2))

        def forward(self):
            return self.value

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.position, self.linear = Position(), nn.Linear(2, 2)

        def forward(self, x):
            return self.linear(x + self.position())

    model, x = Net(), torch.ones(1, 2)

    def objects_after(times):
        for _ in range(times):
            with context():
                model(x)
        gc.collect()
        return len(gc.get_objects())

    with capture_gradients(model, keep_passes=1) as capture:
        first = objects_after(6_000)
        second = objects_after(18_000)
        hooks = len(model.position.value._backward_hooks or ())
        model(x).sum().backward()
    assert second - first < 40_000  # bounded: some calls of the unfinished round may be kept, not 36,000 more
    assert hooks < 12_000
    assert capture.passes


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # PyTorch's wrapping stays in the graph
@each_method
def test_a_graph_that_outlives_the_block_has_no_hook_of_ours(method):
    model = small().eval()
    with capture_gradients(model, method) as capture:
        hidden = model[:2](X)
        loss = model[2:](hidden).square().sum()
        loss.backward(retain_graph=True)
    passes = len(capture.passes)
    model.zero_grad()
    loss.backward()
    assert len(capture.passes) == passes
    assert not hidden._backward_hooks
    for name, wanted in parameter_gradients(model, model(X).square().sum()).items():
        assert torch.equal(model.get_parameter(name).grad, wanted)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("method", ["tensor_hooks", "full_backward_hooks"])  # retain_grad() cannot be taken back
def test_an_intermediate_tensor_has_no_grad_of_ours(method):
    model = small().eval()
    with capture_gradients(model, method):
        hidden = model[:2](X)
        loss = model[2:](hidden).square().sum()
        loss.backward(retain_graph=True)
    assert hidden.grad is None
    assert not hidden.retains_grad


@each_method
def test_a_tensor_that_the_user_retains_keeps_its_grad(method):
    model = small().eval()
    with capture_gradients(model, method):
        output = model(X)
        output.retain_grad()
        output.square().sum().backward()
        assert torch.equal(output.grad, 2 * output.detach())
    assert torch.equal(output.grad, 2 * output.detach())


def test_a_capture_that_is_let_go_leaves_no_work_to_the_garbage_collector():
    model = small()
    step(model)
    gc.collect()
    gc.disable()
    try:
        with capture_gradients(model) as capture:
            step(model)
            step(model)
        records = capture.passes[-1].outputs
        capture = weakref.ref(capture)
        assert capture() is None
        assert gc.collect() == 0
        assert len(records) == 4
    finally:
        gc.enable()
