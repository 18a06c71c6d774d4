"""Method `retain_grad`: keep each output and read its `.grad` after backward.

`.grad` belongs to the tensor, not to the layer: once the tensor is changed in place, PyTorch stores the gradient of what
it has become (https://github.com/pytorch/pytorch/pull/117552). Such a number is withheld. A tensor hook only marks that,
and in which order, a gradient passed.

Every output is kept until its backward is over and the next forward begins. PyTorch cannot be told to retain no longer: an
output that outlives the block goes on filling its `.grad`.
"""

from __future__ import annotations

import threading

from torch import Tensor, nn

from gradlab.capture.passes import Pass, Round
from gradlab.capture.recorder import Recorder
from gradlab.capture.views import MarkedView
from gradlab.capture.watched import Layer, MarkedOutput, Output
from gradlab.errors import CaptureError

LEAF = "retain_grad() does nothing on a leaf tensor, whose .grad adds up over backward calls; use tensor_hooks"
CHANGED = "it was changed in place after the layer returned it, so .grad is the gradient of what it became; use tensor_hooks"
RELEASED = "the tensor was let go when the next forward began; use tensor_hooks"


class _Retained:
    """A tensor whose `.grad` will be read, and what it held before the pass at hand."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.thread = threading.get_ident()
        self.before: Tensor | None = None
        self.running: Pass | None = None


class RetainGrad:
    output_type: type[Output] = MarkedOutput
    view_type: type[Output] = MarkedView

    def __init__(self, recorder: Recorder, modules: dict[str, nn.Module]) -> None:
        self._recorder = recorder
        self._rounds: dict[int, Round] = {}
        """The round that each thread's forward calls last belonged to."""
        self._retained: dict[int, _Retained] = {}
        self._of: dict[Output, tuple[_Retained, int]] = {}

    def check(self, layer: Layer, returned: object) -> None:
        pass

    def watch(self, output: Output, tensor: Tensor) -> None:
        if self._rounds.get(here := threading.get_ident()) is not output.round and self._recorder.round is output.round:
            self._let_go(here, output.round)
        if tensor.is_leaf:
            output.note = LEAF
            return
        tensor.retain_grad()
        self._of[output] = self._retained.setdefault(id(tensor), _Retained(tensor)), tensor._version
        output.attach(tensor)

    def _let_go(self, here: int, begun: Round) -> None:
        """Drop what earlier rounds of this thread, and threads that have ended, have retained.

        Not while another thread differentiates: the engine looks at such a tensor without holding the interpreter, and the
        process dies if that is the moment in which the last reference goes.
        """
        alive: set[int | None] = set()
        if len(self._rounds) > 1 or self._recorder.differentiates:
            alive = {thread.ident for thread in threading.enumerate()} - {here}
            if self._recorder.differentiates_in(alive):
                return
        self._rounds[here] = begun
        for output, (retained, _) in list(self._of.items()):
            if retained.thread not in alive:
                self._of.pop(output, None)
        for place, retained in list(self._retained.items()):
            if retained.thread not in alive:
                self._retained.pop(place, None)

    def marked(self, output: Output, gradient: Tensor) -> None:
        # PyTorch adds to .grad after all hooks have run: what it holds now is from passes before, or from one that failed.
        if (known := self._of.get(output)) is not None:  # or another thread's forward has let it go
            retained, running = known[0], self._recorder.running_pass()
            if retained.running is not running:
                retained.running = running
                retained.before, retained.tensor.grad = retained.tensor.grad, None

    def collect(self, finished: Pass) -> None:
        for output in finished.marked:
            retained, version = self._of.get(output, (None, 0))
            if retained is None:
                finished.withheld[output] = RELEASED
            elif retained.tensor._version != version:
                finished.withheld[output] = CHANGED
            elif retained.tensor.grad is not None:
                finished.add(output, retained.tensor.grad)
        for retained in list(self._retained.values()):
            if retained.running is finished and retained.before is not None:
                # Whoever else retains this gradient finds the sum that PyTorch would have made.
                now = retained.tensor.grad
                retained.tensor.grad = retained.before if now is None else retained.before + now
            retained.before = retained.running = None

    def explain(self, error: BaseException) -> CaptureError | None:
        return None

    def close(self) -> None:
        self._of.clear()
        self._retained.clear()
        self._rounds.clear()
