"""Who works when: pages a few at a time, heavy work alone, and nobody waits for somebody who waits for them."""

import math
import threading
import time

import pytest

from gradlab.ui import turns
from gradlab.ui.turns import PAGES_AT_ONCE, page_in_turn, step_aside, taking_turns

LONG = 10.0


def in_threads(count, work):
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def all_end(threads):
    until = time.monotonic() + LONG
    for thread in threads:
        thread.join(max(0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def free_places():
    free = 0
    while turns._PAGES.acquire(blocking=False):
        free += 1
    if free:
        turns._PAGES.release(free)
    return free


@pytest.fixture(autouse=True)
def every_place_is_free_afterwards():
    yield
    assert free_places() == PAGES_AT_ONCE


class Together:
    """How many threads are inside it at once, at the most."""

    def __init__(self):
        self.inside, self.most, self.lock = 0, 0, threading.Lock()

    def __enter__(self):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *error):
        with self.lock:
            self.inside -= 1


def test_a_part_drawn_with_its_page_needs_no_place_of_its_own():
    seen = []

    def page(number):
        with page_in_turn():
            with page_in_turn():
                seen.append(free_places())
            seen.append(free_places())  # the part has not given the page's place away
            step_aside()
            with page_in_turn():
                seen.append(free_places())  # nor does it ask for one back
        with page_in_turn():  # by itself it takes one
            seen.append(free_places())

    assert all_end(in_threads(1, page))
    assert seen == [PAGES_AT_ONCE - 1, PAGES_AT_ONCE - 1, PAGES_AT_ONCE, PAGES_AT_ONCE - 1]


def test_so_many_pages_run_at_once_and_all_of_them_run():
    together, done = Together(), []

    def page(number):
        with page_in_turn():
            with together:
                time.sleep(0.005)
            done.append(number)

    assert all_end(in_threads(20, page))
    assert together.most == PAGES_AT_ONCE
    assert sorted(done) == list(range(20))


def test_an_exception_gives_the_place_back():
    for _ in range(3 * PAGES_AT_ONCE):
        with pytest.raises(KeyError), page_in_turn():
            raise KeyError("page")


def test_a_page_that_steps_aside_gives_its_place_to_another_once():
    with page_in_turn():
        step_aside()
        step_aside()
    step_aside()  # a page that runs without the entry never had one


def test_heavy_work_leaves_its_place_and_waits_for_other_heavy_work():
    together = Together()

    def heavy(number):
        with page_in_turn(), taking_turns(math.inf), together:
            time.sleep(0.02)

    threads = in_threads(6, heavy)
    light = in_threads(20, lambda number: page_in_turn().__enter__() or step_aside())
    assert all_end(light)
    assert any(thread.is_alive() for thread in threads)
    assert all_end(threads)
    assert together.most == 1


def test_pages_that_wait_for_what_a_heavy_page_computes_do_not_hold_it_up():
    """As with a cache: the lock of a value is held while it is computed, by a page that has stepped aside meanwhile."""
    value, begun = threading.Lock(), threading.Event()

    def computing(number):
        with page_in_turn(), value:
            with taking_turns(math.inf):
                begun.set()
                time.sleep(0.05)
            time.sleep(0.01)  # goes on after its turn, while the others have all the places

    def waiting(number):
        begun.wait()
        with page_in_turn(), value:
            pass

    assert all_end(in_threads(1, computing) + in_threads(3 * PAGES_AT_ONCE, waiting))
