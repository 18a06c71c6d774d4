"""Capture the gradient at every layer's output, and of every parameter, of any `nn.Module`."""

from gradlab.capture.capture import CAPTURE_METHODS, GradientCapture, capture_gradients
from gradlab.capture.records import STATUS_HELP, BackwardPass, OutputGradient, ParameterGradient, Status

__all__ = [
    "CAPTURE_METHODS",
    "STATUS_HELP",
    "BackwardPass",
    "GradientCapture",
    "OutputGradient",
    "ParameterGradient",
    "Status",
    "capture_gradients",
]
