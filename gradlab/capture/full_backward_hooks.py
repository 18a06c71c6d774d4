"""Method `full_backward_hooks`: `register_full_backward_hook` on every layer.

PyTorch wraps the inputs and outputs of such a layer in views of its own. That is why changes in place fail
(https://github.com/pytorch/pytorch/issues/61519), why a layer may return only a tensor or a flat tuple of tensors
(https://github.com/pytorch/pytorch/issues/87540), and why `is` between inputs comes out differently
(https://github.com/pytorch/pytorch/issues/61446), which is warned of where it shows. So the model itself may compute something
else: it may go by what is the same tensor, by attributes set on one, or by an error that it catches. Only the other methods
leave loss and gradients as they are to the last bit.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules._functions import BackwardHookFunction

from gradlab.capture import engine
from gradlab.capture.passes import Pass
from gradlab.capture.recorder import Recorder
from gradlab.capture.structures import tensors_in
from gradlab.capture.watched import Inert, Layer, MarkedOutput, Output
from gradlab.capture.wrapping import AfterWrapping, BeforeWrapping
from gradlab.errors import CaptureError

WHICH_CALL = "the layer ran several times and a full backward hook does not say which call it reports; use tensor_hooks"
NOT_FIRED = "a gradient passed, but the full backward hook did not fire; use tensor_hooks"
NOT_THE_OUTPUT = (
    "the full backward hook reports another gradient than that of what the layer's forward returned: another hook replaces"
    " the output, the layer returns its own input, or the gradient is differentiated again; use tensor_hooks"
)
NOT_COMPARED = "whether the hook reports the gradient of what the layer's forward returned cannot be told; use tensor_hooks"

UNTRACED = "Modules that have backward hooks assigned can't be compiled"
"""How PyTorch refuses to trace a module with such hooks."""

NO_ZERO = (
    "all its entries are zero, and they may stand for no gradient at all: a layer returns several tensors of which the loss"
    " does not use all, and full backward hooks have the parts without a gradient differentiated, too; use tensor_hooks"
)

WRAPPING = BackwardHookFunction.__name__
CHANGED = re.compile(
    r"Output \d+ of (?P<maker>\w+) is a view and (is being|its base or another view of its base has been) modified inplace\."
    r" This view (was created inside a custom Function|is the output of a function that returns (?P<several>multiple views))"
    r"|Can't detach views in-place"
)
"""How PyTorch refuses to change in place what it has wrapped, and other views that a function has made."""

SPLITTING = frozenset({"Split", "SplitWithSizes", "Unbind"})
"""PyTorch's own functions that return several views: to change one in place is an error with and without a capture."""


