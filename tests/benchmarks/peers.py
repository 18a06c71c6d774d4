"""Other tools that show gradients, each as close to the same task as its own interface comes.

None gives all statistics for outputs and weights: where a tool hands out tensors, the six numbers of the usual hook
pattern are computed from them; where it makes histograms, those stand in their place.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn
from workloads import Workload, six_numbers, six_numbers_of_weights

Step = Callable[[], object]


def _layers_that_run(workload: Workload) -> list[nn.Module]:
    """The leaf modules in the order of their calls, without those that return what another has returned."""
    found: dict[int, nn.Module] = {}
    kept = []

    def note(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, torch.Tensor) and id(output) not in found:
            found[id(output)] = module
            kept.append(output)  # or another tensor could take its id

    handles = [module.register_forward_hook(note) for module in workload.model.modules() if not list(module.children())]
    workload.model(workload.batch)
    for handle in handles:
        handle.remove()
    return list(found.values())


@contextmanager
def with_nnsight(workload: Workload) -> Iterator[Step]:
    """nnsight: a traced forward and a traced backward in it."""
    from nnsight import NNsight

    names = {module: name for name, module in workload.model.named_modules()}
    traced = NNsight(workload.model)
    layers = [traced.get(names[module]) for module in _layers_that_run(workload)]

    def step() -> object:
        with traced.trace(workload.batch):
            outputs = [layer.output for layer in layers]
            loss = workload.loss_of(traced.output)
            with loss.backward():
                readings = [six_numbers(output.grad) for output in reversed(outputs)].save()
        return readings, six_numbers_of_weights(workload.model)

    yield step


@contextmanager
def with_torchlens(workload: Workload) -> Iterator[Step]:
    """torchlens: a trace that keeps the gradient of every operation."""
    import torchlens

    options = torchlens.options.CaptureOptions(save_grads="all", backward_ready=True, inference_only=False)

    def step() -> object:
        trace = torchlens.trace(workload.model, workload.batch, capture=options)
        trace.log_backward(workload.loss_of(trace[trace.output_layers[0]].out))
        readings = [six_numbers(layer.grad) for layer in trace if layer.has_grad]
        trace.cleanup()
        return readings, six_numbers_of_weights(workload.model)

    yield step


@contextmanager
def with_torchexplorer(workload: Workload) -> Iterator[Step]:
    """torchexplorer: histograms of output and weight gradients."""
    import torchexplorer

    torchexplorer.watch(
        workload.model, log=["io_grad", "params_grad"], log_freq=1, backend="none", sample_n=None, verbose=False
    )
    yield workload.step  # there is no way to end it


@contextmanager
def with_tensorboard(workload: Workload) -> Iterator[Step]:
    """TensorBoard: a histogram of every output and weight gradient, written to a file."""
    from torch.utils.tensorboard import SummaryWriter

    def note(module: nn.Module, inputs: object, output: object) -> None:
        tensor = output[0] if isinstance(output, tuple) else output
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            tensor.register_hook(lambda gradient: writer.add_histogram(names[module], gradient))

    names = {module: name for name, module in workload.model.named_modules()}
    handles = [module.register_forward_hook(note) for module in names if not list(module.children())]
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:

        def step() -> object:
            loss = workload.step()
            for name, weight in workload.model.named_parameters():
                if "weight" in name and weight.grad is not None:
                    writer.add_histogram(name, weight.grad)
            return loss

        yield step
        for handle in handles:
            handle.remove()


@contextmanager
def with_wandb(workload: Workload) -> Iterator[Step]:
    """Weights & Biases, offline: a histogram of every weight gradient; it has none of outputs."""
    import wandb

    with tempfile.TemporaryDirectory() as folder:
        run = wandb.init(mode="offline", dir=folder, settings=wandb.Settings(silent=True, console="off"))
        run.watch(workload.model, log="gradients", log_freq=1)

        def step() -> object:
            loss = workload.step()
            run.log({"step": 1})
            return loss

        try:
            yield step
        finally:
            run.unwatch(workload.model)
            run.finish()


PEERS: dict[str, Callable[[Workload], AbstractContextManager[Step]]] = {
    "nnsight": with_nnsight,
    "torchlens": with_torchlens,
    "torchexplorer": with_torchexplorer,
    "TensorBoard": with_tensorboard,
    "wandb.watch": with_wandb,
}
