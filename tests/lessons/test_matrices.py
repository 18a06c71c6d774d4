"""The matrix of one layer's weight gradient, its absolute values and their mean."""

import pytest
import torch
from chain import Chain

from gradlab import ExperimentSpec, GradlabError, run_experiment
from gradlab.lessons.matrices import weight_gradient
from gradlab.presets import PRESETS

REFERENCE = ExperimentSpec()
WIDE = REFERENCE.replace(layer_sizes="40-30-2", sample_input="standard_normal", batch_size=4)


@pytest.mark.parametrize("layer", range(5))
def test_a_matrix_is_the_gradient_that_autograd_gives(layer):
    found = weight_gradient(REFERENCE, layer)
    gradient = Chain(REFERENCE).weight_gradients()[layer]
    torch.testing.assert_close(torch.tensor(found.values), gradient)
    assert (found.layer, found.rows, found.columns) == (f"layers.{layer}", *gradient.shape)
    assert not found.truncated


@pytest.mark.parametrize("layer", range(5))
def test_nine_entries_become_one_number(layer):
    found = weight_gradient(REFERENCE, layer)
    entries = [abs(value) for row in found.values for value in row]
    assert [value for row in found.absolute for value in row] == entries
    assert found.mean_abs == pytest.approx(sum(entries) / len(entries), rel=1e-12)
    table = run_experiment(REFERENCE).weight_table()
    assert found.mean_abs == pytest.approx(table["mean_abs"][layer], rel=1e-6)


@pytest.mark.parametrize(("shown", "rows", "columns"), [(12, 12, 12), (35, 30, 35), (100, 30, 40)])
def test_of_a_large_matrix_a_corner_is_shown_and_the_mean_is_of_the_whole(shown, rows, columns):
    found = weight_gradient(WIDE, "layers.0", shown)
    gradient = Chain(WIDE).weight_gradients()[0]
    torch.testing.assert_close(torch.tensor(found.values), gradient[:rows, :columns])
    assert found.truncated == (rows < 30 or columns < 40)
    assert found.mean_abs == pytest.approx(gradient.abs().mean().item(), rel=1e-5)
    assert (found.rows, found.columns) == (30, 40)


def test_a_layer_is_named_by_number_or_by_name():
    assert weight_gradient(WIDE, 1) == weight_gradient(WIDE, "layers.1")


@pytest.mark.parametrize("layer", [5, -1, "layers.9", "layers.0.0.weight", True, ""])
def test_a_layer_that_is_not_there_is_refused_with_those_there_are(layer):
    with pytest.raises(GradlabError, match=r"layers\.0, .*layers\.4"):
        weight_gradient(REFERENCE, layer)


@pytest.mark.parametrize("shown", [0, -1, 2.5, True])
def test_at_least_one_row_and_column_are_shown(shown):
    with pytest.raises(GradlabError, match="shown = "):
        weight_gradient(REFERENCE, 0, shown)


def test_the_mean_of_entries_that_are_not_finite_is_no_number():
    exploding = PRESETS["too_large"].spec.replace(gain=1e6)
    assert weight_gradient(exploding, 0).mean_abs is None
