"""Method `retain_grad`: keep each output and read its `.grad` after backward.

`.grad` belongs to the tensor, not to the layer: once the tensor is changed in place, PyTorch stores the gradient of what
it has become (https://github.com/pytorch/pytorch/pull/117552). Such a number is withheld. A tensor hook only marks that,
and in which order, a gradient passed.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

from gradlab.capture.recorder import Recorder
from gradlab.capture.watched import Layer, Output, Pass, Round
from gradlab.errors import CaptureError

LEAF = "retain_grad() does nothing on a leaf tensor, whose .grad adds up over backward calls; use tensor_hooks"
RETAINED = "the model itself called retain_grad() on it, so .grad may hold earlier gradients; use tensor_hooks"
CHANGED = "it was changed in place after the layer returned it, so .grad is the gradient of what it became; use tensor_hooks"
RELEASED = "the tensor was let go when the next forward began; use tensor_hooks"


class _Held(NamedTuple):
    tensor: Tensor
    version: int


class RetainGrad:
    def __init__(self, recorder: Recorder, modules: dict[str, nn.Module]) -> None:
        self._recorder = recorder
        self._held: dict[Output, _Held] = {}
        self._round: Round | None = None
        self._marked: list[Output] = []

    def check(self, layer: Layer, returned: object) -> None:
        pass

    def watch(self, output: Output, tensor: Tensor) -> None:
        if output.round is not self._round and self._recorder.round is output.round:
            self._held.clear()
            self._round = output.round
        if tensor.is_leaf:
            output.note = LEAF
            return
        first = next((held for held in self._held.values() if held.tensor is tensor), None)
        if tensor.retains_grad and first is None:
            output.note = RETAINED
            return
        tensor.retain_grad()
        self._held[output] = _Held(tensor, tensor._version)
        output.attach(tensor, partial(self._mark, output))

    def _mark(self, output: Output, gradient: Tensor | None) -> None:
        if gradient is not None:
            self._recorder.running_pass()
            self._marked.append(output)

    def collect(self, finished: Pass) -> None:
        marked, self._marked = self._marked, []
        for output in marked:
            held = self._held.get(output)
            if held is None or held.tensor.grad is None:
                finished.withheld[output] = RELEASED
            elif held.tensor._version != held.version:
                finished.withheld[output] = CHANGED
            else:
                finished.add(output, held.tensor.grad)
        for held in self._held.values():
            held.tensor.grad = None

    def explain(self, error: BaseException) -> CaptureError | None:
        return None

    def close(self) -> None:
        self._held.clear()
