"""Tools that look into a model, or run it without values, inside the block: compilers, scripting, fake tensors."""

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from truth import attached, batch, each_method, small

from gradlab import CaptureError, capture_gradients


def message(error):
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


@each_method
def test_an_error_for_a_graph_without_breaks_says_that_the_capture_is_the_reason(method):
    model = small()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported) as caught, capture_gradients(model, method):
        compiled(batch(4, 3))
    assert "gradlab is capturing" in message(caught.value)
    assert "no fullgraph=True in the with block" in message(caught.value)
    assert not attached(model)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@each_method
def test_an_error_of_scripting_says_that_the_capture_is_the_reason(method):
    model = small()
    with (
        pytest.raises(AttributeError, match="script the model before or after the with block"),
        capture_gradients(model, method),
    ):
        torch.jit.script(model)
    torch.jit.script(model)


def test_a_hook_has_no_name_for_those_who_ask_whether_it_has_one():
    model = small()
    with capture_gradients(model) as capture:
        (hook,) = model[0]._forward_hooks.values()
        assert getattr(hook, "__name__", None) is None
        model(batch(4, 3)).sum().backward()
    assert capture.passes


@pytest.mark.parametrize("keep_gradients", [False, True])
@pytest.mark.parametrize("shapes", [None, ShapeEnv])
@each_method
def test_a_backward_over_fake_tensors_goes_through_and_has_no_numbers(method, shapes, keep_gradients):
    with FakeTensorMode(shape_env=shapes and shapes()):
        model = nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 1), nn.Flatten(0))
        with capture_gradients(model, method, keep_gradients=keep_gradients) as capture:
            model(torch.ones(2, 3)).sum().backward()
            model(torch.ones(2, 3)).sum().backward()
        assert model[0].weight.grad is not None
    assert len(capture.passes) == 2
    for record in (*capture.passes[1].outputs, *capture.passes[1].parameters):
        assert record.status == "unsupported"
        assert "FakeTensor" in record.note
        assert record.statistics is None
    assert [record.shape for record in capture.passes[1].outputs] == [(2, 40), (2, 40), (2, 1), (2,)]


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")
def test_full_backward_hooks_say_that_they_are_why_a_model_cannot_be_traced():
    model = small()
    with pytest.raises(CaptureError, match="use method='tensor_hooks'"), capture_gradients(model, "full_backward_hooks"):
        torch.jit.trace(model, batch(2, 3))
