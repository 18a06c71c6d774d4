"""The tensors inside what a layer returns or is given: tuples, mappings, data classes and plain objects, however nested."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from torch import Tensor, nn

MOST_VALUES = 100_000
"""So many values that are no tensors are looked at in what one call returned."""
DEEPEST = 1_000
"""So many objects inside each other are opened."""


class Found(NamedTuple):
    """The tensors in what a layer returned, each with its path, and what was too much to search."""

    tensors: list[tuple[str, Tensor]]
    left_out: str


def tensors_in(output: object) -> list[tuple[str, Tensor]]:
    """Every tensor in what a layer returned, with its path: "0" for a lone tensor, "1.0", "aux.value" inside others.

    Sequences count positions (named tuples too), mappings use their keys, data classes and plain objects the names of
    their attributes. Each object is opened once, where it is met first.
    """
    return search(output).tensors


def search(output: object) -> Found:
    """What `tensors_in` finds, and whether that is all."""
    tensors: list[tuple[str, Tensor]] = []
    paths: set[str] = set()
    opened: dict[int, object] = {}  # holding them: another must not come to stand at the address of one that is gone
    values_left, left_out = MOST_VALUES, ""
    under_way: list[tuple[str, Iterator[tuple[object, object]]]] = [("", iter([("", output)]))]
    while under_way:
        prefix, parts = under_way[-1]
        for key, value in parts:
            if isinstance(value, Tensor):
                path = (f"{prefix}.{key}" if prefix else str(key)) or "0"
                if path in paths:  # as of the keys 1 and "1"
                    path = next(other for n in count(2) if (other := f"{path} ({n})") not in paths)
                paths.add(path)
                tensors.append((path, value))
                continue
            values_left -= 1
            if not values_left:
                return Found(tensors, f"more than {MOST_VALUES:,} values that are no tensors")
            if value is None or isinstance(value, WITHOUT_TENSORS) or id(value) in opened:
                continue
            if len(under_way) > DEEPEST:
                left_out = f"more than {DEEPEST:,} objects inside each other"
                continue
            opened[id(value)] = value
            under_way.append((f"{prefix}.{key}" if prefix else str(key), _parts(value)))
            break
        else:
            under_way.pop()
    return Found(tensors, left_out)


WITHOUT_TENSORS = (str, bytes, bytearray, memoryview, range, int, float, complex, type, nn.Module)


def _parts(output: object) -> Iterator[tuple[object, object]]:
    if isinstance(output, Mapping):
        return iter(list(output.items()))
    if isinstance(output, Sequence | deque):
        return enumerate(output)
    slots = [name for kind in type(output).__mro__ for name in _names(getattr(kind, "__slots__", ()))]
    attributes = {name: getattr(output, name) for name in slots if hasattr(output, name)} | getattr(output, "__dict__", {})
    return iter(list(attributes.items()))


def _names(slots: str | Iterable[str]) -> Iterable[str]:
    return [slots] if isinstance(slots, str) else slots
