"""Without a mouse: what there is to answer and to walk along is reached and used with Tab, arrows, space and Enter."""

import pytest

FOCUS = """() => {
    const element = document.activeElement;
    const name = element.getAttribute('aria-label') || element.closest('label')?.innerText || element.innerText || '';
    return [element.closest('[role=radiogroup]')?.getAttribute('aria-label') ?? '', name.trim().split('\\n')[0]];
}"""
MOST_STOPS = 60


def tab_to(visitor, wanted):
    """Press Tab until the focus is where it is wanted."""
    stops = []
    for _ in range(MOST_STOPS):
        visitor.page.keyboard.press("Tab")
        stops.append(visitor.page.evaluate(FOCUS))
        if wanted in stops[-1]:
            return
    pytest.fail(f"Tab does not lead to {wanted}, but to {stops}")


def answer_by_keyboard(visitor, down):
    """The answer that stands so many places below the first, quite sure."""
    keyboard = visitor.page.keyboard
    tab_to(visitor, "Your answer")
    keyboard.press("Space")
    for _ in range(down):
        keyboard.press("ArrowDown")
    tab_to(visitor, "How sure are you?")
    keyboard.press("Space")
    tab_to(visitor, "Commit")
    with visitor.a_run():
        keyboard.press("Enter")


def test_a_prediction_is_committed_with_the_keyboard_alone(visit):
    visitor = visit("/predict")
    answer_by_keyboard(visitor, down=2)
    assert "Predicted: it becomes smaller" in visitor.text
    assert "layers.4 5.05e-3" in visitor.alt


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_focus_can_be_seen(visit, theme):
    visitor = visit("/predict", color_scheme=theme)
    for stop in ("Your answer", "How sure are you?", "Commit", "Layer sizes", "Seed", "Shortcuts"):
        tab_to(visitor, stop)
        visitor.page.wait_for_timeout(300)  # colours fade in
        focused = visitor.page.screenshot()
        element = visitor.page.evaluate_handle("document.activeElement")
        element.evaluate("element => element.blur()")
        visitor.page.wait_for_timeout(300)
        assert visitor.page.screenshot() != focused, stop
        element.evaluate("element => element.focus()")


def test_the_trail_is_walked_along_with_arrows_and_buttons(visit):
    visitor = visit("/trail")
    answer_by_keyboard(visitor, down=0)  # before, nothing shows the order of arrival
    slider = visitor.page.get_by_role("slider", name="Arrivals")
    slider.focus()
    for arrived, sentence in ((4, "Arrival 4 of 5: layers.1, 1.20e-4"), (3, "Arrival 3 of 5: layers.2, 7.15e-4")):
        with visitor.a_run():
            visitor.page.keyboard.press("ArrowLeft")
        assert sentence in visitor.text
        assert visitor.alt.count("layers.") == arrived
    with visitor.a_run():
        visitor.page.keyboard.press("ArrowRight")
    assert "Arrival 4 of 5: layers.1" in visitor.text
    assert slider.evaluate("element => element === document.activeElement")  # it keeps the focus while the page runs

    visitor.page.get_by_role("button", name="First", exact=True).focus()
    with visitor.a_run():
        visitor.page.keyboard.press("Enter")
    assert "Arrival 1 of 5: layers.4, 5.05e-3." in visitor.text
    tab_to(visitor, "Next ▶")
    with visitor.a_run():
        visitor.page.keyboard.press("Space")
    assert "Arrival 2 of 5: layers.3, 1.40e-3, 0.277 times the one before" in visitor.text
