"""An ensemble is the single experiment, seed by seed; and what it says about the seeds follows from those numbers."""

import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specs import experiment_specs, network_specs
from truth import differing_in_eight_threads

from gradlab import CutOffs, ExperimentSpec, NetworkSpec, SpecError, Verdict, build_network, diagnose, run_experiment
from gradlab.batches import loss_function, sample_input, target
from gradlab.capture import capture_gradients
from gradlab.ensemble import MAX_READINGS, Ensemble, Readings, run_ensemble
from gradlab.ensemble.parameters import ENOUGH_SEEDS, Parameters
from gradlab.ensemble.twister import MOST_NUMBERS, uniform_numbers
from gradlab.spec import MAX_SEED, Activation, Initializer, Loss, Normalization, Precision

STATISTICS = ("mean_abs", "rms", "norm", "min", "max", "max_abs")
SEEDS = (0, MAX_SEED, 7, 7, 1_234_567)
KINDS = ("outputs", "weights")

PARTLY_BROKEN = {"layer_sizes": "4x9", "gain": 600.0, "activation": "identity", "sample_input": "standard_normal"}
"""Overflows at some of the seeds."""

OWN_TOLERANCE = {Precision.FLOAT32: 1e-5, Precision.FLOAT64: 1e-6}
LAST_DIGIT = {Precision.FLOAT32: 2**-24, Precision.FLOAT64: 2**-52}
SMALLEST = {Precision.FLOAT32: 1e-41, Precision.FLOAT64: 1e-318}


def spec_of(**changes):
    return ExperimentSpec().replace(**changes)


def numbers_of(kinds):
    """The statistics (2, 6, layers) of the records of two kinds."""
    return np.array([[[getattr(record.statistics, name) for record in records] for name in STATISTICS] for records in kinds])


def marks_of(kinds):
    """Status and number of non-finite entries of the records of two kinds."""
    return [[(record.status, record.statistics.nonfinite_count) for record in records] for records in kinds]


def records_of(outputs, parameters):
    linear = [record for record in outputs if record.module_type == "Linear"]
    return linear, [record for record in parameters if record.role == "weight" and len(record.shape) == 2]


def alone(spec, seed):
    result = run_experiment(replace(spec, seed=seed))
    kinds = records_of(result.outputs, result.parameters)
    return result.loss, numbers_of(kinds), marks_of(kinds)


def in_ensemble(ensemble, place):
    parts = (ensemble.outputs, ensemble.weights)
    numbers = np.array([[getattr(part, name)[place] for name in STATISTICS] for part in parts])
    marks = [list(zip(part.statuses[place], part.nonfinite_count[place].tolist(), strict=True)) for part in parts]
    return ensemble.losses[place], numbers, marks


def shaken(spec, seed, trial):
    """The statistics when the last digit of every weight and bias is changed."""
    spec = replace(spec, seed=seed)
    network, generator = build_network(spec), torch.Generator().manual_seed(trial)
    with torch.no_grad():
        for parameter in network.parameters():
            signs = torch.randint(2, parameter.shape, generator=generator) * 2 - 1
            parameter.mul_(1 + signs.to(parameter.dtype) * LAST_DIGIT[spec.network.dtype] * 2)
    with capture_gradients(network) as capture:
        loss_function(spec)(network(sample_input(spec)), target(spec)).backward()
    return numbers_of(records_of(capture.passes[-1].outputs, capture.passes[-1].parameters))


def assert_same(spec, seeds, *, may_be_ill_conditioned=True):
    """Equal up to the tolerance times the largest entry, or up to the single experiment's own rounding errors.

    Those show when the last digit of the weights is changed, and when a float32 network computes in float64.
    """
    ensemble = run_ensemble(spec, seeds)
    assert ensemble.seeds.tolist() == list(seeds)
    dtype = spec.network.dtype
    for place, seed in enumerate(seeds):
        loss, expected, marks = alone(spec, seed)
        found_loss, found, found_marks = in_ensemble(ensemble, place)
        assert found_marks == marks
        if not np.isfinite(loss) or any(count for kind in marks for _, count in kind):
            np.testing.assert_array_equal(found, expected, f"seed {seed}")
            np.testing.assert_array_equal(found_loss, loss)
            continue
        error = np.abs(found - expected)
        allowed = OWN_TOLERANCE[dtype] * expected[:, 5:] + SMALLEST[dtype]
        if (error > allowed).any():
            assert may_be_ill_conditioned, (seed, found, expected)
            others = [shaken(spec, seed, trial) for trial in range(3)] + [alone(spec.replace(dtype="float64"), seed)[1]]
            changes = np.nan_to_num(np.abs(np.array(others) - expected), nan=np.inf)
            allowed = allowed + 30 * changes.max(axis=(0, 2))[:, None]
        assert (error <= allowed).all(), (seed, found, expected)
        assert found_loss == pytest.approx(loss, rel=1e-4, abs=1e-30)
    return ensemble


