"""The CSV of a result: one tidy table that any reader gets back to the last digit, with nothing a spreadsheet would run."""

import csv
import io
import math
import struct

import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from specs import experiment_specs, network_specs
from torch import nn

from gradlab import ExperimentSpec, capture_gradients, read_csv, run_experiment, to_csv
from gradlab.presets import PRESETS
from gradlab.spec import FIELDS
from gradlab.statistics import GradientStatistics
from gradlab.tables import tidy_table

SPECS = {name: preset.spec for name, preset in PRESETS.items()} | {
    "all zero": ExperimentSpec().replace(sample_input="zeros", use_bias=False, activation="relu"),
    "overflow": ExperimentSpec().replace(layer_sizes="8x60", initializer="he", gain=1e5, activation="identity"),
    "no gradient": ExperimentSpec().replace(gain=0.0, layer_sizes="3-3-3"),
    "one layer": ExperimentSpec().replace(layer_sizes="1-1", activate_last=False),
    "double": ExperimentSpec().replace(layer_sizes="8x201", dtype="float64"),
    "normalised": ExperimentSpec().replace(normalization="batch_norm", batch_size=3, sample_input="standard_normal"),
    "shortcuts": ExperimentSpec().replace(use_shortcut=True),
}
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


@each_spec
@pytest.mark.parametrize("read", [pandas.read_csv, read_csv])
def test_the_csv_reads_back_to_the_same_frame(spec, read):
    result = run_experiment(spec)
    assert_frame_equal(read(io.StringIO(to_csv(result))), tidy_table(result), check_exact=True)


@settings(max_examples=30)
@given(experiment_specs(network_specs(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=8).map(tuple))))
def test_the_csv_of_any_experiment_reads_back_to_the_same_frame(spec):
    result = run_experiment(spec)
    read = pandas.read_csv(io.StringIO(to_csv(result)))
    assert_frame_equal(read, tidy_table(result), check_exact=True)
    assert ExperimentSpec.from_dict(read[list(FIELDS)].iloc[0].to_dict()) == spec


@each_spec
def test_the_first_columns_say_the_whole_experiment_in_every_row(spec):
    table = pandas.read_csv(io.StringIO(to_csv(run_experiment(spec))))
    assert list(table.columns[: len(FIELDS)]) == list(FIELDS)
    (first,) = table[list(FIELDS)].drop_duplicates().to_dict("records")
    assert ExperimentSpec.from_dict(first) == spec


@each_spec
def test_the_first_columns_say_the_experiment_to_a_reader_that_knows_only_text(spec):
    rows = csv.DictReader(io.StringIO(to_csv(run_experiment(spec))))
    (first,) = {tuple(row[name] for name in FIELDS) for row in rows}
    assert ExperimentSpec.from_dict(dict(zip(FIELDS, first, strict=True))) == spec


@each_spec
def test_every_number_is_written_to_its_last_digit(spec):
    result = run_experiment(spec)
    rows = csv.DictReader(io.StringIO(to_csv(result)))
    for row, record in zip(rows, result.outputs + result.parameters, strict=True):
        assert row["measured_loss"] == ("" if math.isnan(result.loss) else repr(result.loss))
        for name, value in zip(GradientStatistics._fields, record.statistics or [math.nan] * 10, strict=True):
            assert row[name] == ("" if math.isnan(value) else repr(value)), name


def test_there_is_one_row_a_reading_outputs_first():
    result = run_experiment(ExperimentSpec())
    table = tidy_table(result)
    assert list(table["role"]) == ["output"] * 10 + ["weight", "bias"] * 5
    assert list(table["layer"]) == [record.layer for record in result.outputs + result.parameters]
    assert list(table["parameter"].dropna()) == [record.parameter for record in result.parameters]
    assert table["parameter"].isna().sum() == 10


