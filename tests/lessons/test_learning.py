"""How far weights move: what optimisers of PyTorch do, and the closed form of a first step."""

import pytest
import torch
from chain import Chain

from gradlab import ExperimentSpec, GradlabError, build_network
from gradlab.batches import loss_function, sample_input, target
from gradlab.lessons.learning import LEARNING_RATES, OPTIMIZERS, Optimizer, weight_movement
from gradlab.presets import PRESETS

SPEC = ExperimentSpec().replace(layer_sizes="8x6-2", sample_input="standard_normal", batch_size=5, dtype="float64")
SIGMOID = PRESETS["deep_sigmoid"].spec
TORCH = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
each_optimizer = pytest.mark.parametrize("optimizer", TORCH)


@each_optimizer
@pytest.mark.parametrize("spec", [SPEC, SPEC.replace(normalization="batch_norm", use_shortcut=True)])
@pytest.mark.parametrize("steps", [1, 5])
def test_weights_move_as_far_as_under_the_optimiser_of_pytorch(optimizer, spec, steps):
    network, loss_of = build_network(spec), loss_function(spec)
    stepping = TORCH[optimizer](network.parameters(), lr=0.01)
    before = [layer[0].weight.detach().clone() for layer in network.layers]
    for _ in range(steps):
        stepping.zero_grad()
        loss_of(network(sample_input(spec)), target(spec)).backward()
        stepping.step()
    expected = [((layer[0].weight - was).norm() / was.norm()).item() for layer, was in zip(network.layers, before, strict=True)]
    found = weight_movement(spec, steps, optimizer, learning_rate=0.01)
    assert [row.relative_movement for row in found] == pytest.approx(expected, rel=1e-9)
    assert [row.layer for row in found] == [f"layers.{depth}" for depth in range(len(expected))]


@pytest.mark.parametrize("rate", [1e-3, 0.5])
def test_one_step_of_sgd_moves_a_layer_by_the_rate_times_its_gradient(rate):
    chain = Chain(SPEC)
    for row, linear, gradient in zip(
        weight_movement(SPEC, 1, learning_rate=rate), chain.linears, chain.weight_gradients(), strict=True
    ):
        assert row.relative_movement == pytest.approx(rate * (gradient.norm() / linear.weight.norm()).item(), rel=1e-9)
        assert row.first_gradient == pytest.approx(gradient.abs().mean().item(), rel=1e-12)
        assert row.moved_share == 1


def test_the_first_step_of_adam_moves_every_weight_by_the_rate_unless_its_gradient_is_below_epsilon():
    chain = Chain(SPEC)
    for row, linear, gradient in zip(weight_movement(SPEC, 1, "adam"), chain.linears, chain.weight_gradients(), strict=True):
        step = LEARNING_RATES[Optimizer.ADAM] * gradient.abs() / (gradient.abs() + 1e-8)
        assert row.relative_movement == pytest.approx((step.norm() / linear.weight.norm()).item(), rel=1e-6)


def test_a_vanishing_gradient_leaves_the_first_layer_where_it_is_under_sgd_and_not_under_adam():
    sgd, adam = weight_movement(SIGMOID), weight_movement(SIGMOID, optimizer="adam")
    assert sgd[0].first_gradient == adam[0].first_gradient < 1e-9
    assert sgd[0].relative_movement < 1e-8 * sgd[-1].relative_movement
    assert adam[0].relative_movement > 1e-3 * adam[-1].relative_movement
    assert adam[0].moved_share == 1


def test_far_below_its_epsilon_adam_moves_nothing_either():
    first, *_, last = weight_movement(ExperimentSpec().replace(layer_sizes="8x41-1"), optimizer="adam")
    assert 0 < first.first_gradient < 1e-20
    assert (first.relative_movement, first.moved_share) == (0, 0)
    assert last.moved_share == 1


def test_what_is_no_number_is_not_shown_as_one():
    (row, *_) = weight_movement(ExperimentSpec().replace(initializer="normal", sigma_w=0))
    assert (row.relative_movement, row.first_gradient) == (None, 0)
    (row, *_) = weight_movement(ExperimentSpec().replace(layer_sizes="8x40", activation="relu", initializer="he", gain=1e6))
    assert (row.relative_movement, row.first_gradient) == (None, None)


def test_the_random_state_stays_and_the_compiler_is_not_needed():
    state = torch.get_rng_state()
    assert weight_movement(SPEC) == weight_movement(SPEC)
    assert torch.equal(torch.get_rng_state(), state)


def test_every_optimiser_has_a_title_help_and_rate():
    assert set(OPTIMIZERS) == set(LEARNING_RATES) == set(Optimizer)
    assert all(entry.help.endswith(".") and len(entry.help) <= 120 for entry in OPTIMIZERS.values())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"optimizer": "lion"}, "'lion'.*adam"),
        ({"steps": 0}, "steps = 0.*1 to 100"),
        ({"steps": 101}, "steps = 101"),
        ({"steps": True}, "steps = True"),
        ({"learning_rate": 0}, "learning_rate = 0"),
        ({"learning_rate": float("nan")}, "learning_rate = nan"),
    ],
)
def test_what_cannot_be_run_is_refused_in_words(options, named):
    with pytest.raises(GradlabError, match=named):
        weight_movement(SPEC, **options)


def test_an_experiment_too_large_for_the_steps_is_refused_at_once():
    large = ExperimentSpec().replace(layer_sizes="64x11", batch_size=1024)
    assert len(weight_movement(large, 1)) == 10
    with pytest.raises(GradlabError, match=r"100 steps.*million"):
        weight_movement(large, 100)
