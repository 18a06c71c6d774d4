"""Outputs that are views: of what another tensor holds, or of a tensor that the layer has made and not shown.

Once a view or its base is changed in place, autograd rebases the view: what follows reaches the base past the place in the
graph that the view had, and past the hook there (CopySlices, https://github.com/pytorch/pytorch/pull/117552). With a bias,
`nn.Linear` returns a view wherever its input has three dimensions.
"""

from __future__ import annotations

import math
from weakref import ref

import torch
from torch import Tensor

from gradlab.capture.engine import is_wrapped
from gradlab.capture.watched import Inert, MarkedOutput, Output, attach

CHANGED_VIEW = (
    "it is a view of another tensor, and one of the two was changed in place after the layer returned it: part of the gradient"
    " may go past it unseen; do without the change in place, or return a copy (.clone())"
)
HOOKED_VIEW = (
    "it is a view, was changed in place after the layer returned it, and has a hook besides: what the hook lets through cannot"
    " be told from what goes past it; do without the change in place, or return a copy (.clone())"
)
_NOTHING = torch.empty(0)


class ViewOutput(Output):
    """An output that is a view: its hook sees what arrives as long as nobody changes it in place, the base's hook the rest.

    Where the layer made the base, nobody else uses it: its gradient is the view's in another shape, with what passes
    through changes in place. It is not read otherwise, as hooks on the view may replace what goes on to the base.
    """

    # Every biased linear layer of a transformer has one for each call: hence no detours.
    __slots__ = ("_counter", "_maker", "_version", "_view_hooks")

    def attach(self, tensor: Tensor) -> None:
        self._counter: Tensor | None = None
        self._hooks = self._view_hooks = attach(self, tensor)
        base = tensor._base
        if base is None or base.is_leaf:  # autograd forbids to change a view of a leaf
            return
        try:
            # It has the version counter of the view and its base, and none of their memory.
            counter = tensor.detach()
            counter.data = _NOTHING if tensor.is_cpu else tensor.new_empty(0)
        except (RuntimeError, TypeError):  # a subclass that cannot be emptied: its changes go unnoticed
            return
        self._counter, self._version = counter, counter._version
        recorder, self._maker = self.layer.recorder, self.layer
        if recorder is None:
            return
        latest, maker = recorder.latest_view
        if maker is not None and latest() is tensor:  # what works in place returns what another layer made
            self._maker = maker
        else:
            recorder.latest_view = ref(tensor), self.layer
        self._hooks = attach(self, base, self.at_base)  # as long as these are alive, a gradient can arrive

    def detach(self) -> None:
        super().detach()
        if self._hooks is not None and (hooks := self._view_hooks()) is not None:
            hooks.pop(self, None)

    @property
    def changed(self) -> bool:
        """Whether it or its base has been changed in place since the layer returned it."""
        return self._counter is not None and self._counter._version != self._version

    def __call__(self, gradient: Tensor | None) -> None:
        recorder = self.layer.recorder
        if not self.changed:
            super().__call__(gradient)
        elif gradient is not None and recorder is not None:
            # Not all of it: the base tells, unless another hook here may replace what goes on to the base.
            alone = all(isinstance(hook, Inert) for hook in (self._view_hooks() or {}).values())
            recorder.running_pass().withheld[self] = CHANGED_VIEW if alone else HOOKED_VIEW

    def at_base(self, gradient: Tensor | None) -> None:
        """The hook on the base."""
        recorder = self.layer.recorder
        if not self.changed or gradient is None or recorder is None:
            return
        running = recorder.running_pass()
        if running.withheld.get(self) == HOOKED_VIEW:
            return
        if self._maker.makes_its_output and self.shape is not None and gradient.numel() == math.prod(self.shape):
            running.withheld.pop(self, None)
            running.add(self, gradient if is_wrapped(gradient) else gradient.detach().reshape(self.shape))
        else:
            running.withheld[self] = CHANGED_VIEW


class MarkedView(ViewOutput, MarkedOutput):
    """A view whose gradient the method gets elsewhere."""

    __slots__ = ()

    __call__ = MarkedOutput.__call__

    def at_base(self, gradient: Tensor | None) -> None:
        if self.changed:
            self(gradient)
