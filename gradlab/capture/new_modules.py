"""Modules that come into a model while it is watched: they are not watched, and that is said."""

from __future__ import annotations

from typing import Any

from torch import nn

from gradlab.capture.layers import Selection, Survey, number_of_modules
from gradlab.capture.watched import Layer
from gradlab.errors import listed

IN_ITS_PLACE = "another module has taken its place, and that one is not watched; begin a capture after the change"
ADDED = "what came later is not watched; begin a capture after the change"
SHOWN = 4
"""So many names at the most are listed in a warning."""


class NewModules:
    """Whether a model has other modules than when the capture began.

    PyTorch would tell, by a hook of the whole process that no thread may set while another builds a network. So the modules
    are counted now and then, and searched where the number has changed or a layer was not called.
    """

    def __init__(self, model: nn.Module, selection: Selection, number: int) -> None:
        self._model: nn.Module | None = model
        self._selection = selection
        self._number = number
        self._passes = 0
        self._any = False

    def count_pass(self) -> None:
        """Count the modules after the second, fourth, eighth ... pass: to a long training it costs nothing."""
        self._passes += 1
        if self._passes > 1 and self._passes & (self._passes - 1) == 0:
            self.count()

    def count(self) -> None:
        """Have the model searched if it has more or fewer modules than when it was last looked at."""
        if self._model is not None and (number := number_of_modules(self._model)) != self._number:
            self._number, self._any = number, True

    def holds(self, layer: Layer) -> bool:
        """Whether the layer still is where its name says."""
        found = self._model
        for part in layer.name.split(".") if layer.name else ():
            modules: Any = {} if found is None else found._modules
            if part not in modules:
                return False
            found = modules[part]  # of a scripted module it is no dict
        return layer.stands_for(found)

    def look(self) -> None:
        """Have the model searched when `unwatched` is asked for next."""
        self._any = True

    def unwatched(self, layers: list[Layer]) -> dict[str, str]:
        """What is to be said, and of which layer, of those that are new since this was last asked; a replaced one is marked."""
        if not self._any or self._model is None:
            return {}
        self._any = False
        survey = Survey(self._model)
        replaced = [layer for layer in layers if not layer.stands_for(survey.named.get(layer.name))]
        for layer in replaced:
            layer.hidden = IN_ITS_PLACE
        said = {each.name: f"layer {each.name!r} was replaced inside the with block: {IN_ITS_PLACE}" for each in replaced}
        if self._selection is None or self._selection == "all":
            added = [
                name
                for name, module in survey.layers(self._selection).items()
                if name not in said and not any(layer.stands_for(module) for layer in layers)
            ]
            if added:
                names = listed(map(repr, added)) if len(added) <= SHOWN else f"{added[0]!r} and {len(added) - 1} others"
                said[added[0]] = f"layer {names} came into the model inside the with block: {ADDED}"
        return said

    def close(self) -> None:
        self._model = None
