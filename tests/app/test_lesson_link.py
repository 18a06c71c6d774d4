"""A lesson link: one experiment for everybody, with fewer pages and with controls that are locked or hidden."""

import pytest

from gradlab.spec import ExperimentSpec
from gradlab.ui.links import DEFAULTS, accept, link_of, pages_of, spec_of, text_of
from gradlab.ui.pages import TITLES, in_menu

A_LINK = {"layer_sizes": "4-8x7-2", "activation": "relu", "seed": "7"}
SPEC = ExperimentSpec.from_dict(A_LINK)


def test_locked_controls_show_the_experiment_and_cannot_be_used(visit, measured):
    page = visit("measure", **A_LINK, controls="locked")
    assert page.settings == SPEC.to_dict()
    assert page.drawn == measured(SPEC)
    settings = [widget for widget in page.widgets if widget.key.startswith("setting_") and widget.key != "setting_gradient"]
    assert len(settings) > 10
    assert all(widget.disabled for widget in settings)
    assert page.link == A_LINK | {"controls": "locked"}


def test_hidden_controls_are_not_there_and_the_experiment_is(visit, measured):
    page = visit("trail", **A_LINK, controls="hidden")
    assert not [widget for widget in page.widgets if widget.key == "setting_activation"]
    assert page.drawn == measured(SPEC)


def test_a_lesson_holds_over_all_pages(visit, measured):
    page = visit("measure", **A_LINK, controls="locked", pages="measure,trail")
    page.go("trail")
    assert page.widget("activation").disabled
    assert page.drawn == measured(SPEC)
    assert page.link == A_LINK | {"controls": "locked", "pages": "measure,trail"}


def test_another_link_ends_the_lesson(visit):
    page = visit("measure", **A_LINK, controls="locked")
    page.go("measure", seed="5")
    assert not page.widget("activation").disabled


def test_the_menu_has_the_pages_of_the_lesson_alone():
    assert in_menu(pages_of("trail,predict,seeds")[0]) == ["predict", "trail", "seeds"]
    for nothing in ("", "nonsense"):
        assert in_menu(pages_of(nothing)[0]) == list(TITLES)


@pytest.mark.parametrize("text", ["nonsense", "<b>x</b>", "," * 300, "predict;trail"])
def test_pages_that_do_not_exist_are_left_out_with_a_notice(text):
    settings, left_out = accept({"pages": f"{text},trail", "seed": "3"})
    assert settings["pages"] == "trail"
    assert settings["seed"] == 3
    assert bool(left_out) == bool(text.strip(","))


def test_pages_stand_in_the_order_of_the_menu_once():
    assert pages_of("trail, measure,trail , x") == (("measure", "trail"), ("x",))


@pytest.mark.parametrize("changes", [{}, A_LINK, {"use_shortcut": "true", "gain": "1e-3", "seed": "4294967295"}])
def test_a_whole_experiment_fits_into_one_parameter(changes):
    spec = ExperimentSpec.from_dict(changes)
    assert spec_of(text_of(spec)) == spec
    settings, left_out = accept({"pinned": text_of(spec)})
    assert (spec_of(settings["pinned"]), left_out) == (spec, [])
    assert accept(link_of(settings))[0] == settings


@pytest.mark.parametrize("text", ["x", "seed:-1", "seed", "a:b", "layer_sizes:4096x200", ":", "seed:1,seed", "💥", "seed:1:2"])
def test_a_pinned_experiment_that_is_none_is_left_out_with_a_notice(text):
    settings, left_out = accept({"pinned": text, "seed": "3"})
    assert settings == DEFAULTS | {"seed": 3}
    assert len(left_out) == 1


@pytest.mark.parametrize("page", ["shortcuts", "challenge", "takeaways"])
def test_without_controls_nothing_is_said_of_a_switch(visit, page):
    assert "the switch" not in visit(page, controls="hidden").markdown
