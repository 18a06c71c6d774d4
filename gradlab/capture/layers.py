"""Which layers and parameters of a model are watched."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules.module import _global_forward_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.parametrize import ParametrizationList

from gradlab.errors import CaptureError, listed

Selection = str | Iterable[str] | None


def number_of_modules(module: nn.Module) -> int:
    """How many modules there are, itself among them; one under several names counts several times."""
    return 1 + sum([number_of_modules(child) for _, child in module._modules.items() if child is not None])


class Survey:
    """Every module of a model under each of its names, and what of it is to be watched.

    A capture of a single step spends much of its time on this, so nothing is asked of a module twice.
    """

    def __init__(self, model: nn.Module) -> None:
        self.named: dict[str, nn.Module] = {}
        """In the order of `model.named_modules(remove_duplicate=False)`."""
        self._walk("", model)
        self._kinds = has_forward = {kind: _has_forward(kind) for kind in set(map(type, self.named.values()))}
        self._can_be_called = {
            id(module) for module in self.named.values() if has_forward[type(module)] or "forward" in vars(module)
        }
        """A list or dict of modules or parameters has no forward, nor has a parametrisation's list."""

    def _walk(self, name: str, module: nn.Module) -> None:
        self.named[name] = module
        for part, child in module._modules.items():
            if child is not None:
                self._walk(f"{name}.{part}" if name else part, child)

    def layers(self, selection: Selection) -> dict[str, nn.Module]:
        """The layers to watch by dotted name, in the order of `named_modules()`.

        None selects leaf modules and modules that own parameters; "all" every module, the root under ""; anything else is
        one name or several. Helpers of a parametrised weight are part of their layer, not layers.
        """
        named = self.named
        if selection is None or selection == "all":
            once: dict[int, str] = {}
            for name, module in named.items():  # one under several names goes by the first
                once.setdefault(id(module), name)
            return {name: named[name] for name in once.values() if selection == "all" or self._is_layer(name, named[name])}
        wanted = [selection] if isinstance(selection, str) else list(selection)
        for name in wanted:
            if name not in named:
                near = difflib.get_close_matches(str(name), named, n=3, cutoff=0.4) or list(named)[1:4]
                hint = f"; near it: {listed(map(repr, near))}" if near else ""
                raise CaptureError(f"the model has no layer {name!r}{hint}")
        return {name: module for name, module in named.items() if name in wanted}

    def _is_layer(self, name: str, module: nn.Module) -> bool:
        can_be_called = self._can_be_called
        if id(module) not in can_be_called or ("parametrizations" in name and self._parametrization(name.split("."))):
            return False
        children = [child for child in module._modules.values() if child is not None] if module._modules else ()
        if not children:
            return True
        if can_be_called.issuperset(map(id, children)):  # the usual case; what follows says the same, more slowly
            return bool(_own_parameters(module))
        parts = list(self._parts_of(module))
        owners = (part for part in (module, *parts) if part is module or id(part) not in can_be_called)
        owns_parameters = any(map(_own_parameters, owners))
        parametrized = any(isinstance(part, ParametrizationList) for part in parts)
        return owns_parameters or parametrized or not any(id(part) in can_be_called for part in parts)

    def _parametrization(self, path: list[str]) -> int:
        """Where in the path a parametrisation stands; 0 where there is none: others may use PyTorch's name for it, too."""
        for place, part in enumerate(path[1:], start=1):
            within = self.named.get(".".join(path[: place + 1])) if path[place - 1] == "parametrizations" else None
            if isinstance(within, ParametrizationList) and part:
                return place
        return 0

    def _parts_of(self, module: nn.Module) -> Iterator[nn.Module]:
        """Its children, with the content of those that cannot be called."""
        for child in module.children():
            yield child
            if id(child) not in self._can_be_called:
                yield from self._parts_of(child)

    def hidden_layers(self) -> dict[str, str]:
        """The layers whose calls may go unseen, with the reason: they run inside scripted or compiled code."""
        named = self.named
        hidden: dict[str, str] = {}
        for name, module in named.items():
            wrapper = "_orig_mod" in module._modules
            compiled = wrapper or getattr(module, "_compiled_call_impl", None) is not None
            if compiled or isinstance(module, torch.jit.ScriptModule):
                prefix = f"{name}." if name else ""
                hidden |= {
                    inner: COMPILED if compiled else SCRIPTED for inner in named if inner.startswith(prefix) and inner != name
                }
                if compiled and not wrapper:
                    hidden[name] = COMPILED
        return hidden

    def averaging(self) -> list[DistributedDataParallel]:
        """The modules that average gradients over processes."""
        return [module for _, module in self._of_kind(DistributedDataParallel)]

    def sharded(self) -> list[str]:
        """The names of the modules that keep only a share of their parameters in each process."""
        fsdp = sys.modules.get("torch.distributed.fsdp")  # which another thread may be loading at this moment
        kinds = tuple(kind for name in ("FSDPModule", "FullyShardedDataParallel") if (kind := getattr(fsdp, name, None)))
        return [name for name, _ in self._of_kind(kinds)]

    def _of_kind(self, kind: Any) -> list[tuple[str, Any]]:
        kinds = {each for each in self._kinds if issubclass(each, kind)}
        if not kinds:  # nearly always: no question to every module
            return []
        return [(name, module) for name, module in self.named.items() if type(module) in kinds]

    def parameters(self, layers: Iterable[str] | None) -> list[NamedParameter]:
        """Every parameter inside these layers (None: of the whole model) under all its names there."""
        found: dict[int, NamedParameter] = {}
        for prefix, module in self.named.items():
            held = module._parameters
            if not held:
                continue
            if layers is not None and not any(f"{prefix}.".startswith(f"{name}.") or not name for name in layers):
                continue
            is_layer = id(module) in self._can_be_called and "parametrizations" not in prefix
            holder = held if isinstance(held, dict) else _Attributes(module)
            for attribute, parameter in held.items():
                if parameter is None:
                    continue
                layer, known_as = (prefix, attribute) if is_layer else self._owner(prefix, attribute)
                name = f"{prefix}.{attribute}" if prefix else attribute, layer, role_of(self.named[layer], known_as)
                if (known := found.get(id(parameter))) is None:
                    found[id(parameter)] = NamedParameter([name], [(holder, attribute)])
                else:
                    known.names.append(name)
                    known.places.append((holder, attribute))
        return list(found.values())

    def _owner(self, prefix: str, attribute: str) -> tuple[str, str]:
        """The layer that a parameter belongs to, and what it is called there."""
        if "parametrizations" in prefix:  # as in layer.parametrizations.weight.original0
            path = prefix.split(".")
            if place := self._parametrization(path):
                return ".".join(path[: place - 1]), path[place]
        while prefix and id(self.named[prefix]) not in self._can_be_called:  # a list of parameters
            prefix, _, attribute = prefix.rpartition(".")
        return prefix, attribute


