"""Other people's hooks, tensor subclasses, and the modes and threads autograd can run in."""

import queue
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional
from truth import (
    Trace,
    assert_outputs,
    assert_parameters,
    batch,
    captured,
    each_method,
    parameter_gradients,
    parameters,
    readings,
    seeded,
    small,
)

from gradlab import capture_gradients

X = batch(5, 3)


def truth(model, x=X):
    trace = Trace()
    h = trace.note("1", torch.tanh(trace.linear("0", model[0], x)))
    loss = trace.linear("2", model[2], h).square().sum()
    return trace.gradients(loss), parameter_gradients(model, loss)


def step(model, x=X):
    model(x).square().sum().backward()


@each_method
def test_a_hook_that_replaces_an_output_beforehand_defines_the_output(method):
    model = small()
    model[1].register_forward_hook(lambda module, inputs, output: output * 3)
    trace = Trace()
    h = trace.note("1", 3 * torch.tanh(trace.linear("0", model[0], X)))
    loss = trace.linear("2", model[2], h).square().sum()
    (done,) = captured(model, step, method).passes
    assert_outputs(done, trace.gradients(loss), method)


@each_method
def test_a_hook_that_replaces_an_output_afterwards_leaves_its_shape_and_gradient_together(method):
    model = small()

    def run(model):
        handle = model[1].register_forward_hook(lambda module, inputs, output: 3 * output.repeat(2, 1))
        step(model)
        handle.remove()

    h = functional.linear(X, model[0].weight, model[0].bias)
    a = torch.tanh(h)
    y = functional.linear(3 * a.repeat(2, 1), model[2].weight, model[2].bias)
    wanted = dict(zip("012", torch.autograd.grad(y.square().sum(), [h, a, y]), strict=True))
    capture = captured(model, run, method)
    if capture is not None:
        assert_outputs(capture.passes[0], {(layer, 0, "0"): g for layer, g in wanted.items()}, method)


@each_method
def test_a_backward_hook_that_changes_gradients_changes_what_arrives_before_it(method):
    model = small()
    model[1].register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0] * 10,))
    outputs, _ = truth(small())
    (done,) = captured(model, step, method).passes
    assert_outputs(done, {key: 10 * g if key[0] == "0" else g for key, g in outputs.items()}, method)
    torch.testing.assert_close(parameters(done)["0.bias"].gradient, model[0].bias.grad)


def test_a_later_hook_that_writes_into_the_gradient_does_not_rewrite_the_reading():
    model = small()
    outputs, _ = truth(model)

    def run(model):
        hidden = model[0](X)
        hidden.register_hook(lambda gradient: gradient.mul_(0))
        model[2](model[1](hidden)).square().sum().backward()

    (done,) = captured(model, run).passes
    assert_outputs(done, outputs)
    assert model[0].bias.grad.abs().max() == 0


def test_hooks_for_every_module_do_not_disturb():
    model, seen = small(), []
    outputs, weights = truth(model)
    handles = [
        nn.modules.module.register_module_forward_hook(lambda module, inputs, output: seen.append(type(module))),
        nn.modules.module.register_module_forward_pre_hook(lambda module, inputs: None),
    ]
    try:
        (done,) = captured(model, step).passes
    finally:
        for handle in handles:
            handle.remove()
    assert_outputs(done, outputs)
    assert_parameters(done, weights)
    assert len(seen) == 4


def test_saved_tensor_hooks_do_not_disturb():
    model = small()
    outputs, _ = truth(model)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.numpy(force=True), torch.from_numpy):
        (done,) = captured(model, step).passes
    assert_outputs(done, outputs)
    with torch.autograd.graph.save_on_cpu():
        (done,) = captured(model, step).passes
    assert_outputs(done, outputs)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@each_method
def test_anomaly_detection_does_not_disturb(method):
    model = small()
    outputs, _ = truth(model)
    with torch.autograd.detect_anomaly():
        (done,) = captured(model, step, method).passes
    assert_outputs(done, outputs)