# --- the numbers ------------------------------------------------------------------------------------------------------

GRID = list(product(Initializer, Normalization, Precision))


@pytest.mark.parametrize(("initializer", "normalization", "dtype"), GRID)
def test_every_kind_of_network_gives_the_numbers_of_single_experiments(initializer, normalization, dtype):
    place = GRID.index((initializer, normalization, dtype))
    for turn, loss in enumerate(Loss):
        number = place * len(Loss) + turn
        labels = loss is Loss.CROSS_ENTROPY
        spec = spec_of(
            initializer=initializer, normalization=normalization, dtype=dtype, loss=loss,
            activation=list(Activation)[number % len(Activation)], use_shortcut=number % 2 == 0, use_bias=number % 3 > 0,
            activate_last=number % 5 > 1, batch_size=(1, 4, 9)[number % 3] + (normalization is Normalization.BATCH_NORM) * 3,
            layer_sizes=("4-4-4-4-4-2", "5-9-9-3-9-4", "6-6-6-3-3-3")[number % 3 if number % 4 else 0],
            sample_input="standard_normal", target="class_labels" if labels else ("zeros", "standard_normal")[number % 2],
            sigma_w=1.3, sigma_b=0.2, gain=(1.0, 1.5)[number % 2],
        )  # fmt: skip
        assert_same(spec, SEEDS[:3])


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("batch_size", [1, 6])
def test_without_normalization_float64_agrees_to_a_millionth(activation, batch_size):
    spec = spec_of(activation=activation, batch_size=batch_size, dtype="float64", sample_input="standard_normal")
    for use_shortcut, sizes in product((False, True), ("3-3-3-3-3-1", "16x8-2")):
        assert_same(spec.replace(layer_sizes=sizes, use_shortcut=use_shortcut), SEEDS, may_be_ill_conditioned=False)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(experiment_specs(network_specs(st.lists(st.integers(1, 40), min_size=2, max_size=7).map(tuple))))
def test_any_experiment_gives_the_numbers_of_single_experiments(spec):
    assert_same(spec, (spec.seed, 0))


@pytest.mark.parametrize(
    "changes",
    [
        {"normalization": "batch_norm", "batch_size": 2, "sample_input": "standard_normal"},
        {"normalization": "batch_norm", "batch_size": 5, "sample_input": "standard_normal"},
        {"normalization": "batch_norm", "batch_size": 2, "activation": "relu", "sample_input": "standard_normal"},
        {"normalization": "layer_norm_after"},
        {"normalization": "layer_norm_before", "layer_sizes": "2-2-2-2-2"},
        {"normalization": "layer_norm_after", "layer_sizes": "8x8", "activate_last": False, "loss": "output_sum"},
        {"normalization": "layer_norm_before", "layer_sizes": "4x7", "activation": "relu", "gain": 1e6},
    ],
)
@pytest.mark.parametrize("dtype", Precision)
def test_where_normalization_leaves_rounding_errors_they_are_those_of_single_experiments(changes, dtype):
    spec = spec_of(dtype=dtype, **changes)
    ensemble = run_ensemble(spec, SEEDS)
    for place, seed in enumerate(SEEDS):
        np.testing.assert_allclose(in_ensemble(ensemble, place)[1], alone(spec, seed)[1], rtol=1e-4, atol=1e-41)


def test_the_reference_experiment_has_the_published_weight_gradients():
    weights = run_ensemble(ExperimentSpec(), [122, 123]).weights.mean_abs[1]
    # Raschka, LLMs-from-scratch, chapter 4.
    np.testing.assert_allclose(weights, [0.00020173587836325169, 0.0001201116101583466, 0.0007152041653171182,
                                         0.001398873864673078, 0.005049646366387606], rtol=1e-5)  # fmt: skip


