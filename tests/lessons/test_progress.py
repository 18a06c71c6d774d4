"""The record of a session: the first answer stands, a missed question returns on a later page with another seed."""

from dataclasses import FrozenInstanceError, replace

import pytest

from gradlab import ExperimentSpec, GradlabError, run_experiment
from gradlab.lessons.course import PAGES
from gradlab.lessons.predictions import factor_question, score_factor
from gradlab.lessons.progress import (
    CONFIDENCE_TITLES,
    Confidence,
    Progress,
    answer,
    answered,
    commit,
    due,
    guess,
    guessed,
    pose_due,
)
from gradlab.lessons.questions import QUESTIONS
from gradlab.lessons.report import summary, to_markdown
from gradlab.spec import MAX_SEED
from gradlab.trail import Quantity

REFERENCE = ExperimentSpec()


def posed(key="trend", spec=REFERENCE):
    question = QUESTIONS[key]
    specs = (spec, spec.replace(use_shortcut=True)) if question.pair else (spec,)
    return question.pose(*map(run_experiment, specs))


def told(*choices):
    """The record after some answers, each (question, option, confidence, page) or shorter."""
    progress = Progress()
    for key, option, *rest in choices:
        confidence, page, seed = (*rest, *["fairly_sure", None, 123][len(rest) :])
        progress = commit(progress, answer(posed(key, REFERENCE.replace(seed=seed)), option, confidence, page))
    return progress


def test_the_first_answer_stands():
    question = posed()
    first = commit(Progress(), answer(question, "grows", Confidence.CERTAIN))
    second = commit(first, answer(question, "smaller", Confidence.UNSURE))
    assert second is first
    assert answered(second, "trend", REFERENCE).option == "grows"


def test_committing_leaves_the_record_before_as_it_was():
    empty = Progress()
    full = commit(empty, answer(posed(), "grows", Confidence.CERTAIN))
    assert empty == Progress()
    assert len(full.answers) == 1
    with pytest.raises(FrozenInstanceError):
        full.answers = ()
    with pytest.raises(FrozenInstanceError):
        full.answers[0].option = "smaller"
    assert hash(full) == hash(replace(full))


def test_the_same_question_about_another_network_is_another_answer():
    progress = told(("trend", "grows"), ("trend", "smaller", "certain", None, 5))
    assert len(progress.answers) == 2
    assert [given.seed for given in progress.answers] == [123, 5]


def test_nothing_is_revealed_before_there_is_an_answer():
    assert answered(Progress(), "trend", REFERENCE) is None
    progress = told(("trend", "grows"))
    assert answered(progress, "trend", REFERENCE.replace(seed=1)) is None
    assert answered(progress, "seen", REFERENCE) is None


@pytest.mark.parametrize(
    ("option", "confidence", "page"),
    [("sideways", "certain", None), ("", "certain", None), ("grows", "very", None), ("grows", "certain", "nowhere")],
)
def test_an_answer_that_was_not_offered_is_refused(option, confidence, page):
    with pytest.raises(GradlabError, match="allowed"):
        answer(posed(), option, confidence, page)


def test_a_question_that_cannot_be_asked_takes_no_answer():
    with pytest.raises(GradlabError, match="shallow"):
        answer(posed("trend", REFERENCE.replace(layer_sizes="3-3-1")), "grows", "certain")


def test_a_missed_question_returns_on_every_later_page_and_on_no_earlier_one():
    progress = told(("one_number", "norm"))
    pages = list(PAGES)
    asked = {page: [again.question for again in due(progress, page)] for page in pages}
    later = pages[pages.index("measure") + 1 :]
    assert asked == {page: ["one_number"] if page in later else [] for page in pages}


def test_a_right_answer_does_not_return():
    assert not [again for page in PAGES for again in due(told(("trend", "smaller")), page)]


def test_a_missed_question_returns_with_a_seed_it_was_not_asked_with_and_nothing_else_changed():
    progress = told(("trend", "grows"), ("trend", "grows", "certain", None, 124), ("trend", "grows", "certain", None, 123))
    (again,) = due(progress, "trail")
    assert again.specs == (REFERENCE.replace(seed=125),)
    assert due(progress, "trail") == (again,)


def test_the_seed_after_the_last_one_is_the_first():
    (again,) = due(told(("visit_order", "at_once", "certain", None, MAX_SEED)), "challenge")
    assert again.specs[0].seed == 0


def test_both_networks_of_a_pair_return_with_one_seed():
    (again,) = due(told(("what_differs", "several")), "challenge")
    assert [spec.seed for spec in again.specs] == [124, 124]
    assert [spec.network.use_shortcut for spec in again.specs] == [False, True]


