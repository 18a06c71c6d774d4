"""What a layer is given and returns under full backward hooks: what PyTorch's wrapping would change is refused or warned of."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradlab.capture import engine
from gradlab.capture.structures import tensors_in
from gradlab.capture.watched import Inert, Layer
from gradlab.errors import CaptureError


class BeforeWrapping(Inert):
    """Refuses a layer that is given one tensor in two places, which PyTorch would make two; notes what the layer is given."""

    def __init__(self, layer: Layer, given: dict[Layer, tuple[object, ...]]) -> None:
        self._layer = layer
        self._given = given

    def __call__(self, module: nn.Module, inputs: tuple[object, ...], keywords: dict[str, object]) -> None:
        if engine.in_transform() is not None:
            raise CaptureError(
                f"layer {self._layer.name!r} runs inside a torch.func transform, which full backward hooks do not allow: use"
                " method='tensor_hooks'"
            )
        replaced = [tensor for tensor in inputs if isinstance(tensor, Tensor)]
        if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in replaced):
            return
        places = [id(tensor) for _, tensor in tensors_in([inputs, keywords])]
        if any(places.count(id(tensor)) > 1 for tensor in replaced):
            raise CaptureError(
                f"layer {self._layer.name!r} is given one tensor in two places; full backward hooks would hand it two different"
                " ones, and a layer that asks whether they are the same would take another path: use method='tensor_hooks'"
            )
        _refuse_unwrappable(self._layer, "is given", replaced)
        _warn_about_attributes(self._layer, "is given", replaced)
        self._given[self._layer] = inputs


class AfterWrapping(Inert):
    """Notes which tensor each input of the call that has just ended stands for."""

    def __init__(self, layer: Layer, given: dict[Layer, tuple[object, ...]], originals: dict[int, Tensor]) -> None:
        self._layer = layer
        self._given = given
        self._originals = originals

    def __call__(self, module: nn.Module, inputs: tuple[object, ...], returned: object) -> None:
        self._originals.clear()
        given = self._given.pop(self._layer, ())
        outputs = [part for part in (returned if isinstance(returned, tuple) else [returned]) if isinstance(part, Tensor)]
        if any(tensor.requires_grad for tensor in outputs):
            _refuse_unwrappable(self._layer, "returns", outputs)
            _warn_about_attributes(self._layer, "returns", outputs)
        pairs = zip(inputs, given, strict=False)
        self._originals.update({id(seen): original for seen, original in pairs if isinstance(original, Tensor)})


def _refuse_unwrappable(layer: Layer, how: str, tensors: list[Tensor]) -> None:
    if engine.has_tangent(tensors):
        raise CaptureError(
            f"layer {layer.name!r} {how} a tensor differentiated in forward mode, which full backward hooks do not allow:"
            " use method='tensor_hooks'"
        )
    for tensor in tensors:
        if tensor.layout is not torch.strided and tensor.layout is not torch.jagged:
            kind = str(tensor.layout).removeprefix("torch.").strip("_")
            raise CaptureError(
                f"layer {layer.name!r} {how} a tensor of layout {kind}, of which full backward hooks can make no view: use"
                " method='tensor_hooks'"
            )


def _warn_about_attributes(layer: Layer, how: str, tensors: list[Tensor]) -> None:
    if torch.compiler.is_compiling():  # the compiler cannot look there
        return
    for tensor in tensors:
        if type(tensor) is Tensor and tensor.__dict__ and layer.recorder is not None:
            layer.recorder.warn_once(
                "attributes",
                f"layer {layer.name!r} {how} a tensor with attributes of its own ({', '.join(tensor.__dict__)}), which full"
                " backward hooks replace by one without: where the model reads them, it takes another path; use"
                " method='tensor_hooks'",
            )