@pytest.mark.parametrize("initializer", Initializer)
@pytest.mark.parametrize("sizes", [(3, 3, 1), (19, 3, 24, 5), (20, 20, 20)])
def test_weights_and_biases_are_those_of_single_networks_bit_for_bit(initializer, sizes):
    spec = NetworkSpec(layer_sizes=sizes, initializer=initializer, sigma_b=0.3, gain=-1.7)
    for seeds in (SEEDS, [*range(ENOUGH_SEEDS), *SEEDS]):
        layers = list(Parameters(spec).draw(seeds))
        for place in range(len(seeds) - len(SEEDS), len(seeds)):
            network = build_network(spec, seeds[place])
            for layer, (weight, bias) in zip(network.layers, layers, strict=True):
                assert torch.equal(weight[place], layer[0].weight)
                assert torch.equal(torch.zeros_like(layer[0].bias) if bias is None else bias[place], layer[0].bias)


@pytest.mark.parametrize("count", [1, 15, 16, 17, MOST_NUMBERS])
def test_random_numbers_of_many_seeds_are_those_of_torch(count):
    seeds = [*SEEDS, *range(5000, 10_000)]
    drawn = uniform_numbers(seeds, count)
    for place in (*range(10), 4000, 4096, -1):
        expected = torch.empty(count).uniform_(generator=torch.Generator().manual_seed(seeds[place]))
        assert drawn[place].tolist() == expected.tolist()


def test_more_random_numbers_than_the_seeded_state_gives_are_refused():
    with pytest.raises(ValueError, match="count"):
        uniform_numbers([1], MOST_NUMBERS + 1)


# --- what is not a number, and what is zero -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_sizes": "4x12", "gain": 1e6, "activation": "identity"},
        PARTLY_BROKEN,
        {"layer_sizes": "4x14-1", "initializer": "normal", "sigma_w": 1000, "activation": "relu", "batch_size": 3},
        {"layer_sizes": "3-3-3-3-3-3-3-1", "activation": "relu"},
        {"initializer": "normal", "sigma_w": 0},
        {"gain": 1e-8},
        {"layer_sizes": "4x9", "gain": 1e5, "activation": "identity"},
    ],
)
def test_statuses_are_those_of_single_experiments(changes):
    ensemble = assert_same(spec_of(**changes), range(6))
    seen = {status for part in KINDS for status in getattr(ensemble, part).statuses.ravel()}
    assert seen - {"ok"}


def test_a_gradient_that_is_not_finite_is_no_reading():
    ensemble = run_ensemble(spec_of(**PARTLY_BROKEN), range(12))
    for part in KINDS:
        readings = getattr(ensemble, part)
        broken = readings.nonfinite_count > 0
        assert broken.any()
        assert np.isnan(readings.finite("mean_abs")[broken]).all()
        assert ensemble.band(part)["nonfinite_share"].tolist() == broken.mean(0).tolist()
    assert np.isnan(ensemble.losses).any() or np.isinf(ensemble.losses).any()


def test_products_below_the_smallest_number_are_zero_as_in_float32():
    spec = spec_of(layer_sizes="8x12-1", activation="tanh", gain=1e-4, use_bias=False, loss="output_sum")
    ensemble = assert_same(spec, range(3))
    # Both factors of a middle layer's weight gradient are above 1e-30, their product is below 1e-45.
    assert (ensemble.outputs.max_abs[:, 6] > 1e-30).all()
    assert (ensemble.weights.max_abs[:, 6] == 0).all()


