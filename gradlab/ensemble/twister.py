"""The first random numbers of many seeds at once, equal to those of `torch.Generator`, bit for bit.

To seed a generator fills 624 numbers of state, each from the one before it, for what may be a few dozen draws. Here every
step is taken for all seeds together, and only as far as the draws need: a fifth of the time. The generator is MT19937
(Matsumoto and Nishimura, ACM TOMACS 8, 1998, with the seeding of 2002).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIDDLE = 397
MOST_NUMBERS = 624 - MIDDLE
"""Up to here a number is made of the seeded state alone; the next ones are made of numbers drawn before."""
AT_ONCE = 4096
"""Seeds whose state stays in the cache."""


def uniform_numbers(seeds: Sequence[int], count: int) -> NDArray[np.float32]:
    """What `uniform_` draws from 0 to 1 for each seed: float32 of shape (seeds, count), of at most `MOST_NUMBERS`."""
    if not 0 <= count <= MOST_NUMBERS:
        raise ValueError(f"count must be from 0 to {MOST_NUMBERS}, got {count}")
    result = np.empty((len(seeds), count), np.float32)
    for start in range(0, len(seeds), AT_ONCE):
        part = np.array(seeds[start : start + AT_ONCE], np.uint32)
        # float32 takes the lowest 24 bits of a number.
        result[start : start + AT_ONCE] = (_numbers(part, count) & np.uint32(0xFFFFFF)).T
    result *= np.float32(2**-24)
    return result


def _numbers(seeds: NDArray[Any], count: int) -> NDArray[Any]:
    """The first 32-bit numbers of each seed: (count, seeds)."""
    state = np.empty((MIDDLE + count, len(seeds)), np.uint32)
    state[0] = seeds
    for step in range(1, len(state)):
        before, here = state[step - 1], state[step]
        np.right_shift(before, np.uint32(30), out=here)
        here ^= before
        here *= np.uint32(1812433253)
        here += np.uint32(step)
    first, following, far = state[:count], state[1 : count + 1], state[MIDDLE:]
    mixed = (first & np.uint32(0x80000000)) | (following & np.uint32(0x7FFFFFFF))
    number: NDArray[Any] = far ^ (mixed >> np.uint32(1)) ^ ((mixed & np.uint32(1)) * np.uint32(0x9908B0DF))
    number ^= number >> np.uint32(11)
    number ^= (number << np.uint32(7)) & np.uint32(0x9D2C5680)
    number ^= (number << np.uint32(15)) & np.uint32(0xEFC60000)
    number ^= number >> np.uint32(18)
    return number
