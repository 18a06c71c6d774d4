"""Models that are compiled, scripted, traced or transformed, other people's hooks, and the modes autograd can be in."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap
from torch.nn import functional
from truth import (
    Trace,
    assert_outputs,
    assert_parameters,
    attached,
    batch,
    captured,
    each_method,
    parameter_gradients,
    readings,
    seeded,
    small,
    statuses,
)

from gradlab import CaptureError, CaptureWarning, capture_gradients

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [
    # torch.compile looks at .grad of every tensor that crosses a break in its graph, which any hook makes.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:`torch.jit"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script"),
]

X = batch(5, 3)


def truth(model, x=X):
    trace = Trace()
    h = trace.note("1", torch.tanh(trace.linear("0", model[0], x)))
    loss = trace.linear("2", model[2], h).square().sum()
    return trace.gradients(loss), parameter_gradients(model, loss)


def step(model, x=X):
    model(x).square().sum().backward()


@pytest.fixture
def compiled():
    torch._dynamo.reset()
    model = small()
    yield model, torch.compile(model, backend="eager")
    torch._dynamo.reset()


@each_method
def test_a_model_compiled_but_not_yet_run_is_measured_right(compiled, method):
    model, fast = compiled
    outputs, weights = truth(model)
    with capture_gradients(model, method, keep_gradients=True) as capture:
        step(fast)
    assert_outputs(capture.passes[0], outputs, method)
    assert_parameters(capture.passes[0], weights)
    model.zero_grad()
    step(fast)
    assert len(capture.passes) == 1


def test_a_compiled_wrapper_is_measured_under_its_own_names(compiled):
    model, fast = compiled
    with capture_gradients(fast, keep_gradients=True) as capture:
        step(fast)
    outputs, weights = truth(model)
    assert_outputs(capture.passes[0], {(f"_orig_mod.{layer}", *rest): g for (layer, *rest), g in outputs.items()})
    assert_parameters(capture.passes[0], {f"_orig_mod.{name}": g for name, g in weights.items()})


def test_layers_that_run_compiled_already_are_not_seen_and_it_is_said(compiled):
    model, fast = compiled
    step(fast)
    model.zero_grad()
    _, weights = truth(model)
    with pytest.warns(CaptureWarning, match="compiled"), capture_gradients(model, keep_gradients=True) as capture:
        step(fast)
    found = {layer: status for (layer, _, _), status in statuses(capture.passes[0]).items()}
    # Either the hooks ran after all, or nothing is claimed about the outputs.
    assert set(found.values()) in ({"never_called"}, {"ok"})
    assert_parameters(capture.passes[0], weights)


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, X)], ids=["scripted", "traced"])
@pytest.mark.parametrize("layers", [None, "all"])
def test_a_scripted_model_gives_what_can_be_seen_or_says_what_cannot(make, layers):
    model = small()
    outputs, weights = truth(model)
    fast = make(model)
    before = attached(fast)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CaptureWarning)
            with capture_gradients(fast, layers=layers, keep_gradients=True) as capture:
                step(fast)
    except CaptureError as error:
        said = str(error)
        assert "script" in said
    else:
        assert_parameters(capture.passes[0], weights)
        for key, record in readings(capture.passes[0]).items():
            if record.gradient is not None:
                torch.testing.assert_close(record.gradient, outputs["2" if key[0] == "" else key[0], 0, "0"])
    assert attached(fast) == before


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, X)], ids=["scripted", "traced"])
def test_a_scripted_part_of_a_model_is_one_layer_of_it(make):
    inner = small()
    model = nn.ModuleDict({"part": make(inner), "head": seeded(lambda: nn.Linear(1, 2))})
    y = inner(X)
    z = functional.linear(y, model["head"].weight, model["head"].bias)
    at_y, at_z = torch.autograd.grad(z.square().sum(), [y, z])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        with capture_gradients(model, layers=["part", "head"], keep_gradients=True) as capture:
            model["head"](model["part"](X)).square().sum().backward()
    found = readings(capture.passes[0])
    torch.testing.assert_close(found["part", 0, "0"].gradient, at_y)
    torch.testing.assert_close(found["head", 0, "0"].gradient, at_z)


def test_tracing_a_watched_model_gives_the_same_trace():
    model = small()
    with capture_gradients(model):
        traced = torch.jit.trace(model, X)
        step(model)
    assert torch.equal(traced(X), model(X))


# --- function transforms: the answer must be right, and the capture may measure it, or say that it cannot -------------------


def by_transform(model):
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    rows = torch.eye(5, dtype=torch.float64).reshape(5, 5, 1)
    x = X.clone().requires_grad_()
    return {
        "grad": lambda: grad(lambda w: functional_call(model, w, (X,)).square().sum())(weights)["0.weight"],
        "per sample": lambda: vmap(grad(lambda w, x: functional_call(model, w, (x,)).sum()), (None, 0))(weights, X)["0.weight"],
        "vmap": lambda: vmap(model)(X),
        "jacrev": lambda: jacrev(model)(X),
        "jvp": lambda: jvp(model, (X,), (X,))[1],
        "batched": lambda: torch.autograd.grad(model(x), x, rows, is_grads_batched=True)[0],
        "vectorised jacobian": lambda: torch.autograd.functional.jacobian(model, X, vectorize=True),
    }  # fmt: skip


@each_method
@pytest.mark.parametrize("transform", list(by_transform(small())))
def test_a_function_transform_gives_the_same_answer_while_watched(transform, method):
    model = small()
    wanted = by_transform(model)[transform]()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CaptureWarning)
            with capture_gradients(model, method, keep_gradients=True) as capture:
                found = by_transform(model)[transform]()
                step(model)
    except CaptureError:
        return
    assert torch.equal(found, wanted)
    outputs, weights = truth(model)
    done = capture.passes[-1]
    assert_parameters(done, weights)
    last = {layer: max(call for name, call, _ in readings(done) if name == layer) for layer in "012"}
    assert_outputs(done, {(layer, last[layer], "0"): outputs[layer, 0, "0"] for layer in "012"}, method)
    assert attached(model) == []


@each_method
def test_a_forward_under_vmap_is_not_called_untracked(method):
    model = small()
    done = captured(model, lambda m: vmap(m)(X).square().sum().backward(), method)
    if done is not None:
        assert_parameters(done.passes[0], truth(model)[1])
        assert set(statuses(done.passes[0]).values()) <= {"ok", "unsupported"}


@pytest.mark.parametrize("method", ["tensor_hooks", "retain_grad"])
def test_a_block_with_nothing_but_a_transform_says_that_it_is_the_reason(method):
    model = small()
    weights, _ = stack_module_state([small(), small()])
    with pytest.warns(CaptureWarning, match=r"torch.func transform.*run the model itself"), capture_gradients(model, method):
        vmap(lambda own: functional_call(model, own, (X,)))(weights).square().sum().backward()


@each_method
@pytest.mark.parametrize("linearize", [True, False])
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
def test_forward_mode_is_no_obstacle_or_refused(linearize, method):
    model, forward_mode = small(), torch.autograd.forward_ad

    def run(model):
        if linearize:
            torch.func.linearize(model, X)
            return model(X).square().sum().backward()
        with forward_mode.dual_level():
            result, _ = forward_mode.unpack_dual(model(forward_mode.make_dual(X, X)))
            return result.square().sum().backward()

    done = captured(model, run, method)
    assert not attached(model)
    assert (done is None) == (method == "full_backward_hooks")
    if done is not None:
        outputs, weights = truth(model)
        assert_parameters(done.passes[0], weights)
        if not linearize:
            assert_outputs(done.passes[0], outputs, method)


# --- other people's hooks ------------------------------------------------------------------------------------------------


def test_another_thread_may_load_the_compiler_in_the_middle_of_a_capture():
    code = """
import sys, threading, torch, gradlab
sys.setswitchinterval(1e-4)
loaded, failed = threading.Event(), []

def measure():
    while not loaded.is_set():
        try:
            gradlab.run_experiment(gradlab.ExperimentSpec())
        except Exception as error:
            failed.append(repr(error))

threads = [threading.Thread(target=measure) for _ in range(2)]
for thread in threads:
    thread.start()
assert "torch._dynamo" not in sys.modules
import torch._dynamo
loaded.set()
for thread in threads:
    thread.join()
print(failed[:1])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