# --- the trend --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", KINDS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_shortcut": True},
        {"layer_sizes": "8-5-5-7-5-5-2"},
        {"layer_sizes": "3-3-1"},
        {"layer_sizes": "3-1"},
        {"layer_sizes": "8x14-1", "gain": 1e-4},
        {"layer_sizes": "8x18-1", "gain": 1e-6},
        {"layer_sizes": "3x9-1", "activation": "relu"},
        {"layer_sizes": "2x7-1", "activation": "relu", "initializer": "he"},
        PARTLY_BROKEN,
        {"layer_sizes": "16x8-1", "initializer": "he", "gain": 2.0, "activation": "relu"},
    ],
)
def test_factor_attenuation_and_verdict_are_those_of_the_diagnosis_of_each_seed(changes, gradient):
    spec, seeds = spec_of(**changes), range(12)
    ensemble = run_ensemble(spec, seeds)
    factors, attenuations, verdicts = ensemble.trends(gradient=gradient)
    for place, seed in enumerate(seeds):
        expected = diagnose(run_experiment(replace(spec, seed=seed)), gradient=gradient)
        assert verdicts[place] is expected.verdict
        for found, number in ((factors[place], expected.factor), (attenuations[place], expected.attenuation)):
            assert found == pytest.approx(np.nan if number is None else number, rel=1e-4, nan_ok=True)
    if gradient == "outputs":
        np.testing.assert_array_equal(ensemble.factors, factors)
        np.testing.assert_array_equal(ensemble.attenuations, attenuations)
        assert ensemble.verdicts.tolist() == verdicts.tolist()


def test_the_cut_offs_can_be_changed():
    ensemble = run_ensemble(ExperimentSpec(), range(30))
    assert set(ensemble.trends(CutOffs(severe_vanishing=1e-9, vanishing=1e-8)).verdicts) == {Verdict.WEAKENING}


def made(rms):
    """An ensemble of layer sizes 2-2-…-2 with these readings of outputs and weights, one row per seed."""
    rms = np.array(rms, float)
    nonfinite = np.isnan(rms).astype(int)
    readings = Readings(**dict.fromkeys(STATISTICS, rms), nonfinite_count=nonfinite)
    return Ensemble(
        spec=spec_of(layer_sizes="-".join(["2"] * (rms.shape[1] + 1))), seeds=np.arange(len(rms)), losses=np.ones(len(rms)),
        outputs=readings, weights=readings, stopped=False,
    )  # fmt: skip


HALVING, DOUBLING, ZERO = [1, 2, 4, 8], [8, 4, 2, 1], [0, 0, 0, 1]
BROKEN, FLAT = [np.nan, 1, 2, 3], [5, 5, 5, 5]


def test_the_opposite_is_the_other_side_of_one_among_seeds_with_a_factor():
    assert made([HALVING, HALVING, HALVING, DOUBLING, ZERO, FLAT]).opposite_share == 1 / 5
    assert made([DOUBLING, DOUBLING, DOUBLING, HALVING]).opposite_share == 1 / 4
    assert made([HALVING] * 3).opposite_share == 0
    assert np.isnan(made([ZERO, ZERO]).opposite_share)
    assert np.isnan(made([FLAT, FLAT, HALVING]).opposite_share)


def test_what_rounding_makes_of_a_factor_of_one_is_no_opposite():
    kept = spec_of(layer_sizes="8x12", activation="identity", initializer="orthogonal", use_bias="false")
    held = run_ensemble(kept, range(40))
    assert 0 < abs(held.factors - 1).max() < 1e-6
    assert np.isnan(held.opposite_share)


def test_a_list_that_falls_at_every_step_toward_the_input_is_counted():
    assert made([HALVING, DOUBLING, FLAT, BROKEN]).monotone_share() == 1 / 4
    assert made([HALVING, [1, 4, 2, 8]]).monotone_share("outputs", "norm") == 1 / 2
    assert made([HALVING, [1, 4, 2, 8], DOUBLING, BROKEN]).first_below_last_share() == 1 / 2


def test_the_shares_of_the_verdicts_add_up():
    shares = made([HALVING, DOUBLING, ZERO, FLAT]).verdict_shares
    assert sum(shares.values()) == 1
    assert shares[Verdict.STEADY] == shares[Verdict.NOT_MEASURABLE] == 1 / 4


def test_a_strict_order_of_the_reference_network_shows_at_half_of_the_seeds_and_first_below_last_at_nearly_all():
    plain, shortcut = (run_ensemble(spec_of(use_shortcut=flag), range(4000)) for flag in (False, True))
    assert 0.4 < plain.monotone_share() < 0.6
    assert min(plain.first_below_last_share(), shortcut.first_below_last_share()) > 0.9
    assert np.median(plain.factors) < 0.5 < 0.9 < np.median(shortcut.factors)