class FullBackwardHooks:
    """The hook reports a layer, not a call: a tensor hook on the raw output marks the call that has been passed."""

    output_type: type[Output] = MarkedOutput
    view_type: type[Output] = MarkedOutput

    def __init__(self, recorder: Recorder, modules: dict[str, nn.Module]) -> None:
        self._recorder = recorder
        self._latest: str | None = None
        self._several = False
        """Whether a layer has returned several tensors, which PyTorch wraps as one function's views."""
        self._given: dict[Layer, tuple[object, ...]] = {}
        self._originals: dict[int, Tensor] = {}
        self._restore: list[Any] = []
        self._wrapped_anyway = any(module._backward_hooks or module._backward_pre_hooks for module in modules.values())
        """Whether the model has hooks of its own for which PyTorch wraps outputs."""
        self._returned_input: set[Output] = set()
        _FOR_US.ignore()
        try:
            for layer, module in zip(recorder.layers, modules.values(), strict=True):
                self._attach(layer, module)
        except BaseException:
            self.close()
            raise

    def _attach(self, layer: Layer, module: nn.Module) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            raise CaptureError(
                f"layer {layer.name!r} is scripted or traced and takes no backward hook: use method='tensor_hooks'"
            )
        kind = module._is_full_backward_hook
        try:
            report = module.register_full_backward_hook(_Report(self._recorder, layer))
        except RuntimeError as error:
            raise CaptureError(
                f"layer {layer.name!r} has a backward hook of the old kind, beside which PyTorch allows no full one: use"
                " method='tensor_hooks'"
            ) from error
        before = module.register_forward_pre_hook(BeforeWrapping(layer, self._given), with_kwargs=True)
        after = module.register_forward_hook(AfterWrapping(layer, self._given, self._originals))
        self._restore.append((module, kind, (report, before, after)))

    def check(self, layer: Layer, returned: object) -> None:
        """Raise CaptureError where PyTorch would report nothing, or something else, and say nothing."""
        parts = returned if isinstance(returned, tuple) and (type(returned) is tuple or hasattr(returned, "_fields")) else ()
        wrapped = [id(part) for part in parts if isinstance(part, Tensor)]
        self._several |= len(wrapped) > 1
        if any(tensor.requires_grad and id(tensor) not in wrapped for _, tensor in tensors_in(returned)):
            raise CaptureError(
                f"layer {layer.name!r} returns a {type(returned).__name__} with tensors inside it; full backward hooks see"
                " only a tensor or a flat tuple of tensors: use method='tensor_hooks'"
            )
        if len(set(wrapped)) < len(wrapped):
            raise CaptureError(
                f"layer {layer.name!r} returns one tensor in two places, which full backward hooks would make two: use"
                " method='tensor_hooks'"
            )

    def watch(self, output: Output, tensor: Tensor) -> None:
        self._latest = output.layer.name
        # A layer that returns its input returns PyTorch's wrapping of it, which sees only what goes on from here.
        original = self._originals.get(id(tensor), tensor)
        if original is not tensor:
            self._returned_input.add(output)
        output.attach(original if original.requires_grad else tensor)

    def marked(self, output: Output, gradient: Tensor) -> None:
        raw = self._recorder.running_pass().raw
        raw[output] = gradient if engine.is_wrapped(gradient) else gradient.detach().clone()

    def collect(self, finished: Pass) -> None:
        calls = {(output.layer.place, output.round.number, output.call) for output in finished.marked}
        for output in finished.marked:
            reports = [gradients for layer, gradients in finished.reports if layer is output.layer]
            if sum(place == output.layer.place for place, _, _ in calls) > 1:
                finished.withheld[output] = WHICH_CALL
            elif len(reports) != 1 or (gradient := reports[0][int(output.path)]) is None:
                finished.withheld[output] = NOT_FIRED
            elif engine.is_foreign(gradient):
                finished.withheld[output] = f"it is a {type(gradient).__name__}: {NOT_COMPARED}"
            elif not _same(gradient, finished.raw[output]):
                finished.withheld[output] = NOT_THE_OUTPUT
            else:
                finished.add(output, gradient)
                continue
            if output in self._returned_input and finished.withheld[output] != WHICH_CALL:
                self._recorder.warn_once(
                    f"input of {output.layer.name}",
                    f"layer {output.layer.name!r} returns its input, and the loss goes past what it returns; full backward"
                    " hooks make them two tensors: where the model asks whether they are one, as with `is`, it computes"
                    " another loss; use method='tensor_hooks'",
                )
        if any(self._passes_nothing_on(finished, layer, gradients) for layer, gradients in finished.reports):
            finished.no_zero = NO_ZERO
        finished.reports.clear()
        finished.raw.clear()
        for notes in (self._given, self._originals, self._returned_input):
            notes.clear()

    @staticmethod
    def _passes_nothing_on(finished: Pass, layer: Layer, gradients: tuple[Tensor | None, ...]) -> bool:
        """Whether a part of what the layer returned has no gradient, and another has."""
        missing = {str(place) for place, gradient in enumerate(gradients) if gradient is None}
        if not missing:
            return False
        rounds = {output.round for output in finished.marked if output.layer is layer}
        return any(o.layer is layer and o.tracked and o.path in missing for each in rounds for o in each.outputs)

    def explain(self, error: BaseException) -> CaptureError | None:
        """What to raise for an error in the user's forward that the wrapping of outputs has caused, or may have."""
        if type(error) is ValueError and str(error).startswith(UNTRACED):
            return CaptureError(
                "torch.jit.trace and torch.jit.script take no module with full backward hooks: do so before or after the with"
                " block, or use method='tensor_hooks'"
            )
        changed = CHANGED.match(str(error)) if type(error) is RuntimeError else None  # autograd raises no subclass
        if changed is None:
            return None
        maker = changed["maker"] or ""
        if maker == WRAPPING and not self._wrapped_anyway:
            what = (
                "what the first layer is given"
                if self._latest is None
                else f"the output of layer {self._latest!r}, or of one before it,"
            )
            return CaptureError(f"{what} is changed in place; full backward hooks do not allow that: use method='tensor_hooks'")
        if self._latest is None or (changed["several"] and not self._several):  # no view of what a layer has returned
            return None
        if maker in SPLITTING:
            return None
        if any(kind.__name__ == maker for kind in _subclasses(torch.autograd.Function) if kind is not BackwardHookFunction):
            error.add_note(
                "gradlab: if this does not happen without a capture, it comes from full backward hooks, which make the outputs"
                " of layers views: use method='tensor_hooks'"
            )
            return None
        return CaptureError(
            f"a view is changed or detached in place; the output of layer {self._latest!r}, and of those before it, is one"
            " under full backward hooks: use method='tensor_hooks' (if that fails too, it is the model's own error, given"
            " above)"
        )

    def close(self) -> None:
        for module, kind, handles in self._restore:
            for handle in handles:
                handle.remove()
            if not module._backward_hooks:
                module._is_full_backward_hook = kind
        self._restore.clear()
        self._given.clear()
        self._originals.clear()
        self._returned_input.clear()
        _FOR_US.restore()


