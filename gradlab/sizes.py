"""The sizes of a network's layers as text, as they stand in the CSV, in a link and in a control."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from gradlab.errors import SpecError, shorten

MAX_LAYERS = 200


def sizes_to_text(sizes: Sequence[int]) -> str:
    """Layer sizes as text: `3-3-3-3-3-1`; six or more equal sizes in a row are written as `64x21`."""
    runs = [(size, len(list(run))) for size, run in groupby(sizes)]
    return "-".join(f"{size}x{count}" if count > 5 else "-".join([str(size)] * count) for size, count in runs)


def sizes_from_text(text: str) -> tuple[int, ...]:
    """Layer sizes from text such as `3-3-1`, `3, 3, 1`, `64x21` or `3-64x20-1` (`AxB`: the size A, B times)."""
    if not re.fullmatch(r"\s*\d{1,6}(\s*[x×*]\s*\d{1,6})?([\s,;>→-]+\d{1,6}(\s*[x×*]\s*\d{1,6})?)*\s*", text):
        raise SpecError("layer_sizes", text, "whole numbers joined by '-', such as 3-3-1 or 64x21 (64, 21 times)")
    sizes: list[int] = []
    for size, times in re.findall(r"(\d+)(?:\s*[x×*]\s*(\d+))?", text):
        count = int(times or 1)
        if not count:
            raise SpecError("layer_sizes", shorten(text), "a size at least once: AxB is the size A, B times")
        if len(sizes) + count > MAX_LAYERS + 1:
            raise SpecError("layer_sizes", shorten(text), f"at most {MAX_LAYERS} layers, so {MAX_LAYERS + 1} sizes")
        sizes += [int(size)] * count
    return tuple(sizes)
