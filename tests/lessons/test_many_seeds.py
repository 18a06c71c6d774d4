"""Many seeds in numbers, each against single experiments that were run by themselves."""

from dataclasses import replace
from itertools import pairwise
from statistics import median

import numpy as np
import pytest

from gradlab import diagnose, run_ensemble, run_experiment
from gradlab.diagnosis import Verdict
from gradlab.lessons.many_seeds import joined, standing, summarize
from gradlab.spec import ExperimentSpec
from gradlab.trail import Quantity, backward_trail

SEEDS = range(40)
EXPERIMENTS = {
    "reference": ExperimentSpec(),
    "shortcuts": ExperimentSpec.from_dict({"use_shortcut": True}),
    "relu": ExperimentSpec.from_dict({"layer_sizes": "2x6", "activation": "relu"}),
}
EACH = pytest.mark.parametrize("spec", EXPERIMENTS.values(), ids=EXPERIMENTS)
EITHER = pytest.mark.parametrize("quantity", Quantity)


def one_by_one(spec, quantity):
    """What `run_experiment` says at each seed: the readings from the output end on, and the diagnosis."""
    results = [run_experiment(replace(spec, seed=seed)) for seed in SEEDS]
    trails = [backward_trail(result, quantity).set_index("layer")["reading"] for result in results]
    order = [f"layers.{place}" for place in reversed(range(spec.network.depth))]
    return [list(trail[order]) for trail in trails], [diagnose(result, gradient=quantity) for result in results]


@EACH
@EITHER
def test_what_is_counted_is_what_single_experiments_show(spec, quantity):
    found = summarize(run_ensemble(spec, SEEDS), quantity)
    readings, diagnoses = one_by_one(spec, quantity)
    factors = [each.factor for each in diagnoses if each.factor is not None]
    assert found.seeds == len(SEEDS)
    assert found.judged == len(factors)
    if found.factors is None:
        assert not factors
    else:
        assert found.factors[1] == pytest.approx(median(factors), rel=1e-4)
        tenth = sum(factor <= found.factors[0] for factor in factors) / len(factors)
        assert tenth == pytest.approx(0.1, abs=1 / len(factors))
        shrinks = median(factors) < 1
        assert found.opposite == sum((factor > 1) if shrinks else (factor < 1) for factor in factors)
        against = {Verdict.GROWING, Verdict.EXPLODING} if shrinks else {Verdict.VANISHING, Verdict.WEAKENING}
        assert found.opposite_verdicts == sum(each.verdict in against for each in diagnoses) <= found.opposite
    verdicts = [each.verdict for each in diagnoses]
    assert found.verdicts == {verdict: verdicts.count(verdict) for verdict in Verdict if verdict in verdicts}
    falling = [all(after < before for before, after in pairwise(row)) for row in readings]
    assert found.falling == sum(falling)
    assert found.first_below_last == sum(row[-1] < row[0] for row in readings)
    assert found.zero == tuple(seed for seed, row in zip(SEEDS, readings, strict=True) if 0 in row)
    assert found.non_finite == ()


def test_the_relu_network_of_two_units_dies_at_some_seeds_and_they_are_named():
    found = summarize(run_ensemble(EXPERIMENTS["relu"], SEEDS), Quantity.WEIGHTS)
    assert 0 < len(found.zero) < len(SEEDS)


def test_seeds_with_infinite_gradients_are_named_and_not_averaged_away():
    spec = ExperimentSpec.from_dict({"layer_sizes": "4x40", "initializer": "normal", "sigma_w": 100, "activation": "identity"})
    found = summarize(run_ensemble(spec, range(6)), Quantity.WEIGHTS)
    assert found.non_finite == tuple(range(6))
    assert found.factors is None
    assert found.verdicts == {Verdict.NOT_MEASURABLE: 6}
    assert found.band["nonfinite_share"].max() == 1


def test_where_the_median_is_neither_there_is_no_opposite():
    shallow = summarize(run_ensemble(ExperimentSpec.from_dict({"layer_sizes": "3-3-1"}), range(5)), Quantity.OUTPUTS)
    assert shallow.factors is None
    assert shallow.opposite is None
    assert shallow.verdicts == {Verdict.TOO_SHALLOW: 5}


@EITHER
def test_parts_joined_are_the_whole(quantity):
    spec = EXPERIMENTS["reference"]
    whole = summarize(run_ensemble(spec, range(30)), quantity)
    pieces = summarize(joined([run_ensemble(spec, seeds) for seeds in (range(7), range(7, 8), range(8, 30))]), quantity)
    assert pieces.factors == pytest.approx(whole.factors, rel=1e-5)
    assert np.allclose(pieces.band["median"], whole.band["median"], rtol=1e-5)
    assert (pieces.seeds, pieces.verdicts, pieces.falling) == (whole.seeds, whole.verdicts, whole.falling)


@EACH
@EITHER
@pytest.mark.parametrize("seed", [3, 4000])
def test_a_seed_stands_where_counting_the_others_puts_it(spec, quantity, seed):
    result = run_experiment(replace(spec, seed=seed))
    where = standing(result, run_ensemble(spec, SEEDS), quantity)
    readings, diagnoses = one_by_one(spec, quantity)
    others = [place for place, each in enumerate(SEEDS) if each != seed]
    own = list(backward_trail(result, quantity).set_index("layer")["reading"].sort_index())
    assert (where.seed, where.others) == (seed, len(others))
    assert where.readings == tuple(own)
    for layer, reading in enumerate(own):
        column = [readings[place][::-1][layer] for place in others]
        assert where.below[layer] == pytest.approx(sum(value < reading for value in column) / len(others))
    factors = [diagnoses[place].factor for place in others if diagnoses[place].factor is not None]
    assert where.factor == diagnose(result, gradient=quantity).factor
    if where.factor is not None and factors:
        assert where.factor_below == pytest.approx(sum(factor < where.factor for factor in factors) / len(factors))
