"""The takeaways page: each claim beside what these two networks say to it, and the visitor's own record."""

import pytest

from gradlab import run_experiment
from gradlab.diagnosis import diagnose
from gradlab.lessons.progress import Progress, answer, commit
from gradlab.lessons.questions import QUESTIONS
from gradlab.lessons.takeaways import TAKEAWAYS
from gradlab.presets import PRESETS
from gradlab.spec import ExperimentSpec
from gradlab.ui.panels import SIGNS

SAID = {True: "✓ ", False: "✗ ", None: "○ "}
WORDS = {True: "*Here:*", False: "*Not in this experiment:*", None: "*No yes or no from this experiment:*"}
# Orthogonal matrices and nothing else: every factor on the way back keeps the length of the gradient.
STEADY = {"layer_sizes": "16x9", "activation": "identity", "initializer": "orthogonal", "use_bias": "false"}
LINKS = {
    "reference": {},
    "one layer": {"layer_sizes": "3-1"},
    "width 1": {"layer_sizes": "1-1-1-1-1"},
    "all zero": {"initializer": "normal", "sigma_w": "0"},
    "not finite": {"layer_sizes": "3x21", "activation": "identity", "gain": "1e6"},
    "steady": STEADY,
    "retain_grad": {"capture_method": "retain_grad"},
    "two hundred layers": {"layer_sizes": "3x201"},
}


def pair(link):
    spec = ExperimentSpec.from_dict(link)
    return [run_experiment(spec.replace(use_shortcut=flag)) for flag in (False, True)]


def record(*given):
    """The record of somebody who answered these questions on the reference: (question, right or not, how sure)."""
    progress, result = Progress(), run_experiment(ExperimentSpec())
    for question, is_right, sure in given:
        posed = QUESTIONS[question].pose(result)
        option = next(option.key for option in posed.options if (option.key in posed.right) == is_right)
        progress = commit(progress, answer(posed, option, sure))
    return progress


def with_record(visit, *given):
    page = visit("takeaways")
    page.at.session_state["progress"] = record(*given)
    return page.run()


def links(page):
    return [link.proto.page for link in page.at.get("page_link")]


def downloads(page):
    return [button.proto.label for button in page.at.get("download_button")]


@pytest.mark.parametrize("link", LINKS.values(), ids=list(LINKS))
def test_each_claim_stands_beside_what_was_measured(visit, link):
    page, results = visit("takeaways", **link), pair(link)
    for takeaway in TAKEAWAYS.values():
        found = takeaway.check(*results)
        (line,) = [element.value for element in page.at.markdown if takeaway.text in element.value]
        assert line.startswith(SAID[found.holds])
        assert WORDS[found.holds] in line
        assert line.endswith(found.sentence)


def test_a_claim_that_fails_here_is_said_to_fail(visit):
    plain, _ = pair(STEADY)
    assert diagnose(plain, gradient="weights").factor == pytest.approx(1)
    (line,) = [text.value for text in visit("takeaways", **STEADY).at.markdown if TAKEAWAYS["shrinks"].text in text.value]
    assert "✗" in line
    assert "*Not in this experiment:*" in line


@pytest.mark.parametrize("preset", ["reference", "reference_shortcut", "deep_sigmoid"])
def test_the_picture_is_the_pair_of_the_visitors_own_experiment(visit, measured, preset):
    page, spec = visit("takeaways").set(preset=preset), PRESETS[preset].spec
    for name, flag in (("Without shortcuts", False), ("With shortcuts", True)):
        each = spec.replace(use_shortcut=flag)
        assert page.trails[name] == measured(each)
        assert f"{name}: {SIGNS[diagnose(run_experiment(each), gradient='weights').verdict]}." in page.markdown


def test_who_has_answered_nothing_is_sent_to_predict(visit):
    page = visit("takeaways")
    assert "You have answered no question yet." in page.markdown
    assert links(page) == ["predict"]
    assert "Your record (Markdown)" not in downloads(page)


def test_the_record_counts_by_how_sure_they_were(visit):
    given = [("one_number", True, "certain"), ("visit_order", False, "certain"), ("last_layer", True, "certain")]
    given += [("loss_hands_on", False, "unsure")]
    page = with_record(visit, *given)
    assert "2 of 4 answers agree with the measurement." in page.markdown
    assert "| certain | 3 | 2 | 67 % |" in page.markdown
    assert "| fairly sure | 0 | 0 | – |" in page.markdown
    assert "| unsure | 1 | 0 | 0 % |" in page.markdown
    assert "Your record (Markdown)" in downloads(page)


def test_what_was_certain_and_wrong_is_to_be_looked_at_first(visit):
    page = with_record(
        visit, ("one_number", False, "unsure"), ("visit_order", False, "certain"), ("last_layer", True, "unsure")
    )
    assert links(page)[:2] == ["trail", "measure"]
    text = page.markdown
    assert text.index("(you were certain)") < text.index("(you were unsure)")
    assert text.count("(you were ") == 2


def test_nothing_missed_is_nothing_to_look_at_again(visit):
    page = with_record(visit, ("one_number", True, "certain"))
    assert links(page) == []
    assert "To look at again" not in page.markdown


def test_an_answer_given_in_the_course_is_in_the_record(visit):
    page = visit("predict").answer("grows", "certain").go("takeaways")
    assert "0 of 1 answer agree with the measurement." in page.markdown
    assert "predict" in links(page)
    assert "Once more, with another seed" in [header.value for header in page.at.header]
