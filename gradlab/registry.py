"""A choice the user can make: its title, one line of help and the function that carries it out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class Choice(Generic[F]):
    """One entry of a registry; `build` does what the title says."""

    title: str
    help: str
    build: F