# --- tables -----------------------------------------------------------------------------------------------------------


def test_a_band_holds_the_quantiles_of_each_layer():
    ensemble = run_ensemble(ExperimentSpec(), range(101))
    band = ensemble.band("weights", "norm", 0.05, 0.95)
    ordered = np.sort(ensemble.weights.norm, axis=0)  # the 101 readings in order stand at 0, 1, … 100 %
    for column, place in (("low", 5), ("median", 50), ("high", 95)):
        np.testing.assert_allclose(band[column], ordered[place])
    assert band["layer"].tolist() == list(ensemble.layers)
    assert band["seeds"].tolist() == [101] * 5
    assert band[["zero_share", "nonfinite_share"]].to_numpy().max() == 0


def test_a_band_leaves_out_what_is_not_finite_and_counts_zeros():
    band = made([BROKEN, BROKEN, [0, 1, 2, 3], [np.nan, 5, 6, 7]]).band("outputs", low=0, high=1)
    assert band["seeds"].tolist() == [1, 4, 4, 4]
    assert band["zero_share"].tolist() == [0.25, 0, 0, 0]
    assert band["nonfinite_share"].tolist() == [0.75, 0, 0, 0]
    assert band["high"].tolist() == [0, 5, 6, 7]
    assert made([BROKEN]).band("outputs")[["low", "median", "high"]].isna().to_numpy().tolist()[0] == [True] * 3


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("biases",), "quantity"),
        (("weights", "mean"), "statistic"),
        (("weights", "rms", 0.7), "low"),
        (("weights", "rms", 0.1, 0.2), "high"),
        (("weights", "rms", float("nan")), "low"),
    ],
)
def test_a_band_of_something_else_is_refused(arguments, field):
    with pytest.raises(SpecError, match=field):
        made([HALVING]).band(*arguments)


def test_the_table_has_a_row_per_seed_quantity_and_layer():
    ensemble = run_ensemble(spec_of(activation="relu"), [5, 3, 5])
    table = ensemble.table()
    assert len(table) == 2 * 3 * 5
    assert table.loc[table["quantity"] == "outputs", "seed"].tolist() == [5] * 5 + [3] * 5 + [5] * 5
    result = run_experiment(spec_of(activation="relu", seed=3))
    here = table[(table["seed"] == 3) & (table["quantity"] == "weights")]
    np.testing.assert_allclose(here["norm"], result.weight_table()["norm"], rtol=1e-5)
    assert here["status"].tolist() == result.weight_table()["status"].tolist()
    assert [f"{layer}.0.weight" for layer in here["layer"]] == result.weight_table()["parameter"].tolist()


def test_an_ensemble_is_plain_arrays_that_can_be_pickled():
    ensemble = run_ensemble(ExperimentSpec(), range(5))
    written = pickle.dumps(ensemble)
    assert b"tensor" not in written.replace(b"tensor_hooks", b"")
    copy = pickle.loads(written)
    assert (copy.spec, len(copy), copy.stopped) == (ensemble.spec, 5, False)
    pandas.testing.assert_frame_equal(copy.table(), ensemble.table())


# --- seeds, progress, threads -----------------------------------------------------------------------------------------


def test_seeds_may_repeat_and_come_in_any_order_and_kind():
    expected = {seed: alone(ExperimentSpec(), seed)[1] for seed in (9, 4, MAX_SEED)}
    for seeds in ([9, 4, 9, MAX_SEED], (9, 4, 9, MAX_SEED), np.array([9, 4, 9, MAX_SEED]), np.array([9, 4], np.uint32)):
        ensemble = run_ensemble(ExperimentSpec(), seeds)
        for place, seed in enumerate(seeds):
            np.testing.assert_allclose(in_ensemble(ensemble, place)[1], expected[int(seed)], rtol=1e-5)
    assert run_ensemble(ExperimentSpec(), range(8, 0, -3)).seeds.tolist() == [8, 5, 2]
    one, other = (run_ensemble(ExperimentSpec(seed=seed), [3]) for seed in (1, 2))
    assert one.table().equals(other.table())


