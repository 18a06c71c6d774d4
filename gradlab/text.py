"""Numbers as a reader wants them."""

from __future__ import annotations

import math


def short_number(value: float | None) -> str:
    """The value to three significant digits: `0.122`, `12.3`, `5.05e-3`; a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.2e}".split("e")
    power = int(exponent)
    if -3 < power < 4:
        return f"{float(f'{value:.2e}'):.{max(2 - power, 0)}f}"
    return f"{mantissa}e{power}"


def in_words(name: str) -> str:
    """A name of the code as it is read: `all_zero` as `all zero`, `non_finite` as `non-finite`."""
    return name.replace("non_", "non-").replace("_", " ")


def counted(number: int, noun: str) -> str:
    """The number with its noun: `1 seed`, `1,000 seeds`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def share_left(fraction: float) -> str:
    """How much of a signal is left, in words that survive rounding: `64 %`, `2.3 %`, `less than a millionth`."""
    if fraction >= 1e-3:
        return f"{100 * fraction:.2g} %"
    bounds = {"thousandth": 1e-6, "millionth": 1e-9, "billionth": 0.0}
    return f"less than a {next((name for name, bound in bounds.items() if fraction > bound), 'billionth')}"