def test_what_is_missing_is_an_empty_cell_never_a_zero():
    rows = list(csv.DictReader(io.StringIO(to_csv(run_experiment(SPECS["overflow"])))))
    flagged = [row for row in rows if row["status"] == "non_finite"]
    assert flagged
    assert all(row["mean_abs"] == "" for row in flagged if row["nonfinite_count"] == row["numel"])
    assert all(row["parameter"] == "" for row in rows if row["role"] == "output")


FLOATS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]).filter(lambda x: x == x)


@given(st.lists(FLOATS, min_size=1, max_size=50))
def test_any_float_survives(values):
    frame = pandas.DataFrame({"value": values})
    for read in (pandas.read_csv, read_csv):
        assert read(io.StringIO(to_csv(frame)))["value"].tolist() == values


FORMULAS = ["=1+1", "+1", "-1+1", "@SUM(A1)", "=HYPERLINK(\"http://x\")", "\t=1", "-", "="]  # fmt: skip


def cells(text):
    """The cells under the header, as a spreadsheet takes them apart."""
    return [cell for row in list(csv.reader(io.StringIO(text, newline="")))[1:] for cell in row]


@pytest.mark.parametrize("text", FORMULAS)
def test_text_that_looks_like_a_formula_cannot_be_one(text):
    frame = pandas.DataFrame({"layer": [text, "fc"], "numbers": [-1.5, 2.0]})
    written = to_csv(frame)
    assert cells(written) == ["'" + text, "-1.5", "fc", "2.0"]
    assert_frame_equal(read_csv(io.StringIO(written)), frame)


@pytest.mark.parametrize("kind", ["str", "object", "category", "string"])
def test_no_kind_of_text_column_lets_a_formula_through(kind):
    frame = pandas.DataFrame({"layer": pandas.Series(["=1+1", None, "fc"], dtype=kind)})
    assert cells(to_csv(frame)) == ["'=1+1", "", "fc"]


def test_a_column_of_text_and_numbers_lets_no_formula_through():
    frame = pandas.DataFrame({"mixed": pandas.Series(["=1+1", 3, -2.5], dtype=object)})
    assert cells(to_csv(frame)) == ["'=1+1", "3", "-2.5"]


def test_a_header_cannot_be_a_formula():
    header = to_csv(pandas.DataFrame({"=1+1": [1]})).splitlines()[0]
    assert not header.strip('"').startswith("=")


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1, max_size=8)


@settings(max_examples=50)
@given(st.lists(TEXT, min_size=1, max_size=8))
def test_any_text_survives_and_none_can_be_a_formula(names):
    frame = pandas.DataFrame({"name": [f"x{name}" if name.strip("0123456789. ") == "" else name for name in names]})
    written = to_csv(frame)
    assert not [cell for cell in cells(written) if cell[0] in "=+-@\t"]
    read = read_csv(io.StringIO(written))
    if read["name"].dtype == frame["name"].dtype:  # a lone "inf" or "True" reads as what it looks like, in any reader
        assert list(read["name"]) == list(frame["name"])


def test_a_layer_with_a_hostile_name_cannot_be_a_formula():
    model = nn.ModuleDict({"=cmd|' /C calc'!A0": nn.Linear(2, 2)})
    with capture_gradients(model) as capture:
        next(iter(model.values()))(torch.ones(1, 2)).sum().backward()
    for table in (capture.table(), capture.parameter_table()):
        assert not [cell for cell in cells(to_csv(table)) if cell.startswith("=")]


def test_guarding_leaves_the_callers_frame_alone():
    frame = pandas.DataFrame({"layer": ["=1+1"]})
    to_csv(frame)
    assert frame["layer"].tolist() == ["=1+1"]


def test_reading_takes_a_path_or_an_open_file(tmp_path):
    path, result = tmp_path / "result.csv", run_experiment(ExperimentSpec())
    path.write_text(to_csv(result), encoding="utf-8")
    with path.open(encoding="utf-8") as file:
        for source in (path, str(path), file):
            assert_frame_equal(read_csv(source), tidy_table(result))


def test_lines_end_alike_everywhere():
    text = to_csv(run_experiment(ExperimentSpec()))
    assert "\r" not in text
    assert text.endswith("\n")
