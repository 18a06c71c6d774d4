"""The errors and warnings gradlab raises on purpose."""

from collections.abc import Iterable


class GradlabError(Exception):
    """Anything gradlab refuses, in the user's words."""


class SpecError(GradlabError, ValueError):
    """A specification that cannot be built: names the field, the value and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.field = field
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.field} = {shorten(self.value)} is not possible; allowed: {self.allowed}"


class CaptureError(GradlabError, RuntimeError):
    """A capture that cannot give a right number: names the layer and what to do instead."""


class CaptureWarning(UserWarning):
    """Something a capture could not observe: names the layer, what happened and what to do."""


def shorten(value: object, limit: int = 60) -> str:
    """The value's repr, cut to `limit` characters, so that a message stays readable whatever was passed in."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def listed(names: Iterable[str], conjunction: str = "or") -> str:
    """At least one name as a sentence fragment: "a, b or c"."""
    *most, last = names
    return f"{', '.join(most)} {conjunction} {last}" if most else last
