"""The pages of the course in order, and what each is there for."""

from __future__ import annotations

from dataclasses import dataclass

from gradlab.errors import GradlabError, listed, shorten


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page: its name in the menu, its question as the title, the topics it covers and its purpose in one sentence."""

    key: str
    menu: str
    title: str
    purpose: str
    covers: tuple[str, ...]


TOPICS = {
    "A1": "predict first",
    "A2": "the three stages",
    "A3": "one number per weight layer",
    "A4": "the backward trail",
    "A5": "reading a printed list",
    "A6": "why it matters",
    "A7": "shortcuts",
    "A8": "common mistakes when reading",
    "A9": "where the prediction breaks",
    "A10": "takeaways on weight gradients",
    "B1": "two different gradients",
    "B2": "the reliable pattern: tensor hooks",
    "B3": "full backward hooks",
    "B4": "one activation: retain_grad",
    "B5": "the methods side by side",
    "B6": "what to look for",
    "B7": "common mistakes when capturing",
    "B8": "takeaways on output gradients",
}
"""Lesson A is about weight gradients along depth, lesson B about output gradients."""

PAGES: dict[str, Page] = {
    page.key: page
    for page in (
        Page(
            key="start",
            menu="Start",
            title="Where does the signal thin out?",
            purpose="A measured trail at once, and the ways in.",
            covers=(),
        ),
        Page(
            key="predict",
            menu="Predict",
            title="What do you expect before anything is measured?",
            purpose="You commit to an answer and how sure you are, then hold it against the measurement.",
            covers=("A1",),
        ),
        Page(
            key="measure",
            menu="Measure",
            title="What does one backward pass leave behind?",
            purpose="The three stages one by one, and how a matrix of gradients becomes one number.",
            covers=("A2", "A3"),
        ),
        Page(
            key="trail",
            menu="Trail",
            title="In which order does the gradient visit the layers?",
            purpose="You follow the gradient in order of arrival, read a printed list in four steps, and see what moves.",
            covers=("A4", "A5", "A6"),
        ),
        Page(
            key="shortcuts",
            menu="Shortcuts",
            title="What changes when a layer's input is added to its output?",
            purpose="Two networks that differ in one thing, both trails in one chart, and where they part.",
            covers=("A7",),
        ),
        Page(
            key="outputs",
            menu="Output gradients",
            title="What arrives at a layer's output?",
            purpose="The gradient that flows backward beside the one that is stored, with their shapes.",
            covers=("B1", "B2", "B3", "B4", "B6"),
        ),
        Page(
            key="methods",
            menu="Capture methods",
            title="Do three ways of looking see the same gradient?",
            purpose="The capture methods side by side, and the switches that make them part.",
            covers=("B5",),
        ),
        Page(
            key="mistakes",
            menu="Mistakes",
            title="What goes wrong when gradients are read?",
            purpose="Each common mistake made live, with its damage measured, and a checklist to take along.",
            covers=("A8", "B7"),
        ),
        Page(
            key="challenge",
            menu="Challenge",
            title="Where does the prediction break?",
            purpose="You name the layer and the direction where the network with shortcuts departs from steady shrinking.",
            covers=("A9",),
        ),
        Page(
            key="takeaways",
            menu="Takeaways",
            title="What do you take home?",
            purpose="What was measured beside what was claimed, and what to look at again.",
            covers=("A10", "B8"),
        ),
    )
}
"""By key, in the order of the course."""


def position(page: str) -> int:
    """The place of a page in the course, from 0; raises GradlabError for a page that is not in it."""
    if page not in PAGES:
        raise GradlabError(f"{shorten(page)} is no page of the course; allowed: {listed(PAGES)}")
    return list(PAGES).index(page)


def page_after(page: str) -> Page | None:
    """The next page of the course; None after the last. Raises GradlabError for a page that is not in it."""
    following = list(PAGES.values())[position(page) + 1 :]
    return following[0] if following else None
