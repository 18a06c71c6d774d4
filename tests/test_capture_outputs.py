"""Layers that return something other than one plain tensor, or the same tensor as another layer.

Full backward hooks see a tensor or a flat tuple of tensors (https://github.com/pytorch/pytorch/issues/87540) and hand every
layer wrapped copies of its inputs and outputs (https://github.com/pytorch/pytorch/issues/61446).
"""

import dataclasses
from collections import OrderedDict, UserDict, deque, namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn
from truth import (
    METHODS,
    Trace,
    assert_outputs,
    assert_parameters,
    batch,
    captured,
    each_method,
    parameter_gradients,
    readings,
    seeded,
    statuses,
)

from gradlab import CaptureError, CaptureWarning, capture_gradients
from gradlab.capture.structures import DEEPEST, MOST_VALUES, tensors_in

Pair = namedtuple("Pair", "mean spread")


@dataclasses.dataclass
class Result:
    value: torch.Tensor
    extra: object = None


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    value: torch.Tensor


class Slots:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Wrap(nn.Module):
    """Two tensors, packed as the test says; how they are found again is the reading's `output`."""

    def __init__(self, pack):
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)
        self.pack = pack

    def forward(self, x):
        return self.pack(self.a(x), self.b(x))


# How two tensors are packed, how they are unpacked, and under which paths they must be found.
PACKINGS = {
    "tuple": (lambda a, b: (a, b), lambda p: p, ("0", "1")),
    "list": (lambda a, b: [a, b], lambda p: p, ("0", "1")),
    "nested tuple": (lambda a, b: (a, (None, b)), lambda p: (p[0], p[1][1]), ("0", "1.1")),
    "tuple with others": (lambda a, b: ("text", a, 3, None, b), lambda p: (p[1], p[4]), ("1", "4")),
    "named tuple": (Pair, lambda p: p, ("0", "1")),
    "dict": (lambda a, b: {"mean": a, "aux": {"value": b}}, lambda p: (p["mean"], p["aux"]["value"]), ("mean", "aux.value")),
    "ordered dict": (lambda a, b: OrderedDict(z=a, a=b), lambda p: (p["z"], p["a"]), ("z", "a")),
    "user dict": (lambda a, b: UserDict(z=a, a=b), lambda p: (p["z"], p["a"]), ("z", "a")),
    "dict of lists": (lambda a, b: {"all": [a, b], 7: 7}, lambda p: p["all"], ("all.0", "all.1")),
    "data class": (lambda a, b: Result(a, [b]), lambda p: (p.value, p.extra[0]), ("value", "extra.0")),
    "data class with slots": (lambda a, b: [Slotted(a), b], lambda p: (p[0].value, p[1]), ("0.value", "1")),
    "object": (lambda a, b: SimpleNamespace(loss=a, logits=b), lambda p: (p.loss, p.logits), ("loss", "logits")),
    "object with slots": (lambda a, b: (Slots(a), Slots(b)), lambda p: (p[0].value, p[1].value), ("0.value", "1.value")),
    "deque": (lambda a, b: deque([a, b]), lambda p: p, ("0", "1")),
    "keys that read alike": (lambda a, b: {1: a, "1": b}, lambda p: (p[1], p["1"]), ("1", "1 (2)")),
    "a key without a name": (lambda a, b: {"": a, 0: b}, lambda p: (p[""], p[0]), ("0", "0 (2)")),
    "keys with dots": (lambda a, b: {"x": {"y": a}, "x.y": b}, lambda p: (p["x"]["y"], p["x.y"]), ("x.y", "x.y (2)")),
}  # fmt: skip

each_packing = pytest.mark.parametrize(("pack", "unpack", "paths"), PACKINGS.values(), ids=PACKINGS)


@each_method
@each_packing
def test_every_tensor_in_what_a_layer_returns_has_its_gradient(pack, unpack, paths, method):
    model, x, trace = seeded(lambda: Wrap(pack)), batch(4, 3), Trace()
    a, b = trace.linear("a", model.a, x), trace.linear("b", model.b, x)
    expected = trace.gradients((a * 3 + b * b).sum())
    expected["", 0, paths[0]], expected["", 0, paths[1]] = expected["a", 0, "0"], expected["b", 0, "0"]

    def run(model):
        a, b = unpack(model(x))
        (a * 3 + b * b).sum().backward()

    capture = captured(model, run, method, layers="all")
    if capture is not None:
        assert_outputs(capture.passes[0], expected, method)
        assert readings(capture.passes[0]).keys() == expected.keys()


@each_method
@each_packing
def test_a_part_that_the_loss_does_not_use_has_no_gradient_and_is_not_zero(pack, unpack, paths, method):
    model, x = seeded(lambda: Wrap(pack)), batch(4, 3)
    capture = captured(model, lambda m: unpack(m(x))[1].sum().backward(), method, layers="all")
    if capture is not None:
        found = statuses(capture.passes[0])
        assert found["", 0, paths[0]] in ("no_gradient", "unsupported")
        assert found["a", 0, "0"] == "no_gradient"
        assert found["b", 0, "0"] == "ok"


