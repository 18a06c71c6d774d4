"""A warning is caught in one thread and reaches all others as before."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from gradlab.lessons.thread_warnings import filtered_here


def test_a_matching_warning_is_raised_and_another_is_not():
    with filtered_here("error", "first"), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", append=True)
        with pytest.raises(UserWarning, match="first of all"):
            warnings.warn("first of all", UserWarning, stacklevel=1)
    with filtered_here("ignore", "first"):
        warnings.warn("first of all", UserWarning, stacklevel=1)
        with pytest.raises(UserWarning, match="second"):  # as the tests turn every warning into an error
            warnings.warn("second", UserWarning, stacklevel=1)
    assert heard == []


def test_another_thread_is_not_affected():
    def elsewhere():
        with pytest.raises(UserWarning, match="first"):
            warnings.warn("first", UserWarning, stacklevel=1)
        return threading.get_ident()

    with filtered_here("ignore", "first"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(elsewhere).result() != threading.get_ident()


def test_nothing_is_left_behind_even_where_the_list_of_filters_was_exchanged_meanwhile():
    before = list(warnings.filters)
    with pytest.raises(KeyError), filtered_here("error", "first"):
        raise KeyError
    assert warnings.filters == before
    exchanged = warnings.catch_warnings()
    block = filtered_here("error", "first")
    with block:
        exchanged.__enter__()
    assert warnings.filters == before
    exchanged.__exit__(None, None, None)
    assert warnings.filters == before


def test_a_copy_of_the_list_that_is_restored_later_ignores_nothing():
    before, first, second = list(warnings.filters), warnings.catch_warnings(), warnings.catch_warnings()
    with filtered_here("ignore", "first"):
        first.__enter__()
        second.__enter__()
    second.__exit__(None, None, None)
    try:
        with pytest.raises(UserWarning, match="first"):
            warnings.warn("first", UserWarning, stacklevel=1)
    finally:
        first.__exit__(None, None, None)
    assert warnings.filters == before
