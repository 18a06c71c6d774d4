"""One thread's warnings, caught without disturbing the others."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal


class _InThisThread:
    """The message pattern of a warning filter that matches in the thread that made it, and nowhere else."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._thread: int | None = threading.get_ident()

    def match(self, text: str) -> bool:
        return self._thread == threading.get_ident() and self._pattern.match(text) is not None

    def end(self) -> None:
        """Match nothing from now on, should another thread have copied the list of filters and restored it."""
        self._thread = None


@contextmanager
def filtered_here(action: Literal["error", "ignore"], pattern: str) -> Iterator[None]:
    """Raise or ignore this thread's UserWarnings that begin with `pattern`, for the length of a `with` block.

    `warnings.catch_warnings` replaces the whole process's list of filters until Python 3.14, and with it what the other
    sessions of a server see. Here one entry is added, which asks for the thread.
    """
    message = _InThisThread(pattern)
    filters: Any = warnings.filters
    entry: Any = (action, message, UserWarning, None, 0)
    filters.insert(0, entry)
    try:
        yield
    finally:
        message.end()
        current: Any = warnings.filters
        for entries in (filters, current):
            if entry in entries:
                entries.remove(entry)
