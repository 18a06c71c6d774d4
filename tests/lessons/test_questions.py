"""Every question of the course: its right answers are those of a computation of its own, over many networks."""

import math
import re
from collections import defaultdict
from functools import cache
from itertools import pairwise

import pytest
import torch
from measured_pairs import hidden_depths, left_at_the_input_end, mean_abs, pairs, raw, robust_slope, word

from gradlab import CutOffs, ExperimentSpec, GradlabError, run_experiment
from gradlab.lessons.course import PAGES, TOPICS
from gradlab.lessons.questions import QUESTIONS, WORKED_EXAMPLE, questions_on

each_question = pytest.mark.parametrize("key", QUESTIONS)


@cache
def posed_on(key):
    """The question on every pair, with the results it was posed on."""
    question = QUESTIONS[key]
    groups = pairs() if question.pair else [(result,) for pair in pairs() for result in pair]
    # Those about the capture methods measure afresh for every seed.
    return [(question.pose(*results), results) for results in (groups[:50] if question.page == "methods" else groups)]


def gradients(result, quantity="weights"):
    return getattr(raw(result.spec), quantity)


def measured_trend(result, quantity="weights"):
    """None where no line goes through all hidden layers, or where the line is too close to a cut-off to compare rounding."""
    left = left_at_the_input_end(result.spec, gradients(result, quantity))
    return None if left is None or any(math.isclose(left, cut, rel_tol=1e-4) for cut in (0.1, 0.5, 2, 10)) else left


def trail(result):
    """Mean absolute weight gradients from the output end."""
    return mean_abs(gradients(result))[::-1]


def place_of(index, count):
    return "output_end" if index == 0 else "input_end" if index == count - 1 else "in_between"


# --- the same answers, computed another way: a function for each question; None where it has nothing to say -------------


def expected_trend(result, quantity="weights"):
    left = measured_trend(result, quantity)
    return left and {word(left)}


def expected_seen(result):
    left, values = measured_trend(result), trail(result)
    if left is None:
        return None
    strict = all(later < earlier for earlier, later in pairwise(values))
    direction = {"smaller": "falls_on_the_whole", "same": "holds", "grows": "grows"}[word(left)]
    return ({direction} if not (strict and word(left) == "smaller") else set()) | ({"falls_every_step"} if strict else set())


def close_to_the_top(values):
    return sum(math.isclose(value, max(values), rel_tol=1e-6) for value in values) > 1


def expected_largest(result):
    values = trail(result)
    return None if close_to_the_top(values) else {place_of(values.index(max(values)), len(values))}


def expected_steepest(result):
    ratios = [later / earlier for earlier, later in pairwise(trail(result))]
    if close_to_the_top([-ratio for ratio in ratios]) or math.isclose(min(ratios), 1, rel_tol=1e-6):
        return None
    return {"no_fall"} if min(ratios) > 1 else {place_of(ratios.index(min(ratios)), len(ratios))}


