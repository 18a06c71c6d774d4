"""Who works when on a server that many share: pages run one at a time, and heavy work waits for other heavy work."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

PAGES_AT_ONCE = 1
"""Pages share one interpreter: more of them at once finish no sooner, and spend their time handing it, and the locks that
Streamlit takes for every element, back and forth. With a hundred visitors that costs more than the pages themselves."""
LIGHT_PRODUCTS = 20_000_000
"""Weights × batch size up to which an experiment takes some milliseconds, so that nobody notices a neighbour's."""

_PAGES = threading.Semaphore(PAGES_AT_ONCE)
_HEAVY = threading.Lock()
_of_this_thread = threading.local()


@contextlib.contextmanager
def page_in_turn() -> Iterator[None]:
    """A page's run, or that of a part of it that runs by itself, when it is its turn; Streamlit runs each in a thread."""
    if getattr(_of_this_thread, "runs", False):  # a part, drawn with its page
        yield
        return
    _PAGES.acquire()
    _of_this_thread.runs = _of_this_thread.has_a_place = True
    try:
        yield
    finally:
        step_aside()
        _of_this_thread.runs = False


def step_aside() -> None:
    """Let another page run beside this one, from now on to its end: before it does, or waits for, what takes long.

    It does not ask for its place back: whoever has one may be waiting for what this page is about to compute.
    """
    if getattr(_of_this_thread, "has_a_place", False):
        _of_this_thread.has_a_place = False
        _PAGES.release()


@contextlib.contextmanager
def taking_turns(products: float) -> Iterator[None]:
    """Heavy work waits for other heavy work: however many ask for the largest network, one core stays for everybody else.

    Inside, nothing may be asked of a cache: somebody may hold its lock who waits for this turn to end.
    """
    if products <= LIGHT_PRODUCTS:
        yield
    else:
        step_aside()
        with _HEAVY:
            yield
