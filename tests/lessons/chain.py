"""The lab's chain of layers written out in functions and differentiated by `torch.autograd.grad`: no hooks, no `.grad`."""

import torch
from torch.nn import functional

from gradlab import build_network
from gradlab.batches import loss_function, sample_input, target


class Chain:
    """Every linear map's input and output, and the loss; for networks without normalisation."""

    def __init__(self, spec):
        self.network = build_network(spec)
        self.linears = [layer[0] for layer in self.network.layers]
        self.inputs, self.outputs, x = [], [], sample_input(spec)
        for layer in self.network.layers:
            self.inputs.append(x)
            self.outputs.append(functional.linear(x, layer[0].weight, layer[0].bias))
            y = self.outputs[-1] if len(layer) == 1 else layer[1](self.outputs[-1])
            x = x + y if spec.network.use_shortcut and x.shape == y.shape else y
        self.output = x
        self.loss = loss_function(spec)(x, target(spec))

    def weight_gradients(self):
        return torch.autograd.grad(self.loss, [linear.weight for linear in self.linears], retain_graph=True)

    def output_gradients(self):
        return torch.autograd.grad(self.loss, self.outputs, retain_graph=True)
