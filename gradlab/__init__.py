"""See gradients in deep networks: capture, measure, judge and show them."""

from gradlab import presets
from gradlab.capture import BackwardPass, OutputGradient, ParameterGradient, Status, capture_gradients
from gradlab.cut_offs import CutOffs
from gradlab.diagnosis import Diagnosis, Verdict, diagnose
from gradlab.errors import CaptureError, CaptureWarning, GradlabError, SpecError
from gradlab.experiment import ExperimentResult, run_experiment
from gradlab.export import read_csv, to_csv
from gradlab.history import GradientHistory, watch
from gradlab.networks import DeepNetwork, build_network
from gradlab.spec import BatchSpec, ExperimentSpec, NetworkSpec
from gradlab.statistics import GradientStatistics

__all__ = [
    "BackwardPass",
    "BatchSpec",
    "CaptureError",
    "CaptureWarning",
    "CutOffs",
    "DeepNetwork",
    "Diagnosis",
    "ExperimentResult",
    "ExperimentSpec",
    "GradientHistory",
    "GradientStatistics",
    "GradlabError",
    "NetworkSpec",
    "OutputGradient",
    "ParameterGradient",
    "SpecError",
    "Status",
    "Verdict",
    "build_network",
    "capture_gradients",
    "diagnose",
    "presets",
    "read_csv",
    "run_experiment",
    "to_csv",
    "watch",
]