@pytest.mark.parametrize(
    "seeds",
    [[-1], [2**32], [1.5], [True], ["x"], [None], [1, np.nan], np.array([[1, 2]]), [], range(0), "123", 5, None,
     range(MAX_READINGS), range(MAX_SEED, MAX_SEED + 2)],
)  # fmt: skip
def test_seeds_that_are_none_are_refused_before_anything_runs(seeds):
    with pytest.raises(SpecError, match="seed"):
        run_ensemble(ExperimentSpec(), seeds, progress=lambda done, total: pytest.fail("it ran"))


def many_chunks():
    return spec_of(layer_sizes="32x21"), range(500)


def one_by_one():
    return spec_of(normalization="batch_norm", batch_size=2, sample_input="standard_normal", layer_sizes="16x9"), range(40)


@pytest.mark.parametrize("case", [many_chunks, one_by_one])
def test_progress_is_told_in_order_to_the_end(case):
    spec, seeds = case()
    told = []
    ensemble = run_ensemble(spec, seeds, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(seeds), len(seeds))
    assert {total for _, total in told} == {len(seeds)}
    done = [number for number, _ in told]
    assert len(done) > 1
    assert all(one < other for one, other in pairwise(done))
    assert done[0] > 0
    assert not ensemble.stopped


@pytest.mark.parametrize("case", [many_chunks, one_by_one])
@pytest.mark.parametrize("no", [False, np.False_, 0])
def test_an_ensemble_stops_when_progress_says_so_and_keeps_what_is_done(case, no):
    spec, seeds = case()
    told = []

    def progress(done, total):
        told.append(done)
        return no

    part = run_ensemble(spec, seeds, progress=progress)
    assert part.stopped
    assert told == [len(part)]
    assert 0 < len(part) < len(seeds)
    whole = run_ensemble(spec, list(seeds)[: len(part)])
    assert not whole.stopped
    pandas.testing.assert_frame_equal(part.table(), whole.table(), rtol=1e-5)
    assert part.band("outputs")["seeds"].tolist() == [len(part)] * spec.network.depth


def test_a_no_after_the_last_seed_stops_nothing_and_an_error_passes():
    assert not run_ensemble(ExperimentSpec(), [1, 2], progress=lambda done, total: False).stopped

    def fail(done, total):
        raise KeyError("the page was left")

    with pytest.raises(KeyError, match="the page was left"):
        run_ensemble(ExperimentSpec(), [1, 2], progress=fail)


SEVERAL = [
    spec_of(**changes)
    for changes in (
        {"layer_sizes": "8x6", "batch_size": 3, "sample_input": "standard_normal", "target": "standard_normal"},
        {"initializer": "orthogonal", "layer_sizes": "8x6", "normalization": "layer_norm_before"},
        {"initializer": "normal", "layer_sizes": "3-5-2", "loss": "cross_entropy", "target": "class_labels"},
        PARTLY_BROKEN,
        {},
    )
]


def test_ensembles_in_eight_threads_give_the_very_numbers_they_give_alone_and_leave_random_state_alone():
    before = torch.get_rng_state()
    seeds = [range(15)] * (len(SEVERAL) - 1) + [range(ENOUGH_SEEDS)]
    expected = [run_ensemble(spec, some).table() for spec, some in zip(SEVERAL, seeds, strict=True)]
    differing = differing_in_eight_threads(
        len(SEVERAL), lambda place: run_ensemble(SEVERAL[place], seeds[place]).table().equals(expected[place])
    )
    assert differing == []
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("spec", SEVERAL)
def test_neither_global_random_state_nor_the_default_dtype_changes_a_number(spec):
    expected = run_ensemble(spec, range(3)).table()
    with torch.random.fork_rng():
        torch.manual_seed(99)
        torch.set_default_dtype(torch.float64)
        try:
            changed = run_ensemble(spec, range(3)).table()
        finally:
            torch.set_default_dtype(torch.float32)
    pandas.testing.assert_frame_equal(changed, expected, check_exact=True)


def test_the_speed_of_an_ensemble_can_be_measured():
    benchmark = Path(__file__).parent / "benchmarks" / "ensemble_speed.py"
    command = [sys.executable, benchmark, "reference", "--rounds", "1", "--seeds", "50"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    names, figures = done.stdout.splitlines()
    assert "ratio" in names
    assert figures.startswith("reference")
