"""Data frames as pictures, each with alt text made from its data and a line on how to read it."""

from gradlab.charts.base import CHART_HEIGHT, HUES, Figure, Hue
from gradlab.charts.lines import Line, lines, readings
from gradlab.charts.marks import MARK_SHAPES
from gradlab.charts.matrices import Cells, cells, unit_of
from gradlab.charts.movement import movement
from gradlab.charts.prediction import unmeasured, with_prediction
from gradlab.charts.river import NUMBERS_SHOWN, river
from gradlab.charts.two_numbers import TWO_NUMBERS_HEIGHT, no_numbers_yet, two_numbers

__all__ = [
    "CHART_HEIGHT",
    "HUES",
    "MARK_SHAPES",
    "NUMBERS_SHOWN",
    "TWO_NUMBERS_HEIGHT",
    "Cells",
    "Figure",
    "Hue",
    "Line",
    "cells",
    "lines",
    "movement",
    "no_numbers_yet",
    "readings",
    "river",
    "two_numbers",
    "unit_of",
    "unmeasured",
    "with_prediction",
]
