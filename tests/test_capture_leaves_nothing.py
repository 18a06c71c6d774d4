"""Watching changes nothing and leaves nothing: the same numbers, and no hook, attribute, tensor or graph kept."""

import gc
import warnings
import weakref

import pytest
import torch
from torch import nn
from truth import METHODS, batch, captured, each_method, everything_on, seeded, statuses

from gradlab import CaptureError, capture_gradients


def small():
    return seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1)))


X = batch(5, 3)


def step(model, x=X):
    loss = model(x).square().sum()
    loss.backward()
    return loss.detach()


class Deep(nn.Module):
    """Convolution, normalisation, recurrence, embedding, dropout: what trains in practice, with a checkpointed part."""

    def __init__(self):
        super().__init__()
        self.embed, self.conv, self.norm = nn.Embedding(7, 4), nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4)
        self.act, self.drop, self.rnn, self.head = nn.ReLU(inplace=True), nn.Dropout(0.4), nn.GRU(4, 4), nn.Linear(4, 2)

    def forward(self, tokens):
        h = self.act(self.norm(self.conv(self.embed(tokens).transpose(1, 2))))
        h = torch.utils.checkpoint.checkpoint(self.drop, h, use_reentrant=False)
        return self.head(self.rnn(h.permute(2, 0, 1))[0])


@pytest.mark.parametrize("method", METHODS[:2])
@pytest.mark.parametrize("layers", [None, "all"])
def test_loss_gradients_buffers_and_random_numbers_are_those_of_a_plain_run(method, layers):
    results = []
    for watched in (False, True):
        model, tokens = seeded(Deep), torch.arange(12).reshape(2, 6) % 7
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        with torch.random.fork_rng():
            torch.manual_seed(3)
            losses = []

            def train(losses=losses, model=model, tokens=tokens, optimizer=optimizer):
                for _ in range(3):
                    optimizer.zero_grad()
                    losses.append(step(model, tokens))
                    optimizer.step()

            if watched:
                with capture_gradients(model, method, layers=layers):
                    train()
            else:
                train()
            state = [*model.state_dict().values(), *(p.grad for p in model.parameters())]
            results.append([*losses, *state, torch.get_rng_state()])
    assert all(torch.equal(plain, watched) for plain, watched in zip(*results, strict=True))


@each_method
@pytest.mark.parametrize("layers", [None, "all"])
def test_nothing_is_left_on_the_model(method, layers):
    model = small()
    model[1].register_forward_hook(lambda module, inputs, output: None)
    model[3].weight.register_hook(lambda gradient: None)
    before = everything_on(model)
    with capture_gradients(model, method, layers=layers):
        step(model)
    model.zero_grad()
    assert everything_on(model) == before


@each_method
def test_a_capture_that_is_not_entered_attaches_nothing(method):
    model = small()
    before = everything_on(model)
    capture = capture_gradients(model, method)
    step(model)
    assert capture.passes == ()
    assert everything_on(model) == before


def test_a_model_with_old_backward_hooks_cannot_have_full_ones_and_keeps_what_it_had():
    model = small()
    model[3].register_backward_hook(lambda module, grad_input, grad_output: None)
    before = everything_on(model)
    with pytest.raises(CaptureError, match="tensor_hooks"), capture_gradients(model, "full_backward_hooks"):
        pytest.fail("the block must not run")
    assert everything_on(model) == before


@each_method
def test_an_old_backward_hook_may_be_registered_after_the_capture(method):
    model = small()
    with capture_gradients(model, method):
        step(model)
    model[0].register_backward_hook(lambda module, grad_input, grad_output: None)


def test_a_function_whose_first_variable_is_called_ctx_is_no_checkpoint():
    model = small()

    def evaluate(ctx):
        with torch.no_grad():
            return model(X)

    def unbound():
        ctx = 3
        del ctx
        with torch.no_grad():
            return model(X)

    with capture_gradients(model) as capture:
        for ctx in ({}, None, "text", [1], object(), 3):
            evaluate(ctx)
        unbound()
        step(model)
    assert {status for (_, call, _), status in statuses(capture.passes[0]).items() if call < 7} == {"not_tracked"}
    assert {status for (_, call, _), status in statuses(capture.passes[0]).items() if call == 7} == {"ok"}


@each_method
def test_warning_filters_are_the_same_before_and_after(method):
    model = small()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Full backward hook is firing when gradients are computed", UserWarning)
        before = list(warnings.filters)
        with capture_gradients(model, method):
            step(model)
        assert warnings.filters == before


@each_method
def test_no_warning_of_torch_is_caused_by_watching(method):
    class Quiet(nn.Module):
        """A layer that only looks, and one that is used for a list of tensors without grad."""

        def __init__(self):
            super().__init__()
            self.linear, self.look = nn.Linear(3, 1), Look()

        def forward(self, x):
            self.look(x)
            return self.linear(x)

    class Look(nn.Module):
        def forward(self, x):
            return [x]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (done,) = captured(seeded(Quiet), step, method).passes
    assert statuses(done) == {("look", 0, "0"): "not_tracked", ("linear", 0, "0"): "ok"}


def test_a_class_made_for_one_module_does_not_outlive_it():
    model = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    kind = weakref.ref(type(model))
    with capture_gradients(model):
        model(torch.ones(1, 3)).sum().backward()
    del model
    gc.collect()
    assert kind() is None


@pytest.mark.parametrize("method", METHODS[:2])
def test_a_hook_that_another_thread_calls_when_the_capture_has_ended_does_nothing(method):
    model = small()
    with capture_gradients(model, method) as capture:
        hidden = model[:2](X)
        late = [
            *model[1]._forward_hooks.values(),
            *hidden._backward_hooks.values(),
            *model[3].weight._backward_hooks.values(),
        ]
        model[2:](hidden).square().sum().backward()
    before = capture.passes[0].outputs, capture.passes[0].parameters
    for hook, arguments in zip(late, [(model[1], (X,), hidden), (hidden,), (model[3].weight,)], strict=True):
        assert hook(*arguments) is None
    assert (capture.passes[0].outputs, capture.passes[0].parameters) == before
    assert not hidden._backward_hooks
