"""The forward half of the bookkeeping: which layer returned what, and in which round.

A *round* is the forward calls between one backward pass and the next; calls are counted within it. Outputs remember
their round, so a later backward over an earlier graph finds its calls again. What is kept of an output is its place and
its shape, never the tensor: the graph owns the hook, and the two go together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from gradlab.capture import engine
from gradlab.capture.averages import Averages, running_wrapper
from gradlab.capture.parameters import WatchedParameters
from gradlab.capture.passes import RUN_AGAIN, Pass, Replay, Round
from gradlab.capture.structures import search, tensors_in
from gradlab.capture.watched import Layer, Output
from gradlab.capture.watcher import Watcher


class ForwardRecorder(ABC):
    """What the layers of a model returned since the capture began, as long as a gradient can reach it."""

    def __init__(self, layers: Mapping[str, nn.Module], hidden: Mapping[str, str], wanted: Callable[[], bool]) -> None:
        self.layers = [Layer(self, name, module, place) for place, (name, module) in enumerate(layers.items())]
        for layer in self.layers:
            layer.hidden = hidden.get(layer.name, "")
        self.wanted = wanted
        self.round = Round(0, wanted=True)
        self.between_rounds = True
        self.home = engine.current_task()
        """The backward call inside which the capture began, if it did."""
        self.running: tuple[int, Pass | None] = (engine.NO_TASK, None)
        """The backward call seen last, and its pass."""
        self.averages: Averages | None = None
        """Which parameters' gradients are averaged over processes; None where none are."""
        self.watcher: Watcher
        self.parameters: WatchedParameters
        self.latest_view: tuple[Callable[[], Tensor | None], Layer | None] = (lambda: None, None)
        """The view that a layer returned last, and the layer that returned it first."""
        self._earlier_rounds: list[Round] = []
        self._checkpoints: WeakKeyDictionary[object, list[Output]] = WeakKeyDictionary()

    @abstractmethod
    def running_pass(self) -> Pass:
        """The pass that the backward call now running belongs to."""

    @abstractmethod
    def drop_interrupted(self, calls: Sequence[engine.Call]) -> None:
        """Forget passes of this thread that an exception ended: those of other backward calls than these."""

    @abstractmethod
    def warn_once(self, key: str, message: str) -> None:
        """Give this warning unless one with this key was given."""

    def open_round(self) -> None:
        """Begin to count calls anew, unless the round before is still waiting for its backward."""
        self.drop_interrupted(())
        if self.round.closed:
            for output in self.round.leaves:  # a leaf outlives the round, and so would its hook
                output.detach()
            self._earlier_rounds = [r for r in (*self._earlier_rounds, self.round) if self._still_reachable(r)]
            self.round = Round(self.round.number + 1, wanted=True)
        self.round.wanted = self.wanted()
        self.between_rounds = False
        if (around := running_wrapper()) is not None:
            self.averages = Averages([around]) if self.averages is None else self.averages.joined_by(around)
        if self.round.wanted:
            self.parameters.find_new()

    @staticmethod
    def _still_reachable(earlier: Round) -> bool:
        if any(output.alive for output in earlier.outputs):
            return True
        earlier.forget_outputs()
        return False

    def await_gradient(self, layer: Layer, path: str, tensor: Tensor) -> None:
        """Take note of a tensor that a layer has returned."""
        watcher, current = self.watcher, layer.round or self.round
        output = (watcher.view_type if tensor._is_view() else watcher.output_type)(current, layer, path, tensor)
        current.outputs.append(output)
        if output.tracked:
            watcher.watch(output, tensor)
            if tensor.is_leaf:
                current.leaves.append(output)
        elif not torch.is_grad_enabled():
            # A re-entrant checkpoint runs its forward without grad and again, with grad, inside backward.
            for context in engine.function_contexts():
                self._checkpoints.setdefault(context, []).append(output)
        if len(current.outputs) > current.limit:
            current.trim(awaited={id(each) for waiting in self._checkpoints.values() for each in waiting})

    def await_parts(self, layer: Layer, returned: object) -> None:
        """Take note of every tensor in what a layer has returned."""
        self.watcher.check(layer, returned)
        tensors, left_out = search(returned)
        for path, tensor in tensors:
            self.await_gradient(layer, path, tensor)
        if left_out:
            self.warn_once(
                f"search {layer.name}",
                f"layer {layer.name!r}: the {type(returned).__name__} it returned holds {left_out}; tensors beyond them were"
                " not looked for and have no record: return them in a smaller object",
            )
        if not tensors:
            self.note_unmeasurable(layer, f"no tensor was found in the {type(returned).__name__} it returned")

    def note_unmeasurable(self, layer: Layer, note: str) -> None:
        """Take note of a call that no gradient can be measured of."""
        current = layer.round or self.round
        output = Output(current, layer, "0", None)
        output.note = note
        current.outputs.append(output)

    def recomputed(self, layer: Layer, returned: object) -> None:
        """A forward inside backward is a checkpoint's second run of a call that was counted already.

        A non-re-entrant checkpoint leaves the hooks of the first run in place, so nothing is to be done; a re-entrant
        one builds the graph only now.
        """
        source, inside = engine.replayed_context()
        if source is None:
            return
        running = self.running_pass()  # now, as the first gradient may arrive in a backward call inside this one
        if source not in self._checkpoints:
            self._withhold_unknown(layer, running)
            return
        if not isinstance(returned, Tensor):
            self.watcher.check(layer, returned)
        if (replay := running.replays.get(source)) is None:
            replay = running.replays[source] = Replay(self._checkpoints[source], running)
        for path, tensor in tensors_in(returned):
            output = replay.first_run(layer, path)
            if output is None:
                continue
            if tensor.requires_grad:
                output.tracked = True
                running.replayed.add(output)
                self.watcher.watch(output, tensor)
            for context in inside:  # a checkpoint inside a checkpoint: it is run without grad once more
                self._checkpoints.setdefault(context, []).append(output)

    def _withhold_unknown(self, layer: Layer, running: Pass) -> None:
        """Withhold a layer's calls without grad: a function runs it again, whose context could not be seen in the first run."""
        unknown = [output for output in self.round.outputs if output.layer is layer and not output.tracked]
        running.withheld.update(dict.fromkeys(unknown, RUN_AGAIN))
