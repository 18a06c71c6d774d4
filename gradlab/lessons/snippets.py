"""The lines of PyTorch that make a measurement by hand: shown as text, run by the tests, never by the app."""

from __future__ import annotations

from dataclasses import dataclass

from gradlab.spec import CaptureMethod


@dataclass(frozen=True, kw_only=True)
class Note:
    """What one line does; `fragment` is a piece of that line, found nowhere else in the code."""

    fragment: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Snippet:
    """Code that runs as it stands in a fresh interpreter, with a note to each line that needs one."""

    title: str
    code: str
    notes: tuple[Note, ...]

    def numbered_notes(self) -> tuple[tuple[int, str], ...]:
        """The notes with the number of their line, counted from 1, in order of the lines."""
        lines = self.code.splitlines()
        numbers = {note: next(i for i, line in enumerate(lines, start=1) if note.fragment in line) for note in self.notes}
        return tuple(sorted((number, note.text) for note, number in numbers.items()))


MEASUREMENT = Snippet(
    title="One number per weight layer",
    code="""\
import torch
from torch import nn

torch.manual_seed(123)
sizes = [3, 3, 3, 3, 3, 1]
layers = [nn.Sequential(nn.Linear(a, b), nn.GELU(approximate="tanh")) for a, b in zip(sizes, sizes[1:])]
model = nn.Sequential(*layers)

output = model(torch.tensor([[1.0, 0.0, -1.0]]))
target = torch.zeros_like(output)
loss = nn.functional.mse_loss(output, target)
loss.backward()

strengths = {}
for name, parameter in model.named_parameters():
    if name.endswith("weight"):
        strengths[name] = parameter.grad.abs().mean().item()

for name, strength in strengths.items():
    print(f"{name:10} {strength:.7e}")
""",
    notes=(
        Note(
            fragment="manual_seed", text="The weights are drawn from this seed. Set it again before you build a second network."
        ),
        Note(fragment="layers = [", text="Each layer is a linear map and its activation."),
        Note(
            fragment="output = model", text="Forward: the sample input goes in, an output comes out. Every .grad is still None."
        ),
        Note(
            fragment="zeros_like", text="The target has the output's shape and is zero: any output other than zero is an error."
        ),
        Note(fragment="mse_loss", text="Loss: one number says how far the output is from the target."),
        Note(fragment="loss.backward()", text="Backward: fills .grad of every weight and bias."),
        Note(fragment="endswith", text="Only weights are kept, biases are left out."),
        Note(fragment="abs().mean()", text="The absolute value is the strength; the mean makes one number of a whole matrix."),
    ),
)

# Lesson B's network with the lab's own numbers: weights from the seed, input and target each from a generator of its own.
_NETWORK = """\
import torch
from torch import nn

torch.manual_seed(123)
fc1, relu, fc2 = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)
x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1052795268))
y = torch.randn(3, 1, generator=torch.Generator().manual_seed(2027506429))
"""
_MODEL = """\
model = nn.Sequential()
for name, layer in {"fc1": fc1, "relu": relu, "fc2": fc2}.items():
    model.add_module(name, layer)
"""
_TABLE = """\

for name, gradient in captured.items():
    print(f"{name:5} {str(tuple(gradient.shape)):7} {gradient.norm():.7e}")
"""
_BATCH_NOTE = Note(fragment="x = torch.randn", text="Three samples and their targets, each drawn from a generator of its own.")

CAPTURES: dict[CaptureMethod, Snippet] = {
    CaptureMethod.TENSOR_HOOKS: Snippet(
        title="Forward hook and tensor hook",
        code=_NETWORK
        + _MODEL
        + """
captured, handles = {}, []

def watch(name):
    def forward_hook(module, inputs, output):
        output.register_hook(lambda gradient: captured.update({name: gradient.clone()}))
    return forward_hook

for name, layer in model.named_children():
    handles.append(layer.register_forward_hook(watch(name)))

nn.functional.mse_loss(model(x), y).backward()

for handle in handles:
    handle.remove()
"""
        + _TABLE,
        notes=(
            _BATCH_NOTE,
            Note(fragment="captured, handles", text="What is captured, and the handles to take the hooks off again."),
            Note(
                fragment="def forward_hook",
                text="Runs when the layer has produced its output. It returns nothing, so the output stays.",
            ),
            Note(
                fragment="output.register_hook", text="Runs when the gradient arrives at this output, and keeps a copy of it."
            ),
            Note(fragment="register_forward_hook", text="One hook for every layer: the pattern scales to any model."),
            Note(fragment=".backward()", text="Forward and backward as usual."),
            Note(fragment="handle.remove()", text="Without this line the next run reports everything twice."),
        ),
    ),
    CaptureMethod.FULL_BACKWARD_HOOKS: Snippet(
        title="Full backward hook",
        code=_NETWORK
        + _MODEL
        + """
x.requires_grad_()
captured, handles = {}, []

def watch(name):
    def backward_hook(module, grad_input, grad_output):
        captured[name] = grad_output[0].clone()
    return backward_hook

for name, layer in model.named_children():
    handles.append(layer.register_full_backward_hook(watch(name)))

nn.functional.mse_loss(model(x), y).backward()

for handle in handles:
    handle.remove()
"""
        + _TABLE,
        notes=(
            _BATCH_NOTE,
            Note(
                fragment="requires_grad_",
                text="Without it the input needs no gradient: grad_input of the first layer is None, and PyTorch warns.",
            ),
            Note(
                fragment="def backward_hook",
                text="grad_input: at the layer's inputs. grad_output: at its outputs. Both are tuples.",
            ),
            Note(
                fragment="grad_output[0]",
                text="The gradient at the only output. A layer with two outputs has two entries here.",
            ),
            Note(
                fragment="register_full_backward_hook",
                text="PyTorch wraps the layer's inputs and outputs: in-place changes then fail.",
            ),
            Note(fragment=".backward()", text="The hooks run in here, the last layer's first."),
            Note(fragment="handle.remove()", text="Takes the hook off again."),
        ),
    ),
    CaptureMethod.RETAIN_GRAD: Snippet(
        title="retain_grad() on one activation",
        code=_NETWORK
        + """
hidden = fc1(x)
hidden.retain_grad()
output = fc2(relu(hidden))
nn.functional.mse_loss(output, y).backward()

captured = {"fc1": hidden.grad}
"""
        + _TABLE,
        notes=(
            _BATCH_NOTE,
            Note(fragment="hidden = fc1(x)", text="Keep the tensor you want to look at."),
            Note(
                fragment="hidden.retain_grad()", text="Before backward. Without it .grad stays None, as this is no leaf tensor."
            ),
            Note(fragment=".backward()", text="Fills hidden.grad too, beside the weights' .grad."),
            Note(fragment="hidden.grad}", text="One tensor, one line. For every layer of a deep model, hooks are shorter."),
        ),
    ),
}
