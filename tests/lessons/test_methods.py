"""The capture methods side by side: each cell says what an independent differentiation confirms."""

import math
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn import functional

from gradlab import GradlabError
from gradlab.lessons.methods import OUTCOME_HELP, SITUATIONS, Outcome, by_hand, side_by_side, true_norm
from gradlab.spec import CaptureMethod

each_situation = pytest.mark.parametrize("situation", SITUATIONS)
# In the order tensor hooks, retain_grad, full backward hooks.
LAB = {
    "ordinary": ("equal", "equal", "equal"),
    "in_place": ("equal", "withheld", "error"),
    "used_twice": ("equal", "equal", "withheld"),
    "tuple_output": ("equal", "equal", "equal"),
    "nested_output": ("equal", "equal", "error"),
    "detached": ("absent", "absent", "absent"),
    "no_grad": ("absent", "absent", "absent"),
    "checkpointing": ("equal", "equal", "equal"),
}
BY_HAND = {
    "ordinary": ("equal", "equal", "equal"),
    "in_place": ("equal", "wrong", "error"),
    "used_twice": ("incomplete", "incomplete", "incomplete"),
    "tuple_output": ("error", "error", "incomplete"),
    "nested_output": ("error", "error", "incomplete"),
    "detached": ("absent", "absent", "absent"),
    "no_grad": ("error", "error", "absent"),
    "checkpointing": ("equal", "wrong", "equal"),
}
METHODS = ("tensor_hooks", "retain_grad", "full_backward_hooks")


def written_out(situation):
    """The loss of a situation and what its middle layer returns, in functions alone, from the network's own numbers."""
    net = SITUATIONS[situation].build()

    def linear(layer, x):
        return functional.linear(x, layer.weight, layer.bias)

    hidden = torch.tanh(linear(net.first, net.batch))
    if situation in ("tuple_output", "nested_output"):
        returned = [linear(net.middle.left, hidden), linear(net.middle.right, hidden)]
        x = torch.tanh(returned[0]) * torch.sigmoid(returned[1])
    else:
        returned = [linear(net.middle, hidden)]
        x = torch.tanh(returned[0])
    if situation == "in_place":
        x = returned[0].clamp(min=0)
    if situation == "used_twice":
        returned.append(linear(net.middle, x))
        x = torch.tanh(returned[1])
    if situation in ("detached", "no_grad"):
        x = hidden + returned[0].detach()
    return linear(net.last, x).square().mean(), returned, x


def length(gradients):
    return math.sqrt(sum(g.double().square().sum().item() for g in gradients))


def outcomes(cells):
    return {cell.method: str(cell.outcome) for cell in cells}


@each_situation
def test_a_situation_says_what_it_is(situation):
    entry = SITUATIONS[situation]
    assert 0 < len(entry.title) <= 40
    assert entry.help.endswith(".")
    assert set(LAB) == set(BY_HAND) == set(SITUATIONS)


def test_every_outcome_has_a_line_of_help():
    assert set(OUTCOME_HELP) == set(Outcome)


@each_situation
def test_the_truth_is_what_differentiating_the_written_out_forward_gives(situation):
    loss, returned, _ = written_out(situation)
    found = torch.autograd.grad(loss, returned, allow_unused=True)
    ours = SITUATIONS[situation].build().gradients()
    assert len(ours) == len(found)
    for our, other in zip(ours, found, strict=True):
        assert (our is None) == (other is None)
        if our is not None:
            torch.testing.assert_close(our, other)
    if None in found:
        assert true_norm(situation) is None
    else:
        assert true_norm(situation) == pytest.approx(length(found), rel=1e-5)


@each_situation
def test_the_forward_computes_what_is_written_out(situation):
    loss, _, _ = written_out(situation)
    assert SITUATIONS[situation].build()().item() == pytest.approx(loss.item(), rel=1e-6)


@each_situation
def test_the_labs_capture_is_equal_or_says_why_not(situation):
    cells = side_by_side(situation)
    assert outcomes(cells) == dict(zip(METHODS, LAB[situation], strict=True))
    for cell in cells:
        assert (cell.value is not None) == (cell.outcome is Outcome.EQUAL)
        assert cell.value is None or cell.value == pytest.approx(true_norm(situation), rel=1e-6)
        assert cell.words.endswith(".")
        assert cell.outcome not in (Outcome.WITHHELD, Outcome.ERROR) or "tensor_hooks" in cell.words


@each_situation
def test_by_hand_each_pattern_gives_what_is_said_of_it(situation):
    cells = by_hand(situation)
    assert outcomes(cells) == dict(zip(METHODS, BY_HAND[situation], strict=True))
    for cell in cells:
        assert cell.words.endswith(".")
        assert "The run fails" not in cell.words  # an error nobody has put into plain words
        assert cell.outcome is not Outcome.EQUAL or cell.value == pytest.approx(true_norm(situation), rel=1e-6)
        assert cell.outcome is not Outcome.ERROR or cell.value is None


def test_in_place_a_retained_gradient_is_that_of_what_the_tensor_became():
    loss, returned, changed = written_out("in_place")
    right, became = torch.autograd.grad(loss, [returned[0], changed])
    retained = by_hand("in_place")[1]
    assert retained.method is CaptureMethod.RETAIN_GRAD
    assert retained.value == pytest.approx(length([became]), rel=1e-6)
    assert retained.value != pytest.approx(length([right]), rel=1e-2)
    assert "became" in retained.words


@pytest.mark.parametrize(("method", "call"), [(0, 0), (1, 1), (2, 0)], ids=METHODS)
def test_used_twice_one_entry_per_layer_keeps_one_of_two_gradients(method, call):
    loss, returned, _ = written_out("used_twice")
    cell = by_hand("used_twice")[method]
    assert cell.value == pytest.approx(length([torch.autograd.grad(loss, returned)[call]]), rel=1e-5)
    assert f"tensor {call + 1} of 2" in cell.words


@each_situation
def test_a_situation_disturbs_nothing_and_is_the_same_in_every_thread(situation):
    state, filters = torch.get_rng_state(), list(warnings.filters)
    alone = side_by_side(situation), by_hand(situation)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: (side_by_side(situation), by_hand(situation)), range(8))) == [alone] * 8
    assert torch.equal(torch.get_rng_state(), state)
    assert warnings.filters == filters


@pytest.mark.parametrize("ask", [side_by_side, by_hand, true_norm])
def test_an_unknown_situation_is_refused_with_those_there_are(ask):
    with pytest.raises(GradlabError, match=r"'sleeping'.*in_place"):
        ask("sleeping")
