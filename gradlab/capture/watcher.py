"""What the capture methods have in common."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from gradlab.capture.passes import Pass
from gradlab.capture.watched import Layer, Output
from gradlab.errors import CaptureError


class Watcher(Protocol):
    """What a capture method does; one class each, in the module of the method's name."""

    output_type: type[Output]
    """The tensor hook to put on outputs."""

    view_type: type[Output]
    """The one to put on outputs that are views."""

    def check(self, layer: Layer, returned: object) -> None:
        """Raise CaptureError where the method cannot measure what the layer returned, other than a lone tensor."""

    def watch(self, output: Output, tensor: Tensor) -> None:
        """Arrange that the gradient of the tensor will be known."""

    def marked(self, output: Output, gradient: Tensor) -> None:
        """Take note that a gradient is passing the output of a `MarkedOutput`, before anything else is done with it."""

    def collect(self, finished: Pass) -> None:
        """Add to the pass what did not arrive by itself, and say what is withheld."""

    def explain(self, error: BaseException) -> CaptureError | None:
        """The error to raise instead of one that the method itself has caused in the user's code."""

    def close(self) -> None:
        """Remove everything the method has attached, beyond the hooks that outputs hold."""