@pytest.mark.parametrize("packing", ["list", "dict", "nested tuple", "data class", "object", "dict of lists"])
def test_full_backward_hooks_refuse_what_they_would_not_see(packing):
    pack, unpack, _ = PACKINGS[packing]
    model = seeded(lambda: Wrap(pack))
    with pytest.raises(CaptureError, match="layer ''") as caught, capture_gradients(model, "full_backward_hooks", "all"):
        unpack(model(batch(4, 3)))[0].sum().backward()
    assert "tensor_hooks" in str(caught.value)


class Aggregate(nn.Module):
    """A layer of a graph network: the graph is a sparse matrix."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 9).reshape(3, 3))

    def forward(self, x, graph):
        return graph @ (x @ self.weight)


@each_method
def test_a_layer_that_is_given_a_sparse_matrix_is_right_or_refused(method):
    model = seeded(lambda: nn.ModuleList([Aggregate(), Aggregate()]))
    x, graph = batch(4, 3), torch.eye(4, dtype=torch.float64).flip(0).to_sparse()

    def run(model):
        model[1](model[0](x, graph), graph).square().sum().backward()

    capture = captured(model, run, method)
    if capture is not None:
        first = graph @ (x @ model[0].weight)
        last = graph @ (first @ model[1].weight)
        expected = torch.autograd.grad(last.square().sum(), [first, last])
        assert_outputs(capture.passes[0], dict(zip([("0", 0, "0"), ("1", 0, "0")], expected, strict=True)), method)


def test_full_backward_hooks_refuse_a_layer_that_returns_a_sparse_tensor():
    class Sparsify(nn.Module):
        def forward(self, x):
            return x.to_sparse()

    model = seeded(lambda: nn.Sequential(nn.Linear(3, 3), Sparsify()))
    with (
        pytest.raises(CaptureError, match=r"layer '1' returns a tensor of layout sparse_coo.*tensor_hooks"),
        capture_gradients(model, "full_backward_hooks"),
    ):
        model(batch(4, 3)).to_dense().sum().backward()


@each_method
@pytest.mark.parametrize("reduce", [lambda x: x.max(1), lambda x: x.sort(1), lambda x: torch.linalg.qr(x), lambda x: x.topk(2)])
def test_the_named_results_of_torch_functions_are_taken_apart(reduce, method):
    class Reduce(nn.Module):
        def forward(self, x):
            return reduce(x)

    model, x = seeded(lambda: nn.Sequential(nn.Linear(3, 3), Reduce())), batch(4, 3)
    h = nn.functional.linear(x, model[0].weight, model[0].bias)
    value, other = reduce(h)
    loss = value.square().sum()
    wanted_h, wanted = torch.autograd.grad(loss, [h, value])
    capture = captured(model, lambda m: m(x)[0].square().sum().backward(), method)
    if capture is not None:
        expected = {("0", 0, "0"): wanted_h, ("1", 0, "0"): wanted, ("1", 0, "1"): None}
        assert_outputs(capture.passes[0], expected, method)
        if not other.is_floating_point():
            assert statuses(capture.passes[0])["1", 0, "1"] == "not_tracked"


@pytest.mark.parametrize("method", METHODS[:2])
def test_a_recurrent_layer_gives_every_part_it_returns(method):
    model, x = seeded(lambda: nn.LSTM(3, 2, num_layers=2, batch_first=True)), batch(8, 3).reshape(2, 4, 3)

    def loss_of(out, h, c):
        return (2 * out).sum() + 3 * h.square().sum() + c.sum()

    out, (h, c) = model(x)
    expected = dict(zip(("0", "1.0", "1.1"), torch.autograd.grad(loss_of(out, h, c), [out, h, c]), strict=True))
    capture = captured(model, lambda m: loss_of((r := m(x))[0], *r[1]).backward(), method)
    assert_outputs(capture.passes[0], {("", 0, path): g for path, g in expected.items()}, method)
    out, (h, c) = model(x)
    assert_parameters(capture.passes[0], parameter_gradients(model, loss_of(out, h, c)))
    assert {r.role for r in capture.passes[0].parameters} == {"weight", "bias"}


def test_a_packed_sequence_is_taken_apart():
    model, x = seeded(lambda: nn.GRU(3, 2, batch_first=True)), batch(8, 3).reshape(2, 4, 3)

    def run(model):
        packed, _ = model(rnn.pack_padded_sequence(x, [4, 2], batch_first=True))
        packed.data.sum().backward()

    found = readings(captured(model, run).passes[0])
    assert torch.equal(found["", 0, "0.0"].gradient, torch.ones(6, 2, dtype=torch.float64))
    assert found["", 0, "1"].status == "no_gradient"
    assert found["", 0, "0.1"].status == "not_tracked"


@each_method
@pytest.mark.parametrize("nothing", [None, "text", 3.5, (), [], {}, (None, "x"), ...], ids=repr)
def test_a_layer_that_returns_no_tensor_is_recorded_as_such(nothing, method):
    class Side(nn.Module):
        def forward(self, x):
            return nothing

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.side = nn.Linear(3, 2), Side()

        def forward(self, x):
            self.side(x)
            return self.linear(x)

    done = captured(seeded(Net), lambda m: m(batch(2, 3)).sum().backward(), method).passes[0]
    record = readings(done)["side", 0, "0"]
    assert record.status == "unsupported"
    assert "tensor" in record.note
    assert (record.statistics, record.shape) == (None, None)


@pytest.mark.parametrize("method", METHODS[:2])
def test_an_output_that_contains_itself_ends(method):
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x):
            out = {"y": self.linear(x)}
            out["self"] = out
            return out

    done = captured(seeded(Loop), lambda m: m(batch(4, 3))["y"].sum().backward(), method, layers="all").passes[0]
    assert statuses(done) == {("linear", 0, "0"): "ok", ("", 0, "y"): "ok"}


def test_looking_into_an_output_does_not_use_it_up():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x):
            return (part for part in self.linear(x).unbind(1))

    model = seeded(Lazy)
    done = captured(model, lambda m: sum(part.sum() for part in m(batch(4, 3))).backward(), layers="all").passes[0]
    assert torch.equal(readings(done)["linear", 0, "0"].gradient, torch.ones(4, 2, dtype=torch.float64))


class Node:
    """An object that refers to others of its kind."""

    def __init__(self, value, others=()):
        self.value, self.others = value, others


def chain(a, b):
    node = Node(b)
    for _ in range(200):
        node = Node(None, [node])
    return Node(a, [node])


def mesh(a, b):
    nodes = [Node(a), *(Node(None) for _ in range(30)), Node(b)]
    for node in nodes:
        node.others = nodes
    return nodes[0]


def numbers(a, b):
    return Node(a, [range(10**12), bytearray(10**6), list(range(1000)), b])


@each_method
@pytest.mark.parametrize("build", [chain, mesh, numbers])
def test_an_object_is_searched_once_however_it_is_reached(build, method):
    model, x, trace = seeded(lambda: Wrap(build)), batch(4, 3), Trace()
    a, b = trace.linear("a", model.a, x), trace.linear("b", model.b, x)
    expected = trace.gradients((a * 3 + b * b).sum())

    def run(model):
        (_, first), (_, second) = tensors_in(model(x))
        (first * 3 + second * second).sum().backward()

    capture = captured(model, run, method, layers="all")
    assert (capture is None) == (method == "full_backward_hooks")
    if capture is not None:
        found = readings(capture.passes[0])
        first, second = (output for layer, _, output in found if layer == "")
        assert_outputs(
            capture.passes[0],
            expected | {("", 0, first): expected["a", 0, "0"], ("", 0, second): expected["b", 0, "0"]},
            method,
        )
        assert len(found) == 4


def longer(a, b):
    node = Node(b)
    for _ in range(DEEPEST):
        node = Node(None, [node])
    return Node(a, [node])


def many(a, b):
    return Node(a, [list(range(MOST_VALUES)), b])


@pytest.mark.parametrize("build", [longer, many])
def test_what_is_too_large_to_search_is_named(build):
    model, x = seeded(lambda: Wrap(build)), batch(4, 3)
    with pytest.warns(CaptureWarning, match=r"layer '': the Node it returned holds more than 1.*return them in a smaller"):
        capture = captured(model, lambda model: model(x).value.sum().backward(), layers=["", "a"])
    assert statuses(capture.passes[0]) == {("", 0, "value"): "ok", ("a", 0, "0"): "ok"}


class Branches(nn.Module):
    """Returns two tensors; autograd makes zeros of a missing gradient on its way through the normalisation of the second."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.a, self.b = nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        h = self.stem(x)
        return self.a(h * 1), self.b(self.norm(h * 1) * 1)


