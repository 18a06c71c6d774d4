"""The sample input, the target and the loss: fixed, drawn from the seed alone, and what their names say."""

import math
import threading

import pytest
import torch

from gradlab import ExperimentSpec
from gradlab.batches import loss_function, sample_input, target
from gradlab.networks import build_network
from gradlab.spec import Loss, SampleInput, Target


def experiment(**fields):
    return ExperimentSpec.from_dict({"layer_sizes": "64-8", "batch_size": 500} | fields)


def test_the_fixed_sample_of_the_reference_experiment_is_1_0_minus_1():
    assert torch.equal(sample_input(ExperimentSpec()), torch.tensor([[1.0, 0.0, -1.0]]))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 4096])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_fixed_sample_repeats_1_0_minus_1_in_every_row(size, rows):
    batch = sample_input(experiment(layer_sizes=(size, 1), batch_size=rows))
    assert batch.tolist() == [[(1.0, 0.0, -1.0)[place % 3] for place in range(size)]] * rows


def test_zeros_are_zeros():
    spec = experiment(sample_input="zeros", target="zeros")
    assert torch.equal(sample_input(spec), torch.zeros(500, 64))
    assert torch.equal(target(spec), torch.zeros(500, 8))


@pytest.mark.parametrize("draw", [sample_input, target])
def test_standard_normal_numbers_have_mean_0_and_variance_1(draw):
    drawn = draw(experiment(sample_input="standard_normal", target="standard_normal", layer_sizes="64-64"))
    deviation = 5 / math.sqrt(drawn.numel())
    assert drawn.mean().item() == pytest.approx(0, abs=deviation)
    assert drawn.var().item() == pytest.approx(1, abs=deviation * math.sqrt(2))


def test_class_labels_are_every_class_about_as_often():
    labels = target(experiment(target="class_labels", loss="cross_entropy", batch_size=1000))
    assert labels.dtype is torch.int64
    assert labels.shape == (1000,)
    counts = labels.bincount(minlength=8)
    assert len(counts) == 8
    assert counts.min() > 125 - 5 * math.sqrt(125)


def test_input_target_and_weights_are_drawn_independently():
    spec = experiment(layer_sizes="64-64", batch_size=64, sample_input="standard_normal", target="standard_normal")
    drawn = [sample_input(spec), target(spec), build_network(spec.replace(initializer="normal")).layers[0][0].weight.detach()]
    rows = torch.stack([part.flatten() for part in drawn])
    assert torch.corrcoef(rows)[~torch.eye(3, dtype=bool)].abs().max() < 5 / math.sqrt(rows.shape[1])


@pytest.mark.parametrize("draw", [sample_input, target])
def test_a_seed_gives_one_batch_and_another_seed_another(draw):
    spec = experiment(sample_input="standard_normal", target="standard_normal", batch_size=2)
    assert torch.equal(draw(spec), draw(spec))
    seeds = [0, 1, 2, 123, 2**31, 2**32 - 2, 2**32 - 1]
    drawn = [tuple(draw(spec.replace(seed=seed)).flatten().tolist()) for seed in seeds]
    assert len(set(drawn)) == len(seeds)


@pytest.mark.parametrize("kind", SampleInput)
@pytest.mark.parametrize("wanted", [Target.ZEROS, Target.STANDARD_NORMAL])
@pytest.mark.parametrize(("name", "dtype"), [("float32", torch.float32), ("float64", torch.float64)])
def test_batches_have_the_networks_shape_and_dtype(kind, wanted, name, dtype):
    spec = experiment(sample_input=kind, target=wanted, dtype=name, batch_size=3)
    assert (sample_input(spec).shape, sample_input(spec).dtype) == ((3, 64), dtype)
    assert (target(spec).shape, target(spec).dtype) == ((3, 8), dtype)


def test_a_double_batch_holds_the_single_precision_numbers():
    fields = {"sample_input": "standard_normal", "target": "standard_normal"}
    for draw in (sample_input, target):
        assert torch.equal(draw(experiment(**fields, dtype="float64")), draw(experiment(**fields)).double())


OUTPUT = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]])
WANTED = torch.tensor([[0.0, 1.0, 0.5], [2.0, -1.0, 0.0]])
LABELS = torch.tensor([2, 0])


@pytest.mark.parametrize(
    ("loss", "wanted", "value"),
    [
        ("mse", WANTED, (1 + 9 + 0 + 4 + 16 + 1) / 6),
        ("mse_sum", WANTED, 1 + 9 + 0 + 4 + 16 + 1),
        ("l1", WANTED, (1 + 3 + 0 + 2 + 4 + 1) / 6),
        ("output_sum", WANTED, 1.5),
        (
            "cross_entropy",
            LABELS,
            (
                math.log(math.exp(1) + math.exp(-2) + math.exp(0.5)) - 0.5
                + math.log(1 + math.exp(3) + math.exp(-1)) - 0
            ) / 2,
        ),
    ],
)  # fmt: skip
def test_a_loss_is_the_formula_of_its_name(loss, wanted, value):
    kind = {"target": "class_labels"} if loss == "cross_entropy" else {}
    assert loss_function(experiment(loss=loss, **kind))(OUTPUT, wanted).item() == pytest.approx(value, rel=1e-6)


def test_every_loss_has_its_formula_above():
    assert set(Loss) == {"mse", "mse_sum", "l1", "output_sum", "cross_entropy"}


def test_a_summed_loss_is_the_mean_times_the_number_of_entries():
    output = OUTPUT.clone().requires_grad_()
    gradients = [
        torch.autograd.grad(loss_function(experiment(loss=loss))(output, WANTED), output)[0] for loss in ("mse", "mse_sum")
    ]
    assert torch.allclose(gradients[1], gradients[0] * 6)


def test_drawing_leaves_global_random_state_alone_and_threads_do_not_disturb_each_other():
    specs = [experiment(seed=seed, sample_input="standard_normal", target="standard_normal") for seed in range(40)]
    alone = [(sample_input(spec), target(spec)) for spec in specs]
    before, found = torch.get_rng_state(), {}

    def draw(start):
        for place in range(start, len(specs), 4):
            found[place] = sample_input(specs[place]), target(specs[place])

    threads = [threading.Thread(target=draw, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.get_rng_state(), before)
    for place, (inputs, wanted) in enumerate(alone):
        assert torch.equal(found[place][0], inputs)
        assert torch.equal(found[place][1], wanted)
