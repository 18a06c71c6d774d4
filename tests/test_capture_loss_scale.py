"""Losses that are multiplied for half precision: readings are those of the loss before it was."""

import pytest
import torch
from torch import nn
from truth import Trace, assert_outputs, assert_parameters, batch, captured, each_method, parameter_gradients, seeded, small

from gradlab import capture_gradients


class Scale(nn.Module):
    """Multiplies by its weight: the gradient of the output is what the test sends back, that of the weight is times x."""

    def __init__(self, dtype=torch.float32, size=3):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, dtype=dtype))

    def forward(self, x):
        return x * self.weight


@each_method
@pytest.mark.parametrize("scale", [65536.0, 3, torch.tensor(1024.0), lambda: 512.0, lambda: torch.tensor(8.0)])
def test_readings_are_those_of_the_unscaled_loss(method, scale):
    model, x = small(), batch(4, 3)
    factor = float(scale() if callable(scale) else scale)
    trace, y = Trace(), None
    y = trace.linear("2", model[2], trace.note("1", torch.tanh(trace.linear("0", model[0], x))))
    capture = captured(model, lambda m: (factor * m(x).square().sum()).backward(), method, loss_scale=scale)
    assert_outputs(capture.passes[0], trace.gradients(y.square().sum()))
    assert_parameters(capture.passes[0], parameter_gradients(model, y.square().sum()))


def test_a_loss_scale_that_changes_is_asked_for_in_every_pass():
    model, x, scale = seeded(lambda: nn.Linear(3, 1)), batch(1, 3), [2.0]
    with capture_gradients(model, loss_scale=lambda: scale[0], keep_gradients=True) as capture:
        for scale[0] in (2.0, 65536.0, 0.5):
            (scale[0] * 3 * model(x)).sum().backward()
    assert [done.outputs[0].gradient.item() for done in capture.passes] == [3, 3, 3]
    assert [done.outputs[0].statistics.norm for done in capture.passes] == [3, 3, 3]


def test_pytorchs_own_scaler_is_taken_into_account():
    model, x, found = seeded(lambda: nn.Linear(3, 1)), batch(1, 3), []
    optimizer, scaler = (
        torch.optim.SGD(model.parameters(), lr=0.0),
        torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=1),
    )
    with capture_gradients(model, loss_scale=scaler.get_scale, keep_gradients=True) as capture:
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(3 * model(x).sum()).backward()
            found.append(model.bias.grad.item())
            scaler.step(optimizer)
            scaler.update()
    assert found == [3072, 6144, 12288]
    assert [done.outputs[0].gradient.item() for done in capture.passes] == [3, 3, 3]
    assert [done.parameters[1].gradient.item() for done in capture.passes] == [3, 3, 3]


def test_an_overflow_of_the_scaled_loss_is_not_finite():
    model, x = seeded(lambda: nn.Linear(3, 1)).float(), batch(1, 3).float()
    (done,) = captured(model, lambda m: (1e38 * (1e5 * m(x)).sum()).backward(), loss_scale=1e38).passes
    assert done.outputs[0].status == "non_finite"


def test_scaling_the_loss_saves_half_precision_gradients_that_would_be_zero():
    x = torch.full((4,), 1e-3, dtype=torch.float16)  # the weight's gradient is 1e-8: below the smallest half of 6e-8
    (plain,) = captured(Scale(torch.float16, 4), lambda m: (m(x) * 1e-5).sum().backward()).passes
    (scaled,) = captured(Scale(torch.float16, 4), lambda m: ((m(x) * 1e-5).sum() * 4096).backward(), loss_scale=4096).passes
    assert plain.parameters[0].status == "all_zero"
    assert scaled.parameters[0].statistics.mean_abs == pytest.approx(1e-8, rel=0.02)
    assert scaled.parameters[0].gradient.mean().item() == pytest.approx(1e-8, rel=0.02)