def test_the_users_own_hooks_see_the_gradients_they_would_see():
    seen = []
    for watched in (False, True):
        model, x = small(), X.clone().requires_grad_()
        log = []
        for name, module in model.named_modules():
            module.register_full_backward_hook(
                lambda module, inputs, outputs, name=name, log=log: log.append((name, inputs[0].sum(), outputs[0].sum()))
            )
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient, log=log: log.append(("parameter", gradient.sum())))
        if watched:
            with capture_gradients(model):
                step(model, x)
        else:
            step(model, x)
        seen.append(log)
    assert [len(log) for log in seen] == [8, 8]
    for plain, watched in zip(*seen, strict=True):
        assert plain[0] == watched[0]
        assert all(torch.equal(a, b) for a, b in zip(plain[1:], watched[1:], strict=True))


class Marked(torch.Tensor):
    """A tensor subclass, as many libraries have one."""


@each_method
def test_a_tensor_subclass_is_measured_like_any_tensor(method):
    model = small()
    outputs, _ = truth(model)
    (done,) = captured(model, lambda m: step(m, X.as_subclass(Marked)), method).passes
    found = {key: record.gradient.as_subclass(torch.Tensor) for key, record in readings(done).items()}
    for key, wanted in outputs.items():
        torch.testing.assert_close(found[key], wanted)


class Guarded(torch.Tensor):
    """Does not let itself be turned into numbers."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in (torch.Tensor.numpy, torch.Tensor.tolist):
            raise ValueError("no numbers here")
        return super().__torch_function__(function, types, args, kwargs or {})


class GuardGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient.as_subclass(Guarded)


@each_method
@pytest.mark.parametrize("width", [2, 40])
def test_a_gradient_of_a_class_that_forbids_conversion_is_measured_all_the_same(width, method):
    model = seeded(lambda: nn.Linear(3, width))
    (done,) = captured(model, lambda m: GuardGradient.apply(m(X)).square().sum().backward(), method).passes
    torch.testing.assert_close(readings(done)["", 0, "0"].gradient, 2 * model(X).detach())
    assert type(readings(done)["", 0, "0"].gradient) is torch.Tensor


@each_method
def test_threads_that_train_one_model_at_once_are_not_disturbed_and_read_nothing_wrong(method):
    model, failed = small(), []
    _, weights = truth(model)

    def work():
        try:
            for _ in range(20):
                step(model)
        except Exception as error:
            failed.append(error)

    with capture_gradients(model, method, keep_gradients=True) as capture:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed
    for done in capture.passes:
        for record in done.parameters:
            if record.gradient is not None:
                torch.testing.assert_close(record.gradient, weights[record.parameter])


@each_method
def test_a_backward_may_go_on_in_another_thread_while_the_next_forward_runs(method):
    model, losses, failed = small(), queue.Queue(maxsize=2), []
    _, weights = truth(model)

    def differentiate():
        try:
            while (loss := losses.get()) is not None:
                loss.backward()
        except Exception as error:
            failed.append(error)

    with capture_gradients(model, method, keep_gradients=True, keep_passes=20) as capture:
        thread = threading.Thread(target=differentiate)
        thread.start()
        for _ in range(200):
            losses.put(model(X).square().sum())
        losses.put(None)
        thread.join()
    assert not failed
    for done in capture.passes:
        for record in done.parameters:
            torch.testing.assert_close(record.gradient, weights[record.parameter])


@each_method
def test_a_backward_in_another_thread_than_the_forward_is_measured_right(method):
    model, failed = small(), []
    outputs, weights = truth(model)

    def in_a_thread(function, *arguments):
        def run():
            try:
                function(*arguments)
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    def run(model):
        loss = model(X).square().sum()
        in_a_thread(loss.backward)
        in_a_thread(step, model)

    passes = captured(model, run, method).passes
    assert failed == []
    assert len(passes) == 2
    for done in passes:
        assert_outputs(done, outputs)
        assert_parameters(done, weights)
