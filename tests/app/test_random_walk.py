"""A visitor who presses everything in no order, with a liking for odd input: nothing may raise, every picture has words."""

import random

import pytest
from widget_values import BOUNDS, CHOICES, SWITCHES, TOGGLES

from gradlab.spec import MAX_SEED
from gradlab.ui.pages import TITLES

RUNS = 80
SIZES = ("3-3-1", "1-1", "2x30", "16-16-3", "5", "", "x", "3x201", "<b>3</b>", "=1+1", "9" * 999, "\x00", "3;3;1", "💥", "-1-1")
IN_LINKS = (*SIZES, "0", "-1", "2.5", "nan", "1e6", "1e-320", "true", "tanh", "batch_norm", "class_labels", str(MAX_SEED))
# The largest preset takes a second.
VALUES = CHOICES | SWITCHES | {"preset": [name for name in SWITCHES["preset"] if name != "he_relu"]}
VALUES |= {key: [True, False] for key in TOGGLES} | {"layer_sizes": SIZES}
NUMBERS = BOUNDS | {"arrivals": (1, 5)}
BUTTONS = ("arrivals_first", "arrivals_back", "arrivals_next")


def some_step(chance, page):
    """Something that a visitor may do here, and the words for it."""
    on_page = {widget.key.removeprefix("setting_") for widget in page.widgets}
    what = chance.choice(sorted(on_page | {"the menu", "a link"}))
    if what in ("the menu", "a link"):
        count = chance.randint(1, 4) if what == "a link" else 0
        link = {chance.choice(sorted({*CHOICES, *BOUNDS, "layer_sizes"})): chance.choice(IN_LINKS) for _ in range(count)}
        to = chance.choice(list(TITLES))
        return f"go to {to} with {link}", lambda: page.go(to, **link)
    if what in BUTTONS:
        return f"click {what}", lambda: page.click(what)
    if what in NUMBERS:
        low, high = page.widget(what).min, page.widget(what).max
        value = chance.choice([low, high, type(low)(chance.uniform(low, min(high, 40)))])
    else:
        value = chance.choice(VALUES[what])
    return f"{what} = {value!r}", lambda: page.set(**{what: value})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_a_visitor_does_raises(visit, seed):
    chance, page, story = random.Random(seed), visit(), []
    try:
        for _ in range(RUNS):
            words, step = some_step(chance, page)
            story.append(words)
            step()
            assert page.chart.alt
            assert "nan" not in page.markdown
            assert bool(page.at.error) == bool(page.why)
    except Exception as error:
        error.add_note("What was done:\n" + "\n".join(story[-20:]))
        raise
