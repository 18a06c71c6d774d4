"""The whole course, played once from the first page to the last; answers stay as they were given, and nothing is told early."""

import re

from gradlab.lessons.mistakes import MISTAKES

PLAIN = ("5.05e-3", "1.40e-3", "7.15e-4", "1.20e-4", "2.02e-4")


def shown(visitor):
    return [visitor.alt, visitor.text]


def test_the_course_from_start_to_takeaways(visit):
    visitor = visit()
    assert not any(number in part for number in PLAIN for part in shown(visitor))

    with visitor.a_run():
        visitor.page.get_by_text("Predict it, then measure").click()
    assert not any(number in part for number in PLAIN for part in shown(visitor))
    visitor.press("Commit")
    assert "Choose an answer and how sure you are before you commit." in visitor.text
    assert not any(number in part for number in PLAIN for part in shown(visitor))
    visitor.answer("It grows", "Certain")  # it does not
    assert all(number in visitor.alt for number in PLAIN)
    assert "Predicted: it grows (certain)" in visitor.text
    assert "0 of 1 right" in visitor.text

    visitor.menu("Measure")
    for stage in ("2 Loss", "3 Backward"):
        with visitor.a_run():
            visitor.page.get_by_role("radio", name=stage, exact=True).click()
    assert "10 of 10" in visitor.text
    visitor.answer_first()

    visitor.menu("Trail")
    assert visitor.page.get_by_role("slider", name="Arrivals").count() == 0
    visitor.answer_first()
    visitor.press("First")
    assert "Arrival 1 of 5: layers.4, 5.05e-3" in visitor.text

    visitor.menu("Shortcuts")
    assert "Where they part." not in visitor.text
    _answer_until(visitor, "Where they part.")

    visitor.menu("Output gradients")
    visitor.answer_first()
    visitor.menu("Capture methods")
    visitor.answer_first()

    visitor.menu("Mistakes")
    assert "0 of 12 shown" in visitor.text
    for mistake in list(MISTAKES.values())[:2]:
        if f"{mistake.title}: not shown yet" not in visitor.text:
            with visitor.a_run():
                visitor.pick("Mistake", f"☐ {mistake.title}")
        visitor.press("Show it live")
        assert f"☑ {mistake.title}" in visitor.text
        assert "Instead." in visitor.text
    assert "2 of 12 shown" in visitor.text

    visitor.menu("Challenge")
    for number in (1, 2):
        assert f"Hint {number}." not in visitor.text
        visitor.press(
            next(
                name
                for name in visitor.page.get_by_role("button").all_inner_texts()
                if name.startswith(f"Open hint {number} of")
            )
        )
        assert f"Hint {number}." in visitor.text
        assert f"Hint {number + 1}." not in visitor.text
    groups = visitor.page.get_by_role("radiogroup")
    for place in range(3):  # the layer, the direction, how sure
        groups.nth(place).locator("label, button").first.click()
    visitor.page.get_by_role("textbox", name=re.compile("^Explain it")).fill("<b>because</b> *of* the sums")
    visitor.press("Commit")
    assert "Measured." in visitor.text
    assert "<b>because</b> *of* the sums" in visitor.text  # as it was typed, and as nothing else
    assert "Open hint" not in visitor.text

    visitor.menu("Takeaways")
    assert "To look at again" in visitor.text
    links = visitor.page.locator("[data-testid=stMain]").get_by_role("link").all_inner_texts()
    assert any(link.startswith("Predict: ") for link in links)
    table = visitor.page.locator("[data-testid=stMain] table").first.inner_text()
    assert re.search(r"certain\t[1-9]", table)


def test_an_answer_stays_whatever_is_sent_afterwards(visit):
    visitor = visit("/predict")
    visitor.answer("It grows")
    for _ in range(2):
        visitor.menu("Measure")
        visitor.menu("Predict")
        assert "Predicted: it grows (certain)" in visitor.text
        assert visitor.page.get_by_role("radio", name="It becomes smaller").count() == 0
    with visitor.a_run():
        visitor.page.go_back()
    with visitor.a_run():
        visitor.page.go_forward()
    assert "Predicted: it grows (certain)" in visitor.text


def test_another_network_is_hidden_until_it_is_predicted_too(visit):
    visitor = visit("/predict")
    visitor.answer("It becomes smaller")
    visitor.fill("Seed", 7)
    assert "nothing measured yet" in visitor.alt
    visitor.fill("Seed", 123)
    assert all(number in visitor.alt for number in PLAIN)


def test_a_reload_is_a_new_visit_that_has_answered_nothing(visit):
    visitor = visit("/predict?seed=7")
    visitor.answer("It becomes smaller")
    assert "nothing measured yet" not in visitor.alt
    with visitor.a_run():
        visitor.page.reload()
    assert "nothing measured yet" in visitor.alt


def test_answers_of_two_visitors_never_meet(visit):
    one, other = visit("/predict"), visit("/predict", color_scheme="dark")
    one.answer("It grows")
    assert "nothing measured yet" in other.alt
    other.answer("It becomes smaller", "Unsure")
    one.menu("Takeaways")
    other.menu("Takeaways")
    assert "To look at again" in one.text
    assert "To look at again" not in other.text


def _answer_until(visitor, words):
    """Answer one question after the other until the page says it."""
    for _ in range(4):
        if words in visitor.text:
            return
        visitor.answer_first()
    assert words in visitor.text