# Weakly: a parametrised module has a class of its own, which must not outlive it here.
_with_forward: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


def _has_forward(kind: Any) -> bool:
    known = _with_forward.get(kind)
    if known is None:
        # Not kind.forward: the class of a scripted module does not let itself be asked.
        found = inspect.getattr_static(kind, "forward")
        known = _with_forward[kind] = not issubclass(kind, ParametrizationList) and found is not nn.Module.forward
    return known


SCRIPTED = "it runs inside a scripted or traced module, which calls no hooks of its layers; capture the original module"
COMPILED = (
    "it runs inside a module compiled before the capture began, and compiled code calls no hooks added later; begin the capture"
    " before the first call, or call the original module"
)


class NamedParameter(NamedTuple):
    """A parameter's names and where it is held under each of them."""

    names: list[tuple[str, str, str]]
    """Each with the layer that owns it there and what it is to that layer: weight, bias or other."""
    places: list[tuple[Any, str]]
    """What gives the tensor for which attribute: the owner's dict, without detours, unless it is scripted and has none."""

    @property
    def identity(self) -> list[tuple[str, int]]:
        """The names, each with what holds the tensor under it."""
        holders = (holder.owner if isinstance(holder, _Attributes) else holder for holder, _ in self.places)
        return [(name, id(holder)) for (name, _, _), holder in zip(self.names, holders, strict=True)]


class _Attributes:
    """What a scripted module has under its attributes."""

    def __init__(self, owner: nn.Module) -> None:
        self.owner = owner

    def get(self, attribute: str) -> Any:
        return getattr(self.owner, attribute, None)


def is_held(name: str, holder: Any, model: nn.Module) -> bool:
    """Whether what holds a parameter still stands in the model where it stood."""
    found: Any = model
    for part in name.split(".")[:-1]:
        found = getattr(found, part, None)
    return found is holder.owner if isinstance(holder, _Attributes) else getattr(found, "_parameters", None) is holder


def _own_parameters(module: nn.Module) -> list[str]:
    return [attribute for attribute, parameter in module._parameters.items() if parameter is not None]


def role_of(owner: nn.Module, attribute: str) -> str:
    """`weight`, `bias` or `other`, from the attribute; PyTorch's own layers also name them weight_ih_l0, in_proj_bias."""
    if attribute in ("weight", "bias"):
        return attribute
    if type(owner).__module__.startswith("torch.nn."):
        words = attribute.split("_")
        return next((role for role in ("weight", "bias") if role in words), "other")
    return "other"


_MAKERS = {
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d,
}  # fmt: skip


def makes_its_output(module: nn.Module) -> bool:
    """Whether what the module returns is new, or has another shape of something new, which nobody else can have used.

    Known only of PyTorch's own layers whose forward nobody has replaced. A hook after it may have used its output and
    returned another.
    """
    if type(module) not in _MAKERS or "forward" in vars(module) or _global_forward_hooks:
        return False
    return all(hasattr(hook, "__torch_unserializable__") for hook in module._forward_hooks.values())
