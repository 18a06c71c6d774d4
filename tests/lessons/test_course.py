"""The pages, the challenge and the takeaways of the course."""

import math
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_pairs import hidden_depths, left_at_the_input_end, mean_abs, pairs, raw, word

from gradlab import ExperimentSpec, GradlabError, run_experiment
from gradlab.comparison import FIELD_TITLES
from gradlab.lessons.challenge import HINTS, challenge, check
from gradlab.lessons.course import PAGES, TOPICS, page_after, position
from gradlab.lessons.questions import QUESTIONS
from gradlab.lessons.takeaways import TAKEAWAYS
from gradlab.lessons.trend import DIRECTION_TITLES, Direction, differing


def pair(**changes):
    spec = ExperimentSpec().replace(**changes)
    return run_experiment(spec), run_experiment(spec.replace(use_shortcut=True))


# --- pages ------------------------------------------------------------------------------------------------------------


def test_the_ten_pages_cover_every_topic_once():
    covered = [topic for page in PAGES.values() for topic in page.covers]
    assert len(PAGES) == 10
    assert sorted(covered) == sorted(TOPICS)
    assert set(TOPICS) == {f"A{n}" for n in range(1, 11)} | {f"B{n}" for n in range(1, 9)}


@pytest.mark.parametrize("key", PAGES)
def test_a_page_asks_a_question_and_says_what_it_is_for(key):
    page = PAGES[key]
    assert page.key == key
    assert page.title.endswith("?")
    assert page.purpose.endswith(".")
    assert page.purpose.count(". ") == 0
    assert 0 < len(page.menu) <= 20


def test_each_page_leads_to_the_next_and_the_last_to_none():
    assert [page_after(key) for key in PAGES] == [*list(PAGES.values())[1:], None]
    with pytest.raises(GradlabError, match="allowed: start"):
        position("nowhere")


def test_no_page_and_no_takeaway_says_that_the_readings_fall_at_every_step():
    for text in [page.purpose for page in PAGES.values()] + [takeaway.text for takeaway in TAKEAWAYS.values()]:
        assert "every step" not in text.replace("if not at every step", "")


# --- challenge --------------------------------------------------------------------------------------------------------


def test_in_the_reference_pair_the_trail_with_shortcuts_levels_off_between_layers_3_and_2():
    posed = challenge(*pair())
    assert posed.layer.right == {"layers.3", "layers.2"}
    assert posed.direction.right == {"levels_off"}
    assert "0.518 per layer" in posed.layer.explanation


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("depth", [1, 2, 4, 6, 12])
def test_the_challenge_is_posed_or_says_why_not_for_any_seed_and_depth(seed, depth):
    results = pair(seed=seed, layer_sizes="-".join(["3"] * depth + ["1"]))
    posed = challenge(*results)
    if depth < 4:
        assert "shallow" in posed.why_not or "same" in posed.why_not
    for layer in [option.key for option in posed.layer.options] or ["layers.0"]:
        feedback = check(posed, layer, Direction.LEVELS_OFF)
        assert feedback.layer_right == (layer in posed.layer.right)
        assert feedback.sentences
        assert all(sentence.endswith(".") for sentence in feedback.sentences)


def test_a_challenge_that_cannot_be_posed_says_so_and_takes_no_answer_for_right():
    posed = challenge(*pair(layer_sizes="3-3-1"))
    assert not posed.can_be_posed
    assert check(posed, "layers.0", "levels_off", "words").sentences == (posed.why_not,)
    assert not check(posed, "layers.0", "levels_off").layer_right


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"seed": 4}, "seed"),
        ({"activation": "relu"}, "activation"),
        ({"layer_sizes": "3-3-3-3-1"}, "layer_sizes"),
    ],
)
def test_two_networks_that_differ_in_more_than_shortcuts_are_no_pair(changes, reason):
    plain, _ = pair()
    _, other = pair(**changes)
    assert differing(plain, other) == tuple(sorted([reason, "use_shortcut"], key=list(plain.spec.to_dict()).index))
    assert FIELD_TITLES[reason] in challenge(plain, other).why_not


def test_a_pair_in_the_wrong_order_or_without_any_shortcut_is_none():
    plain, shortcut = pair()
    assert "first without" in challenge(shortcut, plain).why_not
    assert "first without" in challenge(plain, plain).why_not
    assert "no shortcut is added" in challenge(*pair(layer_sizes="3-4-5-6-7-1")).why_not


