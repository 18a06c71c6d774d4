"""The tables of all pages: no cell that Streamlit would flag, and a dash where there is no number."""

import json

import pytest
from pandas.api.types import is_numeric_dtype

from gradlab.text import in_words
from gradlab.ui.pages import TITLES

FLAGGED_FROM = 2**53
"""Streamlit's browser side shows whole numbers from here on as faults."""
HUGE = {"layer_sizes": "3-64-64-64-64-1", "gain": "10000.0", "activation": "identity", "loss": "mse_sum"}
NOTHING = {"gain": "1000000.0", "layer_sizes": "20x32"}


def frames(page):
    """The page's tables, each with its columns' types as the browser is told them."""
    return [(frame.value, json.loads(frame.proto.columns or "{}")) for frame in page.at.dataframe]


@pytest.mark.parametrize("name", TITLES)
@pytest.mark.parametrize("settings", [HUGE, NOTHING], ids=["huge", "nothing finite"])
def test_no_page_shows_a_number_that_is_flagged_or_the_word_none(visit, name, settings):
    page = visit(name, **settings)
    for frame in page.at.dataframe:
        assert frame.proto.placeholder == "–"
    for table, _ in frames(page):
        for _, column in table.items():
            if is_numeric_dtype(column):
                assert not (column.abs() >= FLAGGED_FROM).any()
            else:
                assert not column.isin(["None", "nan", "NaN"]).any()


def test_a_huge_reading_is_written_as_the_others_are(visit):
    table, columns = frames(visit("measure", **HUGE))[0]
    assert table["mean_abs"].str.fullmatch(r"\d\.\d\de\+\d+").all()
    assert (table["mean_abs"].astype(float) > 1e9).all()
    assert columns["mean_abs"]["alignment"] == "right"


@pytest.mark.parametrize(
    ("name", "words"), [("ok", "ok"), ("all_zero", "all zero"), ("non_finite", "non-finite"), ("never_called", "never called")]
)
def test_a_status_is_read_without_the_signs_of_code(name, words):
    assert in_words(name) == words