def _same(reported: Tensor, raw: Tensor) -> bool:
    if engine.is_wrapped(reported):
        return True
    return reported.shape == raw.shape and torch.equal(reported.nan_to_num(), raw.nan_to_num())


class _Report(Inert):
    """The full backward hook of one layer."""

    def __init__(self, recorder: Recorder, layer: Layer) -> None:
        self._recorder = recorder
        self._layer = layer

    def __call__(self, module: nn.Module, grad_input: object, grad_output: tuple[Tensor | None, ...]) -> None:
        batched = any(gradient is not None and engine.is_wrapped(gradient) for gradient in grad_output)
        gradients = tuple(g if g is None or batched else g.detach().clone() for g in grad_output)
        if not self._recorder.closed:  # a graph that outlives the capture goes on calling it
            self._recorder.running_pass().reports.append((self._layer, gradients))


def _subclasses(kind: Any) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


class _IgnoredWarnings:
    """Warnings that PyTorch gives on our account, ignored while a capture of this kind is open.

    A layer whose input needs no gradient (the first one, always) makes it warn in every backward that `grad_input` is not
    what it seems, though only `grad_output` is read; a layer that returns no tensor makes it warn in every forward.
    """

    def __init__(self, *messages: str) -> None:
        self._filters = [("ignore", re.compile(message), UserWarning, None, 0) for message in messages]
        self._lock = threading.Lock()
        self._open = 0

    def ignore(self) -> None:
        with self._lock:
            self._open += 1
            if self._open == 1:
                warnings.filters[:0] = self._filters  # type: ignore[index]

    def restore(self) -> None:
        with self._lock:
            self._open -= 1
            if not self._open:
                for entry in self._filters:
                    if entry in warnings.filters:
                        warnings.filters.remove(entry)  # type: ignore[attr-defined]


_FOR_US = _IgnoredWarnings("Full backward hook is firing when gradients are computed", "For backward hooks to be called")
