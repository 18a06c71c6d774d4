"""`capture_gradients`: watch a model's gradients for the length of a `with` block."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsFloat

from torch import nn

from gradlab.capture import engine
from gradlab.capture.averages import Averages
from gradlab.capture.full_backward_hooks import FullBackwardHooks
from gradlab.capture.layers import Selection, Survey
from gradlab.capture.new_modules import NewModules
from gradlab.capture.passes import Pass
from gradlab.capture.recorder import Recorder
from gradlab.capture.records import BackwardPass
from gradlab.capture.reporting import output_records, parameter_records
from gradlab.capture.retain_grad import RetainGrad
from gradlab.capture.tensor_hooks import TensorHooks
from gradlab.capture.watched import Inert, Untraced
from gradlab.capture.watcher import Watcher
from gradlab.errors import CaptureError, CaptureWarning, listed, shorten
from gradlab.registry import Choice
from gradlab.spec import CaptureMethod

if TYPE_CHECKING:
    import pandas


CAPTURE_METHODS: dict[CaptureMethod, Choice[Callable[[Recorder, dict[str, nn.Module]], Watcher]]] = {
    CaptureMethod.TENSOR_HOOKS: Choice(
        "Tensor hooks", "A forward hook puts a tensor hook on every layer's output: right for any model.", TensorHooks
    ),
    CaptureMethod.RETAIN_GRAD: Choice(
        "retain_grad()", "Keep the output, read its .grad after backward: for a look at one activation.", RetainGrad
    ),
    CaptureMethod.FULL_BACKWARD_HOOKS: Choice(
        "Full backward hooks",
        "A hook on the module gives grad_output; no in-place changes, no nested outputs, and layers get wrapped tensors.",
        FullBackwardHooks,
    ),
}


def capture_gradients(
    model: nn.Module,
    method: str = CaptureMethod.TENSOR_HOOKS,
    layers: Selection = None,
    keep_passes: int | None = 100,
    keep_gradients: bool = False,
    loss_scale: SupportsFloat | Callable[[], SupportsFloat] = 1.0,
) -> GradientCapture:
    """A context manager that records the gradient at every layer's output and of every parameter of `model`.

        with capture_gradients(model) as capture:
            loss_fn(model(x), y).backward()
        capture.table()

    `method` is tensor_hooks, retain_grad or full_backward_hooks; the last has PyTorch wrap what layers take and return, so
    that a model which compares tensors by `is`, sets attributes on them or catches errors may compute another loss.
    `layers`: None for leaf modules and modules that own parameters, "all" for every module (the root is ""), or names. The
    latest `keep_passes` backward passes are kept (None: all). With `keep_gradients` the records hold copies of the
    gradients. `loss_scale` is what the loss was multiplied by (a number, or a function such as `scaler.get_scale`);
    readings are divided by it.

    Nothing is attached before the block begins, and nothing is left when it ends. Inside it the model cannot be compiled
    with fullgraph=True nor be scripted, as the hooks run outside such code; fake tensors have no numbers. Raises
    CaptureError for an unknown method or layer, and where a method cannot give a right number.
    """
    return GradientCapture(model, method, layers, keep_passes, keep_gradients, loss_scale)


class GradientCapture:
    """The passes recorded so far; `capture_gradients` says how it is used."""

    def __init__(
        self,
        model: nn.Module,
        method: str,
        layers: Selection,
        keep_passes: int | None,
        keep_gradients: bool,
        loss_scale: SupportsFloat | Callable[[], SupportsFloat],
        *,
        wanted: Callable[[], bool] = lambda: True,
        when_finished: Callable[[Pass], None] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise CaptureError(f"a capture watches a torch.nn.Module, not {shorten(model)}")
        if method not in list(CaptureMethod):
            raise CaptureError(f"there is no capture method {shorten(method)}; there are {listed(CaptureMethod)}")
        if keep_passes is not None and (isinstance(keep_passes, bool) or not isinstance(keep_passes, int) or keep_passes < 1):
            raise CaptureError(f"keep_passes = {shorten(keep_passes)} is not possible; a whole number from 1, or None for all")
        self._model: nn.Module | None = model
        self._method = CaptureMethod(method)
        self._layers = layers
        self._keep_passes = keep_passes
        self._keep_gradients = keep_gradients
        self._loss_scale = partial(_positive, loss_scale)
        if not callable(loss_scale):
            self._loss_scale()
        self._wanted = wanted
        self._when_finished = when_finished
        self._recorder: Recorder | None = None
        self._ended: str | None = None
        self._attached: list[tuple[dict[int, Callable[..., Any]], Inert]] = []
        """The hooks on modules, each with the dict that holds it."""
        self._converted: dict[int, tuple[Pass, BackwardPass]] = {}

    def __enter__(self) -> Self:
        if self._model is None or self._recorder is not None:
            raise CaptureError("a capture is entered once; make a new one with capture_gradients")
        survey = Survey(self._model)
        modules = survey.layers(self._layers)
        among = None if self._layers in (None, "all") else list(modules)
        try:
            self._recorder = recorder = Recorder(
                modules,
                survey.parameters(among),
                self._model,
                among,
                survey.hidden_layers(),
                keep_passes=self._keep_passes,
                keep_gradients=self._keep_gradients,
                loss_scale=self._loss_scale,
                wanted=self._wanted,
                averages=Averages(averaging) if (averaging := survey.averaging()) else None,
            )
            recorder.parameters.withhold_sharded(survey.sharded())
            recorder.new_modules = NewModules(self._model, self._layers, len(survey.named))
            recorder.when_finished = self._when_finished
            recorder.watcher = CAPTURE_METHODS[self._method].build(recorder, modules)
            call = engine.untraced_call()
            for layer, module in zip(recorder.layers, modules.values(), strict=True):
                # What module.register_forward_hook does, without the handle, which takes a third of all the time until here;
                # and a scripted module forbids that, yet calls the hook when it is called.
                hook = layer if call is None else Untraced(layer, call)
                module._forward_hooks[id(hook)] = hook
                self._attached.append((module._forward_hooks, hook))
        except BaseException:
            self._detach()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._recorder is not None
        recorder, diagnosis = self._recorder, self._why_nothing()
        watcher, said = recorder.watcher, recorder.news() if error is None else {}
        self._detach()
        self._ended = diagnosis
        for name, message in said.items():
            recorder.warn_once(name, message)
        if error is None:
            if not recorder.passes:
                warnings.warn(f"no gradient was captured: {diagnosis}", CaptureWarning, stacklevel=2)
            return
        explanation = watcher.explain(error)
        if explanation is not None:
            raise explanation from error
        if isinstance(error, RuntimeError) and "does not require grad" in str(error):
            error.add_note(f"gradlab: {diagnosis}")
        elif engine.is_from_compiler(error):
            error.add_note(f"gradlab: {engine.FULLGRAPH}")

    def _detach(self) -> None:
        for hooks, hook in self._attached:
            hooks.pop(id(hook), None)
        self._attached.clear()
        if self._recorder is not None:
            self._recorder.close()
        self._model = None

    def _why_nothing(self) -> str:
        """Why no backward pass reached the model, as far as its forward calls tell."""
        if self._ended is not None:
            return self._ended
        recorder = self._recorder
        if recorder is None:
            return "the capture was not entered: use it in a with statement"
        if not recorder.round.called:
            return "no layer of the model ran inside the with block"
        if any(output.tracked and not output.note for output in recorder.round.outputs):
            return (
                "the layers ran, but no backward call reached them inside the with block; call loss.backward() there, on a"
                " loss that is computed from the model's output and neither detached nor rebuilt from a number"
            )
        if note := next((output.note for output in recorder.round.outputs if output.note), ""):
            return f"no gradient of the layers that ran can be measured: {note}"
        if not any((leaf := parameter.current) is not None and leaf.requires_grad for parameter in recorder.parameters.now):
            return "every parameter is frozen (requires_grad is False), so autograd tracked no layer"
        return "the layers ran without gradient tracking; run the model outside torch.no_grad() and inference_mode()"

    # --- what was recorded --------------------------------------------------------------------------------------------

    @property
    def passes(self) -> tuple[BackwardPass, ...]:
        """The backward passes so far in order, the latest `keep_passes` of them."""
        if self._recorder is None:
            return ()
        finished = self._recorder.passes
        self._converted = {id(p): self._converted.get(id(p)) or (p, self._convert(p)) for p in finished}
        return tuple(self._converted[id(p)][1] for p in finished)

    def current_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Every watched parameter under each of its names, as it is now; none once the block has ended."""
        for parameter in () if self._recorder is None else self._recorder.parameters.now:
            if (current := parameter.current) is not None:
                yield from ((name, current) for name, _, _ in parameter.names)

    def begin_step(self) -> None:
        """Have `wanted` asked anew before what comes next: its answer may have changed."""
        if self._recorder is not None:
            self._recorder.between_rounds = True

    def _convert(self, finished: Pass) -> BackwardPass:
        assert self._recorder is not None
        layers, parameters, keep = self._recorder.layers, finished.parameters, self._keep_gradients
        return BackwardPass(
            partial(output_records, finished, layers, keep), partial(parameter_records, finished, parameters, keep)
        )

    def table(self) -> pandas.DataFrame:
        """The last backward pass, one row per layer output. Raises CaptureError where no backward pass was recorded."""
        return self._last().table()

    def parameter_table(self) -> pandas.DataFrame:
        """The last backward pass, one row per parameter name. Raises CaptureError where none was recorded."""
        return self._last().parameter_table()

    def _last(self) -> BackwardPass:
        if not self.passes:
            raise CaptureError(f"no backward pass was recorded: {self._why_nothing()}")
        return self.passes[-1]


def _positive(loss_scale: SupportsFloat | Callable[[], SupportsFloat]) -> float:
    value = loss_scale() if callable(loss_scale) else loss_scale
    try:
        scale = float(value)
    except (TypeError, ValueError):
        scale = math.nan
    if not 0 < scale < math.inf:
        raise CaptureError(f"loss_scale = {shorten(value)} is not possible; a finite number above 0, or a function giving one")
    return scale