@each_method
def test_layers_before_a_part_that_is_not_used_have_no_gradient_of_zeros(method):
    model = seeded(lambda: nn.ModuleDict({"branches": Branches()}))
    (done,) = captured(model, lambda m: m["branches"](batch(4, 3))[0].square().sum().backward(), method, layers="all").passes
    found = statuses(done) | {record.parameter: str(record.status) for record in done.parameters}
    absent = {"no_gradient"} if method != "full_backward_hooks" else {"no_gradient", "unsupported"}
    for unused in (("branches.norm", 0, "0"), ("branches.b", 0, "0"), "branches.norm.weight", "branches.norm.bias"):
        assert found[unused] in absent
    assert found["branches.stem", 0, "0"] == found["branches.stem.weight"] == "ok"


@each_method
def test_zeros_before_a_part_that_has_no_gradient_anyway_are_zeros(method):
    class Pooled(nn.Sequential):
        def forward(self, x):
            return super().forward(x[None])[0]

    model = seeded(lambda: Pooled(nn.Linear(3, 4), nn.ReLU(), nn.MaxPool1d(2, return_indices=True)))
    model[0].bias.data.fill_(-100)
    (done,) = captured(model, lambda m: m(batch(4, 3)).sum().backward(), method).passes
    assert statuses(done)["0", 0, "0"] == "all_zero"
