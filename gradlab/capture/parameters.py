"""The parameters of a model under the names that they have now: while it is watched they are thawed, replaced, tied, pruned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from torch import nn

from gradlab.capture.layers import NamedParameter, Survey, is_held
from gradlab.capture.watched import Description, Parameter

if TYPE_CHECKING:
    from gradlab.capture.forward import ForwardRecorder

SHARDED = "fully sharded: no process has the whole gradient when it arrives; gather .grad after backward (full_tensor())"


class WatchedParameters:
    """Every watched parameter, each with a hook on the tensor that stands under its names."""

    def __init__(
        self, recorder: ForwardRecorder, named: Iterable[NamedParameter], model: nn.Module, among: Sequence[str] | None
    ) -> None:
        self._recorder: ForwardRecorder | None = recorder
        self._model: nn.Module | None = model
        """None once the capture has ended, as the recorder."""
        self._among = among
        """The layers whose parameters are watched; None for all."""
        self._sharded: tuple[str, ...] = ()
        self.descriptions: dict[Parameter, Description] = {}
        """Another dict after every change, and `now` another list after every survey: finished passes keep theirs."""
        self.now = [Parameter(recorder, each) for each in named]
        self._unsteady = [parameter for parameter in self.now if parameter.may_lose_its_names]
        self._refresh()

    def withhold_sharded(self, modules: Iterable[str]) -> None:
        """Give no gradients of parameters inside these modules, as none is whole when it arrives."""
        self._sharded = tuple(modules)
        self._mark_sharded()

    def _mark_sharded(self) -> None:
        for parameter in self.now if self._sharded else ():
            names = [name for name, _, _ in parameter.names]
            if any(not module or name.startswith(f"{module}.") for module in self._sharded for name in names):
                parameter.note = SHARDED

    def refresh(self) -> list[Parameter]:
        """Watch the tensors that stand under the names now; those for which that, or their kind, is new.

        Done when a backward begins: a hook put on a leaf then is still in time where a layer's output comes first, and by
        then a lazy parameter has its values, a frozen one may have been thawed, and a swapped one is back in its place.
        """
        if self._have_lost_names():
            self.survey_again()
        changed = self._refresh()
        if changed and self._are_called_otherwise():
            self.survey_again()
            changed += self._refresh()
        return changed

    def find_new(self) -> None:
        """Watch what has been thawed, or put in a parameter's place, by the time that a forward begins.

        Less than `refresh` looks for, and in time where the loss itself uses a parameter, whose gradient may come before
        that of any output. What is no leaf is there for this forward only, as in torch.func.functional_call.
        """
        new = [  # written out: every round asks
            p
            for p in self.now
            if (known := p.known) is None or p.holder.get(p.attribute) is not known or known.requires_grad is not p.hooked
        ]
        lasting = new and all((now := parameter.current) is None or now.is_leaf for parameter in new)
        if lasting or self._have_lost_names():
            self.refresh()

    def survey_again(self) -> None:
        """Look for the parameters anew: one has lost its name, as when it is pruned, or has been tied or untied."""
        if self._model is None or self._recorder is None:
            return
        known = {tuple(parameter.named.identity): parameter for parameter in self.now}
        self.now = [
            known.pop(key) if (key := tuple(named.identity)) in known else Parameter(self._recorder, named)
            for named in Survey(self._model).parameters(self._among)
        ]
        self._mark_sharded()
        self._unsteady = [parameter for parameter in self.now if parameter.may_lose_its_names]
        for gone in known.values():
            gone.release()

    def not_held(self, parameters: Iterable[Parameter]) -> list[Parameter]:
        """Those of which the module that held them has left the model."""
        model = self._model
        if model is None:
            return []
        return [p for p in parameters if p.named.places and not is_held(p.names[0][0], p.holder, model)]

    def close(self) -> None:
        """Leave no hook on the model, and no way back to it."""
        self._model = self._recorder = None
        for parameter in self.now:
            parameter.forget_model()

    def _refresh(self) -> list[Parameter]:
        changed = [parameter for parameter in self.now if parameter.refresh()]
        if changed:
            self.descriptions = {**self.descriptions, **{parameter: parameter.description for parameter in changed}}
        return changed

    def _have_lost_names(self) -> bool:
        return self._model is not None and any(p.has_lost_its_names(self._model) for p in self._unsteady)

    def _are_called_otherwise(self) -> bool:
        """Whether a parameter has gone from its place, or is in another's, too."""
        known = [id(parameter.known) for parameter in self.now if parameter.known is not None]
        return len(set(known)) < len(known) or any(parameter.current is None for parameter in self.now)