def expected_last(result):
    depth, count = raw(result.spec).order[-1], result.spec.network.depth
    return {name for name, place in {"input_end": 0, "middle": count // 2, "output_end": count - 1}.items() if place == depth}


def expected_order(result):
    return {"output_first"} if raw(result.spec).order == list(range(result.spec.network.depth))[::-1] else {"input_first"}


def expected_name(result):
    left = measured_trend(result)
    if left is None:
        return None
    names = {"vanishing": left < 0.1, "weakening": 0.1 < left < 0.5, "growing": 2 < left < 10, "exploding": left > 10}
    return {name for name, so in names.items() if so} or {"steady"}


def expected_two_trends(result):
    weights, outputs = measured_trend(result), measured_trend(result, "outputs")
    return None if weights is None or outputs is None else {"agree" if word(weights) == word(outputs) else "disagree"}


def expected_at_the_input_end(result):
    gradient = gradients(result, "outputs")[0]
    return {"non_finite" if not gradient.isfinite().all() else "number" if gradient.any() else "zero"}


def expected_shape(result):
    for weight, output in zip(gradients(result), gradients(result, "outputs"), strict=True):
        if weight.shape != output.shape:
            return {"weight_shape" if result.spec.seed % 2 else "output_shape"}
    return None


def expected_difference(plain, shortcut):
    sizes = plain.spec.network.layer_sizes
    return {"shortcuts" if any(first == second for first, second in pairwise(sizes)) else "nothing"}


def excess(plain, shortcut):
    """How far each hidden reading with shortcuts is above a line of the plain network's slope, in powers of ten."""
    depths = hidden_depths(plain.spec)[::-1]
    without, with_shortcuts = (mean_abs(gradients(result)) for result in (plain, shortcut))
    if not all(values[depth] > 0 and math.isfinite(values[depth]) for values in (without, with_shortcuts) for depth in depths):
        return depths, None
    slope = robust_slope(depths, [without[depth] for depth in depths])
    start = math.log10(with_shortcuts[depths[0]])
    return depths, [math.log10(with_shortcuts[depth]) - start - slope * (depth - depths[0]) for depth in depths]


def departing(plain, shortcut):
    """The place among the hidden layers, output end first, from which on all are off by more than twofold on one side."""
    depths, off = excess(plain, shortcut)
    if off is None or any(math.isclose(abs(value), math.log10(2), rel_tol=1e-4) for value in off):
        return depths, None, 0
    for place in range(len(off)):
        if all(value > math.log10(2) for value in off[place:]) or all(value < -math.log10(2) for value in off[place:]):
            return depths, place, off[-1]
    return depths, -1, 0


def expected_challenge_layer(plain, shortcut):
    depths, place, _ = departing(plain, shortcut)
    if place is None:
        return None
    return {"nowhere"} if place < 0 else {f"layers.{depths[place]}", f"layers.{depths[place - 1]}"}


def expected_part(plain, shortcut):
    depths, place, _ = departing(plain, shortcut)
    if place is None:
        return None
    candidates = len(depths) - 1
    if place < 0:
        return {"nowhere"}
    names = ["near_output", "near_input"] if candidates == 2 else ["near_output", "middle", "near_input"]
    ends = [round(candidates * part / len(names)) for part in range(1, len(names) + 1)]
    return {next(name for name, end in zip(names, ends, strict=True) if place <= end)}


def expected_direction(plain, shortcut):
    _, place, side = departing(plain, shortcut)
    left = measured_trend(shortcut)
    if place is None or left is None:
        return None
    if place < 0:
        return {"goes_on"}
    return (
        {"shrinks_faster"} if side < 0 else {{"smaller": "shrinks_slower", "same": "levels_off", "grows": "grows"}[word(left)]}
    )


EXPECTED = {
    "trend": expected_trend,
    "trend_outputs": lambda result: expected_trend(result, "outputs"),
    "seen": expected_seen,
    "seen_largest": expected_largest,
    "steepest_step": expected_steepest,
    "forward_hands_on": lambda result: {"output"},
    "loss_hands_on": lambda result: {"one_number"},
    "backward_hands_on": lambda result: {"gradients"},
    "one_number": lambda result: {"mean_abs"},
    "visit_order": expected_order,
    "last_layer": expected_last,
    "worked_direction": lambda result: {"bottom" if raw(result.spec).order[0] else "top"},
    "worked_start": lambda result: {"output_end" if raw(result.spec).order[0] else "input_end"},
    "worked_trend": expected_trend,
    "worked_name": expected_name,
    "what_differs": expected_difference,
    "where_they_part": expected_part,
    "which_is_which": expected_shape,
    "stored": lambda result: {"parameters"},
    "two_trends": expected_two_trends,
    "zero_or_none": expected_at_the_input_end,
    "none_means": lambda result: {"no_path"},
    "method_inplace": lambda result: {"tensor_hooks"},
    "method_same_number": lambda result: {"same"},
    "method_first_layer": lambda result: {"none"},
    "method_one_tensor": lambda result: {"retain_grad"},
    "challenge_layer": expected_challenge_layer,
    "challenge_direction": expected_direction,
}


def test_there_is_a_second_computation_for_every_question():
    assert set(EXPECTED) == set(QUESTIONS)


@each_question
def test_the_right_answers_are_those_of_a_computation_by_plain_autograd(key):
    compared = 0
    for posed, results in posed_on(key):
        wanted = EXPECTED[key](*results) if posed.can_be_asked else None
        if wanted is not None:
            assert posed.right == wanted, [spec.to_dict() for spec in posed.specs]
            compared += 1
    assert compared > 30


@each_question
def test_a_question_has_a_right_answer_and_a_wrong_one_wherever_it_can_be_asked(key):
    for posed, _ in posed_on(key):
        keys = [option.key for option in posed.options]
        assert len(set(keys)) == len(keys)
        assert len({option.text for option in posed.options}) == len(keys)
        if posed.can_be_asked:
            assert set() < posed.right < set(keys)
            assert posed.text
            assert posed.explanation
        else:
            assert (posed.text, posed.options, posed.right, posed.explanation) == ("", (), frozenset(), "")


@each_question
def test_every_option_is_right_for_some_network_or_the_reason_why_it_never_is_stands_beside_it(key):
    offered, right = set(), set()
    for posed, _ in posed_on(key):
        offered |= {option.key for option in posed.options}
        right |= posed.right
    question = QUESTIONS[key]
    if key == "what_differs":
        first, other = run_experiment(ExperimentSpec()), run_experiment(ExperimentSpec(seed=4))
        third = run_experiment(ExperimentSpec(seed=4).replace(use_shortcut=True))
        right |= question.pose(first, other).right | question.pose(first, third).right
    assert offered == right | set(question.never_right)
    assert not right & set(question.never_right)
    assert all(reason.endswith(".") for reason in question.never_right.values())


@each_question
def test_a_wrong_answer_gets_a_refutation_with_three_parts_and_a_right_one_none(key):
    for posed, _ in posed_on(key):
        for option in posed.options:
            assert option.refutation.startswith("You may think ")
            assert len(re.findall(r"\.(?: |$)", option.refutation)) >= 3
            assert posed.refutation(option.key) == ("" if option.key in posed.right else option.refutation)
            assert posed.reply(option.key) == (posed.explanation if option.key in posed.right else option.refutation)


@each_question
def test_texts_are_sentences_without_shouting_praise_or_numbers_that_are_none(key):
    for posed, _ in posed_on(key):
        options = [text for option in posed.options for text in (option.text, option.refutation)]
        for text in filter(None, (posed.text, posed.explanation, posed.why_not, *options)):
            assert "!" not in text
            assert not re.search(r"\b(nan|inf|simply|just|obviously|well done|correct)\b", text, re.IGNORECASE), text
            assert "  " not in text
            assert ".." not in text
        assert not posed.text or posed.text[-1] in "?."
        assert all(text.endswith(".") for text in (posed.explanation, posed.why_not) if text)


def test_the_reference_experiment_shrinks_but_not_at_every_step():
    plain, shortcut = pairs()[0]
    assert QUESTIONS["trend"].pose(plain).right == {"smaller"}
    assert QUESTIONS["trend"].pose(shortcut).right == {"same"}
    seen = QUESTIONS["seen"].pose(plain)
    assert seen.right == {"falls_on_the_whole"}
    assert "no fall from `layers.1` (1.20e-4) to `layers.0` (2.02e-4)" in seen.reply("falls_every_step")


def test_a_network_too_shallow_for_a_trend_is_not_asked_for_one():
    shallow = run_experiment(ExperimentSpec().replace(layer_sizes="3-3-1"))
    for key in ("trend", "trend_outputs", "worked_trend", "worked_name", "two_trends"):
        posed = QUESTIONS[key].pose(shallow)
        assert not posed.can_be_asked
        assert "shallow" in posed.why_not


def test_a_loss_that_is_no_number_is_told_as_one():
    overflowing = run_experiment(ExperimentSpec().replace(layer_sizes="8x12-1", gain=1e6, activation="identity"))
    assert not math.isfinite(overflowing.loss)
    assert "not finite" in QUESTIONS["loss_hands_on"].pose(overflowing).explanation


def test_the_names_of_the_patterns_are_told_with_the_cut_offs_of_the_verdict():
    cut = CutOffs()
    assert (cut.vanishing, cut.weakening, cut.growing, cut.exploding) == (0.1, 0.5, 2, 10)


def test_an_answer_that_was_not_offered_is_refused():
    posed = QUESTIONS["trend"].pose(pairs()[0][0])
    with pytest.raises(GradlabError, match=r"sideways.*grows, same or smaller"):
        posed.is_right("sideways")


def test_a_question_about_two_networks_is_not_posed_on_one():
    with pytest.raises(GradlabError, match="two results"):
        QUESTIONS["where_they_part"].pose(pairs()[0][0])
    with pytest.raises(GradlabError, match="one result"):
        QUESTIONS["trend"].pose(*pairs()[0])


def test_every_question_belongs_to_a_page_and_to_topics():
    by_page = defaultdict(list)
    for key, question in QUESTIONS.items():
        assert key == question.key
        assert question.page in PAGES
        assert question.covers
        assert set(question.covers) <= set(TOPICS)
        by_page[question.page].append(question)
    assert all(questions_on(page) == tuple(questions) for page, questions in by_page.items())
    assert [question.page for question in QUESTIONS.values()] == sorted(
        (question.page for question in QUESTIONS.values()), key=list(PAGES).index
    )


def test_the_worked_example_has_four_steps_with_a_check_for_each():
    assert len(WORKED_EXAMPLE) == 4
    for step in WORKED_EXAMPLE:
        assert step.instruction.endswith(".")
        assert "A5" in QUESTIONS[step.question].covers


def test_posing_a_question_reads_and_changes_no_global_random_state():
    before = torch.random.get_rng_state()
    for question in QUESTIONS.values():
        question.pose(*pairs()[0][: 1 + question.pair])
    assert torch.equal(torch.random.get_rng_state(), before)
