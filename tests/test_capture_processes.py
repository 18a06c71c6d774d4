"""Models whose gradients are averaged or spread over two processes: the average, or why there is none."""

import pytest
import torch
from processes import in_both_processes
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from truth import METHODS, close, parameters

from gradlab import capture_gradients, watch

INPUTS = torch.tensor([[[1.0, 2.0]], [[10.0, 20.0]]])
AVERAGE = torch.tensor([[5.5, 11.0]])


def linear():
    torch.manual_seed(0)
    return nn.Linear(2, 1, bias=False)


def weight(capture, backward=-1):
    (record,) = (r for r in capture.passes[backward].parameters if r.parameter.endswith("weight"))
    return record


def withheld(record, reason):
    assert record.status == "unsupported"
    assert reason in record.note
    assert record.statistics is None
    assert record.gradient is None


def _wherever_the_wrapper_is(rank):
    for method in METHODS:
        model = linear()
        wrapper = DistributedDataParallel(model)
        for watched in (wrapper, model, nn.Sequential(nn.Identity(), wrapper)):
            model.zero_grad()
            with capture_gradients(watched, method, keep_gradients=True) as capture:
                wrapper(INPUTS[rank]).sum().backward()
            close(weight(capture).gradient, AVERAGE)
            close(weight(capture).gradient, model.weight.grad)


def test_the_average_is_given_wherever_the_wrapper_is(tmp_path):
    in_both_processes(tmp_path, _wherever_the_wrapper_is)


def _only_the_average_of_this_pass(rank):
    model = linear()
    wrapper = DistributedDataParallel(model)
    x = INPUTS[rank]

    with capture_gradients(wrapper, keep_gradients=True) as capture:
        with wrapper.no_sync():
            wrapper(x).sum().backward()
        withheld(weight(capture), "no_sync()")
        wrapper(x).sum().backward()
        withheld(weight(capture), "set .grad to None or zero")
        model.zero_grad()
        wrapper(x).sum().backward()
        close(weight(capture).gradient, AVERAGE)

        with wrapper.no_sync():  # what counts is the forward
            loss = wrapper(x).sum()
        model.zero_grad()
        loss.backward()
        withheld(weight(capture), "have not exchanged")
        loss = wrapper(x).sum()
        model.zero_grad(set_to_none=False)
        with wrapper.no_sync():
            loss.backward(retain_graph=True)
        close(weight(capture).gradient, AVERAGE)
        model.zero_grad()  # PyTorch exchanges nothing in a second backward over one forward
        loss.backward()
        withheld(weight(capture), "have not exchanged")
        close(model.weight.grad, x)

        (own,) = torch.autograd.grad(wrapper(x).sum(), model.weight)
        close(weight(capture).gradient, own)
        close(own, x)

    for stale in (1e8, float("nan")):
        model.weight.grad = torch.full((1, 2), stale)
        with capture_gradients(wrapper) as capture:
            wrapper(x / 1e3).sum().backward()
        withheld(weight(capture), "set .grad to None or zero")


def test_a_number_is_given_only_where_it_is_the_average_of_this_pass(tmp_path):
    in_both_processes(tmp_path, _only_the_average_of_this_pass)


class OneOfTwo(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList([linear(), linear()])

    def forward(self, x, branch):
        return self.branches[branch](x)


def _unused_parameters(rank):
    model = OneOfTwo()
    with capture_gradients(wrapper := DistributedDataParallel(model)) as capture:
        wrapper(INPUTS[rank], 0).sum().backward()
    found = parameters(capture.passes[0])
    withheld(found["module.branches.0.weight"], "have not exchanged")
    assert found["module.branches.1.weight"].status == "no_gradient"

    model = OneOfTwo()
    wrapper = DistributedDataParallel(model, find_unused_parameters=True)
    with watch(wrapper) as history:
        wrapper(INPUTS[rank], rank).sum().backward()
    table = history.table().set_index("parameter")
    for branch in range(2):
        assert table.loc[f"module.branches.{branch}.weight", "norm"] == pytest.approx(INPUTS[branch].norm().item() / 2)


def test_parameters_that_a_process_does_not_use(tmp_path):
    in_both_processes(tmp_path, _unused_parameters)


def _sharded(rank):
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2,))
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh(), nn.Linear(2, 1))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    model[2].bias.requires_grad_(False)
    for method in ("tensor_hooks", "retain_grad"):
        with capture_gradients(model, method) as capture:
            model(INPUTS[rank]).sum().backward()
        found = parameters(capture.passes[0])
        withheld(found["0.weight"], "full_tensor()")
        withheld(found["2.weight"], "full_tensor()")
        assert [str(record.status) for record in capture.passes[0].outputs] == ["ok"] * 3

    # One process alone may watch: nothing that it does may wait for the other.
    model = nn.Linear(2, 2)
    distributed.tensor.distribute_module(model, mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if rank == 0:
        with capture_gradients(model, keep_gradients=True) as capture, watch(model, optimizer=optimizer) as history:
            model.weight.to_local()
            torch.autograd.backward(list(model.parameters()), [parameter.detach() for parameter in model.parameters()])
            optimizer.step()
        withheld(parameters(capture.passes[0])["weight"], "DTensor")
        assert history.table()["update_ratio"].isna().all()


def test_what_is_spread_over_processes_is_withheld(tmp_path):
    in_both_processes(tmp_path, _sharded)
