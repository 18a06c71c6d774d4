"""Parts of a page that are drawn only when they are open: closed, nothing in them is lost."""

import pytest

from gradlab.spec import FIELDS
from gradlab.ui.pages import TITLES

SETTINGS, CUT_OFFS = "settings_drawer", "cut_offs_drawer"
INSIDE = {"initializer", "gain", "sigma_w", "sigma_b", "normalization", "dtype", "use_bias", "batch_size", "loss", "target"}


def drawn(page):
    return {str(widget.key).removeprefix("setting_") for widget in page.widgets} & FIELDS.keys()


def closed(page):
    """The page with its drawers closed, as a visitor meets it."""
    return page.drawers(are_open=False).run()


def opened(page):
    return page.drawers(are_open=True).run()


@pytest.mark.parametrize("name", TITLES)
def test_a_visitor_meets_them_closed_and_a_link_counts_all_the_same(visit, name):
    link = {"gain": "2.0", "batch_size": "4", "seed": "5"}
    page = visit(name, drawers_open=False, **link)
    assert not drawn(page) & INSIDE
    assert page.left_out == []
    assert {key: page.link[key] for key in link} == link
    assert closed(page).link == page.link


def test_what_is_set_in_it_stays_when_it_is_closed_and_on_the_next_page(visit):
    page = visit("measure").set(gain=2.0, loss="l1", use_bias=False)
    wanted = page.link
    assert wanted["gain"] == "2.0"
    closed(page)
    assert not drawn(page) & INSIDE
    assert page.link == wanted
    assert page.set(seed=9).link == wanted | {"seed": "9"}
    page.go("trail")
    assert {name: page.settings[name] for name in ("gain", "loss", "use_bias", "seed")} == {
        "gain": 2.0, "loss": "l1", "use_bias": False, "seed": 9,
    }  # fmt: skip
    assert opened(closed(page)).settings["loss"] == "l1"


def test_a_preset_chosen_while_it_is_closed_sets_what_is_in_it(visit):
    page = closed(visit("measure", gain="3.0"))
    page.set(preset="he_relu")
    assert page.link["initializer"] == "he"
    assert "gain" not in page.link
    assert opened(page).settings["initializer"] == "he"
    assert page.settings["gain"] == 1.0
    assert page.widget("preset").value == "he_relu"


def test_what_cannot_be_run_is_dropped_when_it_is_closed(visit):
    page = visit("measure").set(normalization="batch_norm")
    assert page.why
    closed(page)
    assert page.why == ""
    assert opened(page).settings["normalization"] == "no_norm"


def test_a_change_outside_keeps_what_is_inside(visit):
    page = closed(visit("measure").set(sigma_w=1.5, initializer="normal"))
    page.set(activation="relu", use_shortcut=True)
    assert (page.link["sigma_w"], page.link["initializer"]) == ("1.5", "normal")


def test_cut_offs_count_while_they_are_closed(visit):
    page = visit("verdicts").set(verdicts_cut_off_vanishing=0.01)
    closed(page)
    assert all(not str(widget.key).startswith("verdicts_cut_off_") for widget in page.widgets)
    assert opened(page).widget("verdicts_cut_off_vanishing").value == 0.01
