"""The result of an experiment: plain numbers in the order of arrival, the same in every thread and global state."""

import gc
import pickle

import pandas
import pytest
import torch
from truth import METHODS, differing_in_eight_threads

from gradlab import ExperimentSpec, NetworkSpec, SpecError, build_network, run_experiment
from gradlab.batches import sample_input
from gradlab.spec import Initializer, Normalization


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("use_shortcut", [False, True])
def test_gradients_arrive_from_the_last_layer_to_the_first(method, use_shortcut):
    spec = ExperimentSpec().replace(use_shortcut=use_shortcut, capture_method=method)
    result = run_experiment(spec)
    forward = [f"layers.{index}.{place}" for index in range(5) for place in range(2)]
    assert [record.layer for record in result.outputs] == forward
    assert [record.forward_index for record in result.outputs] == list(range(10))
    assert list(result.arrival_order) == forward[::-1]
    arrived = sorted((r for r in result.parameters if r.role == "weight"), key=lambda r: r.backward_index)
    assert [record.parameter for record in arrived] == [f"layers.{index}.0.weight" for index in reversed(range(5))]


def test_a_longer_network_has_the_order_of_its_length():
    spec = ExperimentSpec(network=NetworkSpec.of_width(2, 200, initializer="orthogonal", activation="tanh"))
    order = run_experiment(spec).arrival_order
    assert len(order) == 400
    assert order[::-1] == tuple(record.layer for record in run_experiment(spec).outputs)


def same_result(one, other):
    return (
        (one.spec, one.loss, one.output, one.arrival_order) == (other.spec, other.loss, other.output, other.arrival_order)
        and all(
            a.status == b.status and a.statistics == b.statistics and torch.equal(a.gradient, b.gradient)
            for a, b in zip(one.outputs + one.parameters, other.outputs + other.parameters, strict=True)
        )
    )  # fmt: skip


def test_experiments_in_many_threads_give_the_numbers_they_give_alone():
    specs = [
        ExperimentSpec.from_dict({
            "layer_sizes": "8x6", "seed": seed * 7919, "capture_method": METHODS[seed % 3], "sample_input": "standard_normal",
            "target": "standard_normal", "batch_size": 4, "initializer": list(Initializer)[seed % 5], "sigma_b": 0.1,
            "normalization": list(Normalization)[seed % 4], "use_shortcut": seed % 3 == 0,
        })
        for seed in range(40)
    ]  # fmt: skip
    alone = [run_experiment(spec, keep_gradients=True) for spec in specs]
    before = torch.get_rng_state()
    differing = differing_in_eight_threads(
        len(specs), lambda place: same_result(run_experiment(specs[place], keep_gradients=True), alone[place])
    )
    assert differing == []
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_an_experiment_neither_reads_nor_changes_global_random_state(seed):
    spec = ExperimentSpec.from_dict({"seed": seed, "sample_input": "standard_normal", "initializer": "orthogonal"})
    results = []
    with torch.random.fork_rng():
        for state in (1, 2):
            torch.manual_seed(state)
            before = torch.get_rng_state()
            results.append(run_experiment(spec, keep_gradients=True))
            assert torch.equal(torch.get_rng_state(), before)
    assert same_result(*results)


def test_an_experiment_does_not_depend_on_the_default_dtype():
    usual = run_experiment(ExperimentSpec(), keep_gradients=True)
    torch.set_default_dtype(torch.float64)
    try:
        changed = run_experiment(ExperimentSpec(), keep_gradients=True)
    finally:
        torch.set_default_dtype(torch.float32)
    assert same_result(usual, changed)


@pytest.mark.parametrize("method", METHODS)
def test_a_result_is_plain_numbers_that_can_be_pickled(method):
    result = run_experiment(ExperimentSpec().replace(capture_method=method))
    written = pickle.dumps(result)
    assert b"tensor" not in written.replace(b"tensor_hooks", b"")
    copy = pickle.loads(written)
    assert copy == result
    for table in ("output_table", "weight_table", "parameter_table"):
        pandas.testing.assert_frame_equal(getattr(copy, table)(), getattr(result, table)())
    assert copy.arrival_order == result.arrival_order


def test_a_result_keeps_no_tensor_alive():
    spec = ExperimentSpec(network=NetworkSpec(layer_sizes=(37, 41, 43)))
    shapes = {(41, 37), (43, 41), (1, 41), (1, 43), (1, 37)}
    result = run_experiment(spec)
    gc.collect()
    kinds = (torch.Tensor, torch.nn.Parameter)  # not the compiler's own, whose shapes are symbols
    alive = [o for o in gc.get_objects() if type(o) in kinds and tuple(o.shape) in shapes]
    assert alive == []
    assert len(result.outputs) == 4


def test_the_tables_carry_the_records_field_by_field():
    result = run_experiment(ExperimentSpec())
    for table, records in (
        (result.output_table(), result.outputs),
        (result.parameter_table(), result.parameters),
        (result.weight_table(), [r for r in result.parameters if r.role == "weight"]),
    ):
        assert len(table) == len(records)
        for (_, row), record in zip(table.iterrows(), records, strict=True):
            assert (row["layer"], row["status"], row["shape"]) == (record.layer, str(record.status), record.shape)
            assert tuple(row[name] for name in record.statistics._fields) == tuple(record.statistics)


def test_a_missing_gradient_is_missing_in_the_table_and_a_zero_is_zero():
    no_bias_reached = run_experiment(ExperimentSpec().replace(gain=0.0, activate_last=False)).weight_table()
    assert list(no_bias_reached["status"]) == ["all_zero"] * 4 + ["ok"]
    assert list(no_bias_reached["mean_abs"][:4]) == [0.0] * 4
    overflow = run_experiment(ExperimentSpec().replace(layer_sizes="4x99", gain=1e6, activation="identity")).weight_table()
    assert set(overflow["status"]) == {"non_finite"}
    assert overflow["mean_abs"].isna().any()


def test_a_weight_table_has_no_biases_and_a_parameter_table_has_both():
    result = run_experiment(ExperimentSpec().replace(normalization="layer_norm_after"))
    names = list(result.parameter_table()["parameter"])
    assert names == [name for name, _ in build_network(result.spec).named_parameters()]
    assert list(result.weight_table()["parameter"]) == [name for name in names if name.endswith("weight")]


def test_the_output_is_the_networks_output():
    spec = ExperimentSpec.from_dict({"layer_sizes": "4-5-2", "batch_size": 3, "sample_input": "standard_normal"})
    with torch.no_grad():
        output = build_network(spec)(sample_input(spec))
    assert run_experiment(spec).output == tuple(map(tuple, output.tolist()))


def test_a_bad_combination_is_refused_before_anything_runs():
    with pytest.raises(SpecError, match="batch_norm"):
        run_experiment(ExperimentSpec.from_dict({"normalization": "batch_norm", "batch_size": 1}))
