"""One experiment over many seeds at once: what a single seed cannot show is how far the next one would have differed."""

from gradlab.ensemble.readings import Readings
from gradlab.ensemble.result import Ensemble
from gradlab.ensemble.run import MAX_READINGS, run_ensemble

__all__ = ["MAX_READINGS", "Ensemble", "Readings", "run_ensemble"]