def test_a_right_answer_makes_up_for_a_miss_on_a_later_page_only():
    same_page = told(("visit_order", "at_once"), ("visit_order", "output_first", "certain", "trail", 5))
    assert [again.question for again in due(same_page, "takeaways")] == ["visit_order"]
    later = told(("visit_order", "at_once"), ("visit_order", "output_first", "certain", "shortcuts", 5))
    assert due(later, "takeaways") == ()


def test_a_question_missed_again_waits_for_a_page_later_still():
    progress = told(("visit_order", "at_once"), ("visit_order", "input_first", "certain", "shortcuts", 124))
    assert due(progress, "shortcuts") == ()
    assert [again.specs[0].seed for again in due(progress, "outputs")] == [125]


def test_what_is_due_is_posed_about_the_first_seed_it_can_be_asked_about():
    (again,) = due(told(("challenge_layer", "nowhere")), "takeaways")
    found = pose_due(again, run_experiment)
    assert found.can_be_asked
    tried = range(again.specs[0].seed, found.specs[0].seed)
    assert not any(posed("challenge_layer", REFERENCE.replace(seed=seed)).can_be_asked for seed in tried)


def test_what_can_be_asked_about_no_seed_is_not_posed():
    (again,) = due(told(("trend", "grows")), "takeaways")
    shallow = replace(again, specs=(REFERENCE.replace(layer_sizes="3-1"),))
    assert pose_due(shallow, run_experiment, tries=3) is None


def test_a_page_that_is_not_in_the_course_is_refused():
    with pytest.raises(GradlabError, match="allowed: start"):
        due(Progress(), "nowhere")


# --- guesses ----------------------------------------------------------------------------------------------------------


def a_guess(typed, spec=REFERENCE):
    question = factor_question(run_experiment(spec))
    return guess(question, score_factor(typed, question.measured, question.layers))


def test_the_first_guess_stands():
    first = commit(Progress(), a_guess("0.5"))
    assert commit(first, a_guess("0.6")) is first
    assert guessed(first, Quantity.WEIGHTS, REFERENCE).guess == 0.5
    assert guessed(first, Quantity.OUTPUTS, REFERENCE) is None


def test_what_is_no_factor_leaves_nothing_to_record():
    assert a_guess("none of it") is None


# --- the report -------------------------------------------------------------------------------------------------------

ANSWERS = [
    ("trend", "grows", "unsure"),
    ("seen", "falls_on_the_whole", "certain"),
    ("one_number", "norm", "fairly_sure"),
    ("visit_order", "at_once", "certain"),
]


def test_the_summary_counts_what_was_right_by_how_sure_it_was():
    found = summary(told(*ANSWERS))
    assert (found.answered, found.right, found.wrong) == (4, 1, 3)
    assert [(row.confidence, row.answered, row.right) for row in found.calibration] == [
        ("certain", 2, 1),
        ("fairly_sure", 1, 0),
        ("unsure", 1, 0),
    ]


def test_what_was_certain_and_wrong_comes_first_to_look_at_again():
    found = summary(told(*ANSWERS))
    assert [item.question for item in found.look_again] == ["visit_order", "one_number", "trend"]
    assert [item.page for item in found.look_again] == ["trail", "measure", "predict"]
    assert all(item.page_title == PAGES[item.page].title for item in found.look_again)


def test_an_empty_record_is_told_as_one():
    found = summary(Progress())
    assert (found.answered, found.look_again, found.median_log_error) == (0, (), None)
    assert [row.share for row in found.calibration] == [None] * len(Confidence)
    assert found.sentences == ("You have answered no question yet.",)


def test_the_median_of_the_guesses_is_told_in_powers_of_ten():
    progress = Progress()
    for fold, seed in [(2, 123), (1, 7), (10, 9)]:
        spec = REFERENCE.replace(seed=seed, layer_sizes="6x8-1")
        progress = commit(progress, a_guess(factor_question(run_experiment(spec)).measured * fold, spec))
    assert 10 ** summary(progress).median_log_error == pytest.approx(2)


def test_the_markdown_has_one_row_for_each_answer_and_links_no_pipe_into_a_cell():
    progress = commit(told(*ANSWERS), a_guess("0,5"))
    text = to_markdown(progress)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(ANSWERS) + 2 + 1
    assert {row.count("|") for row in rows[:6]} == {7}
    assert {row.count("|") for row in rows[6:]} == {5}
    assert "3-3-3-3-3-1, seed 123" in text
    assert text.index("Trail") < text.index("Measure") < text.index("Predict")


def test_every_confidence_has_a_title():
    assert list(CONFIDENCE_TITLES) == list(Confidence)
