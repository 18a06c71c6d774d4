"""Method `full_backward_hooks`: `register_full_backward_hook` on every layer.

PyTorch wraps the inputs and outputs of such a layer in views of its own. That is why changes in place fail
(https://github.com/pytorch/pytorch/issues/61519), why a layer may return only a tensor or a flat tuple of tensors
(https://github.com/pytorch/pytorch/issues/87540), and why `is` between inputs comes out differently
(https://github.com/pytorch/pytorch/issues/61446).
"""

from __future__ import annotations

import threading
import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gradlab.capture.layers import tensors_in
from gradlab.capture.recorder import Recorder
from gradlab.capture.watched import Layer, Output, Pass
from gradlab.errors import CaptureError

WHICH_CALL = "the layer ran several times and a full backward hook does not say which call it reports; use tensor_hooks"
NOT_FIRED = "a gradient passed, but the full backward hook did not fire; use tensor_hooks"


class FullBackwardHooks:
    """The hook reports a layer, not a call: a tensor hook on the raw output marks the call that has been passed."""

    def __init__(self, recorder: Recorder, modules: dict[str, nn.Module]) -> None:
        self._recorder = recorder
        self._marked: list[Output] = []
        self._reports: dict[Layer, list[tuple[Tensor | None, ...]]] = {}
        self._latest = ""
        self._handles: list[Any] = []
        for layer, module in zip(recorder.layers, modules.values(), strict=True):
            if isinstance(module, torch.jit.ScriptModule):
                raise CaptureError(f"layer {layer.name!r} is scripted or traced and takes no backward hook: use tensor_hooks")
            self._handles.append(module.register_full_backward_hook(partial(self._report, layer)))
            self._handles.append(module.register_forward_pre_hook(partial(self._compare_inputs, layer)))
        _FIRST_LAYER_WARNING.ignore()

    def check(self, layer: Layer, returned: object) -> None:
        """Raise CaptureError where PyTorch would report nothing and say nothing."""
        wrapped = returned if isinstance(returned, tuple) and (type(returned) is tuple or hasattr(returned, "_fields")) else ()
        seen = {id(part) for part in wrapped}
        if any(tensor.requires_grad and id(tensor) not in seen for _, tensor in tensors_in(returned)):
            raise CaptureError(
                f"layer {layer.name!r} returns a {type(returned).__name__} with tensors inside it; full backward hooks see"
                " only a tensor or a flat tuple of tensors: use method='tensor_hooks'"
            )

    def watch(self, output: Output, tensor: Tensor) -> None:
        self._latest = output.layer.name
        output.attach(tensor, partial(self._mark, output))

    def _compare_inputs(self, layer: Layer, module: nn.Module, inputs: tuple[object, ...]) -> None:
        tracked = [id(tensor) for tensor in inputs if isinstance(tensor, Tensor) and tensor.requires_grad]
        if len(set(tracked)) < len(tracked):
            raise CaptureError(
                f"layer {layer.name!r} is given one tensor in two places; full backward hooks would hand it two different ones,"
                " and a layer that asks whether they are the same would take another path: use method='tensor_hooks'"
            )

    def _mark(self, output: Output, gradient: Tensor | None) -> None:
        if gradient is not None:
            self._recorder.running_pass()
            self._marked.append(output)

    def _report(self, layer: Layer, module: nn.Module, grad_input: object, grad_output: Any) -> None:
        self._recorder.running_pass()
        gradients = tuple(None if gradient is None else gradient.detach().clone() for gradient in grad_output)
        self._reports.setdefault(layer, []).append(gradients)

    def collect(self, finished: Pass) -> None:
        marked, self._marked = self._marked, []
        reports, self._reports = self._reports, {}
        calls = {(output.layer, output.round, output.call) for output in marked}
        for output in marked:
            reported = reports.get(output.layer, [])
            if sum(layer is output.layer for layer, _, _ in calls) > 1:
                finished.withheld[output] = WHICH_CALL
            elif len(reported) != 1 or (gradient := reported[0][int(output.path)]) is None:
                finished.withheld[output] = NOT_FIRED
            else:
                finished.add(output, gradient)

    def explain(self, error: BaseException) -> CaptureError | None:
        """What to raise for an error in the user's forward that the wrapping of outputs has caused."""
        if not any(sign in str(error) for sign in ("BackwardHookFunction", "created inside a custom Function")):
            return None
        return CaptureError(
            f"the output of layer {self._latest!r}, or of one before it, is changed in place; full backward hooks do not allow"
            " that: use method='tensor_hooks'"
        )

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        _FIRST_LAYER_WARNING.restore()


class _IgnoredWarning:
    """A warning PyTorch gives on our account, ignored while any capture of this kind is open.

    A layer whose input needs no gradient (the first one, always) makes PyTorch warn in every backward that `grad_input`
    is not what it seems; only `grad_output` is read here.
    """

    def __init__(self, message: str) -> None:
        self._message = message
        self._lock = threading.Lock()
        self._open = 0

    def ignore(self) -> None:
        with self._lock:
            self._open += 1
            warnings.filterwarnings("ignore", message=self._message, category=UserWarning)
            self._filter = warnings.filters[0]

    def restore(self) -> None:
        with self._lock:
            self._open -= 1
            if not self._open and self._filter in warnings.filters:
                warnings.filters.remove(self._filter)  # type: ignore[attr-defined]
                warnings.simplefilter("default", append=True)
                warnings.filters.pop()  # type: ignore[attr-defined]


_FIRST_LAYER_WARNING = _IgnoredWarning("Full backward hook is firing when gradients are computed")
