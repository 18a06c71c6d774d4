"""Live demonstrations of common mistakes: the mistaken reading and the right one, both measured when they are asked for."""

from gradlab.lessons.demonstrations.base import Demonstration, Reading, demonstrate, too_large

__all__ = ["Demonstration", "Reading", "demonstrate", "too_large"]
