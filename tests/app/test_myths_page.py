"""The myths page: a prediction, then the measurement; each in its own session."""

import pytest

from gradlab.charts import against_claim
from gradlab.lessons.myths import DISAGREE, MYTHS
from gradlab.text import short_number

QUICK = "adam"


def answer(page, option="agree"):
    page.at.radio[0].set_value(option)
    page.at.button[0].click()
    return page.run()


def series(page):
    return {row.series for _, data in page.layers() for row in data.itertuples()}


@pytest.mark.parametrize("name", MYTHS)
def test_before_the_answer_there_is_the_claim_and_nothing_measured(visit, name):
    page = visit("myths", myth=name)
    assert MYTHS[name].title in page.markdown
    assert series(page) == {"what the claim expects (dotted)"}
    for text in (MYTHS[name].why, MYTHS[name].link, "measured now", "seeds)"):
        assert text not in page.markdown
    assert "(CSV)" not in [button.proto.label for button in page.at.get("download_button")]


def test_a_commit_without_an_answer_measures_nothing(visit):
    page = visit("myths", myth=QUICK)
    page.at.button[0].click()
    page.run()
    assert "Choose an answer" in page.markdown
    assert "measured now" not in page.markdown


@pytest.mark.parametrize("name", MYTHS)
def test_after_it_the_numbers_on_the_page_are_those_of_a_run(visit, name):
    page = answer(visit("myths", myth=name), "disagree")
    myth, result = MYTHS[name], MYTHS[name].run(0)
    assert result.sentence in page.markdown
    assert f"| measured now | **{short_number(result.number)}** |" in page.markdown
    assert f"| published | **{short_number(myth.published)}** | {myth.published_as} |" in page.markdown
    assert f"[{myth.source}]({myth.link})" in page.markdown
    assert f"The claim {'holds' if result.holds else 'does not hold'} here" in page.markdown
    assert ("✓ That is what was measured." in page.markdown) == myth.is_right(DISAGREE, result)
    assert series(page) == set(result.frame["series"])


def test_the_first_answer_stays_and_each_claim_has_its_own(visit):
    page = answer(visit("myths", myth=QUICK), "agree")
    assert "You said: *I agree*. **✗ That is not what was measured.**" in page.markdown
    assert not page.at.radio
    page.at.session_state[f"myths_option_{QUICK}"] = "disagree"
    page.run()
    assert "You said: *I agree*." in page.markdown
    page.set(myth="he")
    assert page.at.radio
    assert "You said" not in page.markdown
    answer(page, "agree")
    assert "Your answers so far: **1 of 2** are what was measured." in page.markdown
    page.go("measure").go("myths", myth=QUICK)
    assert "You said: *I agree*." in page.markdown


def test_other_seeds_are_measured_anew_and_the_answer_stays(visit):
    page = answer(visit("myths", myth=QUICK), "disagree")
    page.click("myths_again")
    result = MYTHS[QUICK].run(4)
    assert result.sentence in page.markdown
    assert "seeds 4 to 7" in page.markdown
    assert "You said: *I disagree*." in page.markdown
    for _ in range(7):
        page.click("myths_again")
    assert MYTHS[QUICK].run(0).sentence in page.markdown  # a bounded number of runs, however long somebody clicks


def test_the_claim_is_in_the_link(visit):
    page = visit("myths").set(myth="width")
    assert page.link["myth"] == "width"
    assert MYTHS["width"].title in page.markdown
    assert page.left_out == []
    assert MYTHS["batch_norm"].title in visit("myths", myth="<b>").markdown


def test_what_is_drawn_can_be_taken_along(visit):
    page = answer(visit("myths", myth=QUICK))
    labels = [button.proto.label for button in page.at.get("download_button")]
    assert "What is drawn (CSV)" in labels


@pytest.mark.parametrize("dark", [False, True])
def test_the_picture_is_valid_and_its_words_hold_the_ends(dark):
    for frame in (MYTHS[QUICK].claim, MYTHS[QUICK].run(0).frame):
        drawn = against_claim(frame, reading="step", dark=dark)
        drawn.chart.to_dict(validate=True)
        for name, line in frame.groupby("series"):
            assert f"{name}: 1.00 at layers.4, {short_number(line['reading'].iloc[-1])} at layers.0" in drawn.alt_text
