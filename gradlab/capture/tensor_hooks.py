"""Method `tensor_hooks`: a forward hook attaches a tensor hook to every output.

The hook stands on the output as the layer returned it. A change in place afterwards gives the tensor a new place in the
graph and leaves the hook where it is, so the number stays that of the layer's own output. A view loses its place when it
or its base is changed: then the hook on the base has the number, or it is withheld.
"""

from __future__ import annotations

from torch import Tensor, nn

from gradlab.capture.passes import Pass
from gradlab.capture.recorder import Recorder
from gradlab.capture.views import ViewOutput
from gradlab.capture.watched import Layer, Output, SharedReading
from gradlab.errors import CaptureError


class TensorHooks:
    output_type: type[Output] = Output
    view_type: type[Output] = ViewOutput

    def __init__(self, recorder: Recorder, modules: dict[str, nn.Module]) -> None:
        pass

    def check(self, layer: Layer, returned: object) -> None:
        pass

    watch = staticmethod(SharedReading.attach)

    def marked(self, output: Output, gradient: Tensor) -> None:
        pass

    def collect(self, finished: Pass) -> None:
        """Everything has arrived by itself."""

    def explain(self, error: BaseException) -> CaptureError | None:
        return None

    def close(self) -> None:
        pass