def test_where_the_plain_network_does_not_shrink_there_is_nothing_to_depart_from():
    for plain, shortcut in pairs():
        posed, left = challenge(plain, shortcut), left_at_the_input_end(plain.spec, raw(plain.spec).weights)
        if posed.can_be_posed and left is not None:
            assert word(left) == "smaller"
        elif left is not None and word(left) != "smaller" and "nothing to depart from" not in posed.why_not:
            assert "differ" in posed.why_not or "added" in posed.why_not or "with shortcuts" in posed.why_not


def test_the_reading_that_is_named_is_off_the_line_by_more_than_twofold_up_to_the_input_end():
    for plain, shortcut in pairs():
        posed = challenge(plain, shortcut)
        if posed.can_be_posed and posed.layer.right != {"nowhere"}:
            values, depths = mean_abs(raw(shortcut.spec).weights), hidden_depths(shortcut.spec)
            first_off = min(int(layer.split(".")[1]) for layer in posed.layer.right)
            assert first_off in depths
            assert f"`layers.{first_off}` would be at" in posed.layer.explanation
            assert values[first_off] > 0


@cache
def posed_on_the_reference():
    return challenge(*pairs()[0])


@given(st.text())
def test_free_text_comes_back_as_it_was_written_and_changes_nothing_else(words):
    posed = posed_on_the_reference()
    feedback = check(posed, "layers.2", "levels_off", words)
    assert feedback.free_text == words
    assert feedback.sentences == check(posed, "layers.2", "levels_off").sentences


@pytest.mark.parametrize(
    "words", ["<script>alert(1)</script>", "=HYPERLINK(1)", "'; DROP TABLE", "\x00", "🜂" * 10_000, "{0.__class__}", "%s"]
)
def test_hostile_free_text_comes_back_unread(words):
    feedback = check(posed_on_the_reference(), "layers.2", "levels_off", words)
    assert feedback.free_text is words
    assert all(words not in sentence for sentence in feedback.sentences)


@pytest.mark.parametrize(("layer", "direction"), [("layers.9", "levels_off"), ("layers.4", "levels_off"), ("layers.2", "up")])
def test_a_layer_or_a_direction_that_was_not_offered_is_refused(layer, direction):
    with pytest.raises(GradlabError, match="allowed"):
        check(posed_on_the_reference(), layer, direction)


def test_there_are_three_hints_and_a_title_for_every_direction():
    assert len(set(HINTS)) == 3
    assert all(hint.endswith(".") for hint in HINTS)
    assert list(DIRECTION_TITLES) == list(Direction)
    assert {QUESTIONS[key].page for key in ("challenge_layer", "challenge_direction")} == {"challenge"}


# --- takeaways --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", TAKEAWAYS)
def test_a_takeaway_is_a_claim_with_a_measured_sentence_beside_it(key):
    takeaway = TAKEAWAYS[key]
    assert takeaway.key == key
    assert takeaway.text.endswith(".")
    assert takeaway.covers in ("A10", "B8")
    for plain, shortcut in pairs()[:60]:
        evidence = takeaway.check(plain, shortcut)
        assert evidence.sentence.endswith(".")
        assert "nan" not in evidence.sentence.lower().split()


def test_every_claim_holds_in_the_reference_pair_or_is_one_that_only_lists():
    assert {key: takeaway.check(*pairs()[0]).holds for key, takeaway in TAKEAWAYS.items()} == dict.fromkeys(TAKEAWAYS, True) | {
        "watch_for": None
    }


def test_a_claim_about_the_trend_holds_where_the_measurement_bears_it_out():
    outcomes = set()
    for plain, shortcut in pairs():
        for key, result, wanted in (("shrinks", plain, "smaller"), ("levels_off", shortcut, "same")):
            left = left_at_the_input_end(result.spec, raw(result.spec).weights)
            if left is not None and not any(math.isclose(left, cut, rel_tol=1e-4) for cut in (0.5, 2)):
                holds = TAKEAWAYS[key].check(plain, shortcut).holds
                assert holds == (word(left) == wanted)
                outcomes.add((key, holds))
    assert len(outcomes) == 4


def test_there_are_five_takeaways_from_each_lesson():
    assert [takeaway.covers for takeaway in TAKEAWAYS.values()] == ["A10"] * 5 + ["B8"] * 5


def test_a_large_last_layer_in_two_networks_that_both_shrink_decides_nothing():
    spec = ExperimentSpec().replace(layer_sizes="16x10-1", activation="relu")
    found = TAKEAWAYS["large_last"].check(*(run_experiment(spec.replace(use_shortcut=flag)) for flag in (False, True)))
    assert found.holds is None
    assert "the trend is vanishing" in found.sentence
    assert "the trend is weakening" in found.sentence
