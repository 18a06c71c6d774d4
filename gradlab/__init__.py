"""See gradients in deep networks: capture, measure, judge and show them."""

from gradlab import presets
from gradlab.capture import BackwardPass, OutputGradient, ParameterGradient, Status, capture_gradients
from gradlab.comparison import Comparison, compare
from gradlab.cut_offs import CutOffs
from gradlab.diagnosis import Diagnosis, Verdict, diagnose
from gradlab.ensemble import Ensemble, run_ensemble
from gradlab.errors import CaptureError, CaptureWarning, GradlabError, SpecError
from gradlab.experiment import ExperimentResult, run_experiment
from gradlab.export import read_csv, to_csv
from gradlab.fingerprint import fingerprint
from gradlab.flags import Flag
from gradlab.history import GradientHistory, watch
from gradlab.networks import DeepNetwork, build_network
from gradlab.script import to_script
from gradlab.spec import BatchSpec, ExperimentSpec, NetworkSpec
from gradlab.statistics import GradientStatistics
from gradlab.theory import FactorPrediction, predict_factor

__all__ = [
    "BackwardPass",
    "BatchSpec",
    "CaptureError",
    "CaptureWarning",
    "Comparison",
    "CutOffs",
    "DeepNetwork",
    "Diagnosis",
    "Ensemble",
    "ExperimentResult",
    "ExperimentSpec",
    "FactorPrediction",
    "Flag",
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
    "compare",
    "diagnose",
    "fingerprint",
    "predict_factor",
    "presets",
    "read_csv",
    "run_ensemble",
    "run_experiment",
    "to_csv",
    "to_script",
    "watch",
]
