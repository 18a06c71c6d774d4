"""A visitor who presses everything in no order, with a liking for odd input: nothing may raise, every picture has words."""

import random
import re

import pytest
from widget_values import some_link, some_state

from gradlab.spec import FIELDS
from gradlab.ui.links import accept, pages_of
from gradlab.ui.pages import TITLES, in_menu

STEPS = 65
COSTLY = ("seeds", "depth")
"""Pages that measure hundreds of networks with every change: visited less often, and left soon."""
PLACES = [name for name in TITLES for _ in range(1 if name in COSTLY else 3)]
# Python's words for what is no number, outside of quotation marks: quoted they are what the visitor has typed.
NOT_FOR_READING = re.compile(r"(?<!['\"])\b(nan|inf|Traceback)\b(?!['\"])")


def widgets_of(page):
    return [element for element in page.at.main if hasattr(element, "_widget_state") and element.type != "download_button"]


def some_step(chance, page):
    """Something that a visitor may do here, and the words for it."""
    kind, widgets = chance.random(), widgets_of(page)
    if kind < (0.7 if page.name in COSTLY else 0.2) or not widgets:
        if chance.random() < 0.5:
            to, link = chance.choice(PLACES), some_link(chance)
            return f"follow a link to {to} with {link}", lambda: follow(page, to, link)
        to = chance.choice([name for name in PLACES if name in menu_of(page)])
        return f"choose {to} in the menu", lambda: page.go(to)
    forms = sorted({widget.form_id for widget in widgets} - {""})
    if forms and chance.random() < 0.25:
        form = chance.choice(forms)
        doings = [
            some_state(chance, widget)
            for widget in widgets
            if widget.form_id == form and (widget.type == "button" or chance.random() < 0.9)
        ]
    else:
        doings = [some_state(chance, chance.choice([widget for widget in widgets if not widget.form_id]))]
    return "; ".join(words for words, _ in doings), lambda: page.send(page.states_with([state for _, state in doings]))


def menu_of(page):
    """What the menu offers; the address does not say it after a choice of the very page one is on."""
    return in_menu(pages_of(str(page.at.session_state["chosen"].get("pages", "")))[0])


def follow(page, to, link):
    """Back or forward in the browser's history, or where the menu has no such page, what a reload comes to."""
    if to not in menu_of(page):
        page.begin("gradlab/ui/entry.py", "http://localhost/").run()
    page.go(to, **link)


def experiment_in(link):
    return {name: value for name, value in link.items() if name in FIELDS}


@pytest.mark.parametrize("seed", range(1, 7))
def test_nothing_a_visitor_does_raises(visit, seed):
    chance, page, story = random.Random(seed), visit(), []
    try:
        for _ in range(STEPS):
            words, step = some_step(chance, page)
            story.append(words)
            before = page.link
            step()
            if before.get("controls", "open") != "open" and not words.startswith("follow"):
                assert experiment_in(page.link) == experiment_in(before)  # locked is locked, whatever a browser sends
            assert page.title.endswith("?")
            assert page.charts
            assert all(chart.alt for chart in page.charts)
            assert NOT_FOR_READING.findall(page.said) == []
            assert accept(page.link)[1] == []  # whatever came in, the link that goes out is a good one
    except Exception as error:
        error.add_note("What was done:\n" + "\n".join(story[-20:]))
        raise
