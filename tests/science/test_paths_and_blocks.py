"""Paths through residual networks, and the place of the normalisation in a Transformer."""

import math

import pytest
import torch
from torch import nn

from gradlab import NetworkSpec, build_network


def test_few_of_the_paths_through_54_blocks_are_short_and_most_are_half_as_long():
    """Path lengths are binomial (Veit, Wilber & Belongie 2016)."""

    def share(shortest, longest):
        return sum(math.comb(54, length) for length in range(shortest, longest + 1)) / 2**54

    assert share(5, 17) == pytest.approx(0.004537, abs=5e-7)
    assert share(19, 35) == pytest.approx(0.980, abs=5e-4)
    assert share(0, 54) == 1


def test_the_gradients_of_all_path_lengths_add_up_to_the_whole_gradient():
    """A residual network is a sum over paths that take or skip each block (Veit, Wilber & Belongie 2016)."""
    blocks, width = 54, 16
    network = build_network(NetworkSpec.of_width(width, blocks, activation="tanh", use_shortcut=True, dtype="float64"), 0)
    x = torch.linspace(-1, 1, width, dtype=torch.float64).requires_grad_()
    (whole,) = torch.autograd.grad(network(x).sum(), x)
    inputs = [x.detach()]
    for layer in network.layers[:-1]:
        inputs.append((inputs[-1] + layer(inputs[-1])).detach())
    # by_length[k]: the gradient along all paths that went through k blocks on the way back from the output
    by_length = torch.zeros(blocks + 1, width, dtype=torch.float64)
    by_length[0] = 1
    for layer, at in zip(reversed(network.layers), reversed(inputs), strict=True):
        jacobian = torch.autograd.functional.jacobian(layer, at)
        by_length[1:] = by_length[1:] + by_length[:-1] @ jacobian
    torch.testing.assert_close(by_length.sum(0), whole, rtol=1e-6, atol=0)
    strengths = by_length.norm(dim=1)
    assert strengths.argmax() < blocks / 2  # fewer paths are short, but each of those loses less


DEPTHS = (6, 12, 24)


def last_layer_gradients(*, norm_first, seed, width=256, positions=32, batch=4, words=1000):
    """Norm of the gradient of the last feed-forward weight, for each depth; Xavier weights, cross-entropy over words."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=norm_first)
            for _ in range(DEPTHS[-1])
        ]
        for parameter in nn.ModuleList(layers).parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, positions, width, generator=generator)
    to_words = torch.randn(width, words, generator=generator) / math.sqrt(width)
    labels = torch.randint(words, (batch * positions,), generator=generator)
    norms = []
    for depth, layer in enumerate(layers, start=1):
        output = layer(x)
        if depth in DEPTHS:  # as the last layer of a network that ends here
            last = nn.functional.layer_norm(output, (width,)) if norm_first else output
            loss = nn.functional.cross_entropy(last.flatten(0, 1) @ to_words, labels)
            norms.append(torch.autograd.grad(loss, layer.linear2.weight)[0].norm().item())
        x = output.detach()
    return norms


def test_the_last_layers_gradient_ignores_depth_in_post_ln_and_falls_with_its_root_in_pre_ln():
    """Xiong et al. 2020, theorem 1: of order 1 in a Post-LN Transformer, of order 1/√L in a Pre-LN one."""
    post, pre = (
        torch.tensor([last_layer_gradients(norm_first=norm_first, seed=seed) for seed in range(3)]).mean(0)
        for norm_first in (False, True)
    )
    for row, tolerance in ((post, 0.10), (pre * torch.tensor(DEPTHS).sqrt(), 0.15)):
        assert row.tolist() == pytest.approx([row.mean().item()] * len(DEPTHS), rel=tolerance)
    assert pre[-1] < 0.6 * pre[0]
