"""Data frames as pictures, each with alt text made from its data and a line on how to read it."""

from gradlab.charts.against_claim import against_claim
from gradlab.charts.bands import Band, bands
from gradlab.charts.base import CHART_HEIGHT, HUES, Figure, Hue, Rows, rows_of
from gradlab.charts.both_kinds import both_kinds
from gradlab.charts.factors import FactorRow, factor_map, factors
from gradlab.charts.lines import Line, lines, readings
from gradlab.charts.marks import MARK_SHAPES
from gradlab.charts.matrices import Cells, cells, unit_of
from gradlab.charts.movement import movement
from gradlab.charts.outcomes import OutcomeCell, outcomes
from gradlab.charts.prediction import unmeasured, with_prediction
from gradlab.charts.river import NUMBERS_SHOWN, river
from gradlab.charts.two_numbers import TWO_NUMBERS_HEIGHT, no_numbers_yet, two_numbers
from gradlab.charts.verdict_grid import verdict_grid

__all__ = [
    "CHART_HEIGHT",
    "HUES",
    "MARK_SHAPES",
    "NUMBERS_SHOWN",
    "TWO_NUMBERS_HEIGHT",
    "Band",
    "Cells",
    "FactorRow",
    "Figure",
    "Hue",
    "Line",
    "OutcomeCell",
    "Rows",
    "against_claim",
    "bands",
    "both_kinds",
    "cells",
    "factor_map",
    "factors",
    "lines",
    "movement",
    "no_numbers_yet",
    "outcomes",
    "readings",
    "river",
    "rows_of",
    "two_numbers",
    "unit_of",
    "unmeasured",
    "verdict_grid",
    "with_prediction",
]
