"""A specification says one experiment completely, refuses what cannot be built, and survives every way of writing it down."""

import dataclasses
import io
import math
import pickle
from urllib.parse import parse_qsl, urlencode

import numpy
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from specs import SIZES, experiment_specs, network_specs

from gradlab import BatchSpec, ExperimentSpec, GradlabError, NetworkSpec, SpecError
from gradlab.sizes import sizes_from_text, sizes_to_text
from gradlab.spec import FIELDS, Activation


@given(experiment_specs())
def test_a_flat_dict_holds_the_whole_experiment(spec):
    flat = spec.to_dict()
    assert list(flat) == list(FIELDS)
    assert all(type(value) in (str, int, float, bool) for value in flat.values())
    assert ExperimentSpec.from_dict(flat) == spec


@given(experiment_specs())
def test_a_link_holds_the_whole_experiment(spec):
    link = urlencode(spec.to_dict())
    assert ExperimentSpec.from_dict(dict(parse_qsl(link))) == spec


@given(experiment_specs())
def test_a_row_of_a_csv_file_holds_the_whole_experiment(spec):
    frame = pandas.DataFrame([spec.to_dict()])
    read = pandas.read_csv(io.StringIO(frame.to_csv(index=False)))
    assert ExperimentSpec.from_dict(read.iloc[0].to_dict()) == spec
    assert ExperimentSpec.from_dict(frame.to_dict("records")[0]) == spec


@given(experiment_specs())
def test_a_specification_survives_pickling(spec):
    copy = pickle.loads(pickle.dumps(spec))
    assert copy == spec
    assert hash(copy) == hash(spec)
    assert copy.to_dict() == spec.to_dict()


@given(experiment_specs(), experiment_specs())
def test_two_specifications_are_equal_when_all_they_say_is(one, other):
    assert (one == other) == (one.to_dict() == other.to_dict())
    assert ExperimentSpec.from_dict(one.to_dict()) in {one}


@given(network_specs(), st.sampled_from(sorted(FIELDS)))
def test_a_specification_cannot_be_changed(spec, name):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(spec, name, 3)


@given(SIZES)
def test_layer_sizes_come_back_from_their_text(sizes):
    text = sizes_to_text(sizes)
    assert sizes_from_text(text) == sizes
    assert " " not in text


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("3-3-1", (3, 3, 1)),
        ("3, 3, 1", (3, 3, 1)),
        (" 3 3 1 ", (3, 3, 1)),
        ("64x21", (64,) * 21),
        ("3-64x20-1", (3, *[64] * 20, 1)),
        ("2 x 3 - 1", (2, 2, 2, 1)),
        ("2×3→1", (2, 2, 2, 1)),
    ],
)
def test_layer_sizes_may_be_written_in_several_ways(text, sizes):
    assert NetworkSpec(layer_sizes=text).layer_sizes == sizes


def test_a_long_row_of_equal_sizes_has_a_short_text():
    assert NetworkSpec.of_width(256, 200).layer_sizes == (256,) * 201
    assert ExperimentSpec(network=NetworkSpec.of_width(256, 200)).to_dict()["layer_sizes"] == "256x201"


@pytest.mark.parametrize(
    "convert", [list, iter, numpy.array, lambda s: numpy.array(s, "int32"), lambda s: numpy.array(s, "f8")]
)
def test_layer_sizes_may_come_in_any_sequence(convert):
    spec = NetworkSpec(layer_sizes=convert((4, 8, 1)))
    assert spec.layer_sizes == (4, 8, 1)
    assert all(type(size) is int for size in spec.layer_sizes)


@pytest.mark.parametrize(
    ("width", "depth", "options", "sizes"),
    [
        (5, 1, {}, (5, 5)),
        (5, 3, {"input_size": 2}, (2, 5, 5, 5)),
        (5, 3, {"output_size": 1}, (5, 5, 5, 1)),
        (5, 1, {"input_size": 2, "output_size": 1}, (2, 1)),
    ],
)
def test_width_and_depth_say_the_sizes(width, depth, options, sizes):
    spec = NetworkSpec.of_width(width, depth, **options, activation="relu")
    assert (spec.layer_sizes, spec.depth, spec.activation) == (sizes, depth, Activation.RELU)
    assert (spec.input_size, spec.output_size) == (sizes[0], sizes[-1])


@pytest.mark.parametrize(("bias", "count"), [(True, 4 * 8 + 8 + 8 * 1 + 1), (False, 4 * 8 + 8 * 1)])
def test_the_parameter_count_is_that_of_the_linear_maps(bias, count):
    assert NetworkSpec(layer_sizes=(4, 8, 1), use_bias=bias).parameter_count == count


NOT_A_NUMBER = [None, "", "three", math.nan, math.inf, -math.inf, True, [3], b"3", 1j, ...]
NOT_WHOLE = [
    *NOT_A_NUMBER,
    1.5,
    "1.5",
    -1,
    10**400,
    "9" * 5000,
    numpy.float64(0.5),
    numpy.bool_(True),
    numpy.complex128(3 + 2j),
]
NOT_A_SCALE = [*NOT_A_NUMBER, 1.1e6, 1e400, numpy.nan]
NOT_A_FLAG = [None, "", "yes", 0, 1, 2.0, [], "truee", numpy.int64(1)]
NOT_SIZES = [
    None, 5, "", "3", "3x1", (), (3,), "3-1-", "-3-1", "3-1.5", "a-b", "3-1;drop", b"3-1", [[3], [1]], [3, 1.5], [3, True],
    [3, None], (0, 3), (3, -1), (4097, 1), "4097-1", "0-3", (1,) * 202, "1x202", "1x999999", "3-5x0-1",
    "3" * 5000, "1-" * 5000, "3 " * 5000, "3" + " " * 5000 + "!", (4096,) * 5,
]  # fmt: skip
NOT_A_CHOICE = [None, "", "RELU ", "=cmd()", 3, ["relu"], {}, math.nan, "x" * 5000]
CHOICES = sorted(set(FIELDS) - {"layer_sizes", "gain", "sigma_w", "sigma_b", "batch_size", "seed"})
FLAGS = {"activate_last", "use_shortcut", "use_bias"}

BAD = [
    *(("layer_sizes", value) for value in NOT_SIZES),
    *((name, value) for name in ("gain", "sigma_w", "sigma_b") for value in NOT_A_SCALE),
    *((name, value) for name in ("sigma_w", "sigma_b") for value in (-1e-9, "-1")),
    ("gain", -1.1e6),
    *((name, value) for name in ("batch_size", "seed") for value in NOT_WHOLE),
    *(("seed", value) for value in (2**32, "4294967296")),
    *(("batch_size", value) for value in (0, 1025)),
    *((name, value) for name in CHOICES for value in (NOT_A_FLAG if name in FLAGS else NOT_A_CHOICE)),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda item: str(item)[:30])
def test_a_bad_value_is_refused_by_its_name_with_what_is_allowed(name, value):
    with pytest.raises(SpecError) as caught:
        ExperimentSpec.from_dict({name: value})
    error, message = caught.value, str(caught.value)
    assert isinstance(error, GradlabError)
    assert isinstance(error, ValueError)
    assert error.field == name
    assert name in message
    assert error.allowed
    assert error.allowed in message
    assert len(message) < 500


@pytest.mark.parametrize(("name", "value"), [("seed", -5), ("gain", "abc"), ("activation", "swish"), ("use_bias", "maybe")])
def test_the_message_quotes_the_value_that_was_given(name, value):
    with pytest.raises(SpecError) as caught:
        ExperimentSpec.from_dict({name: value})
    assert caught.value.value == value
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("sizes", [(3,), (4097, 1), "1-x"])
def test_the_message_quotes_the_sizes_that_were_given(sizes):
    with pytest.raises(SpecError) as caught:
        NetworkSpec(layer_sizes=sizes)
    assert str(sizes if isinstance(sizes, str) else sizes[0]) in str(caught.value)


def test_a_refused_choice_lists_every_choice():
    with pytest.raises(SpecError) as caught:
        NetworkSpec(activation="swish")
    assert all(choice.value in str(caught.value) for choice in Activation)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layer_sizes", (1, 1)),
        ("layer_sizes", (1,) * 201),
        ("layer_sizes", (4096, 1)),
        ("seed", 0),
        ("seed", 2**32 - 1),
        ("batch_size", 1),
        ("batch_size", 1024),
        ("gain", -1e6),
        ("gain", 1e6),
        ("sigma_w", 0.0),
        ("sigma_b", 1e6),
    ],
)
def test_the_bounds_themselves_are_allowed(name, value):
    flat = ExperimentSpec.from_dict({name: value}).to_dict()
    assert flat[name] == (value if name != "layer_sizes" else sizes_to_text(value))


@pytest.mark.parametrize(
    ("name", "value", "settled"),
    [
        ("seed", numpy.int64(7), 7),
        ("seed", "7", 7),
        ("seed", 7.0, 7),
        ("seed", numpy.float64(7), 7),
        ("gain", numpy.float32(0.5), 0.5),
        ("gain", 2, 2.0),
        ("use_bias", numpy.bool_(False), False),
        ("use_bias", "False", False),
        ("use_bias", "true", True),
        ("activation", numpy.str_("relu"), "relu"),
    ],
)
def test_values_as_a_data_frame_holds_them_become_plain_ones(name, value, settled):
    found = ExperimentSpec.from_dict({name: value}).to_dict()[name]
    assert found == settled
    assert type(found) is type(settled)


@pytest.mark.parametrize("name", ["nonsense", "network", "", "Seed", 3])
def test_an_unknown_field_is_refused(name):
    with pytest.raises(SpecError, match="layer_sizes") as caught:
        ExperimentSpec.from_dict({name: 1})
    assert caught.value.value == name


@pytest.mark.parametrize(("part", "value"), [("network", BatchSpec()), ("batch", None), ("network", {"gain": 1.0})])
def test_a_part_of_another_kind_is_refused(part, value):
    with pytest.raises(SpecError) as caught:
        ExperimentSpec(**{part: value})
    assert caught.value.field == part


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"normalization": "batch_norm"}, "batch_size"),
        ({"normalization": "batch_norm", "batch_size": 8}, "sample_input"),
        ({"normalization": "batch_norm", "batch_size": 8, "sample_input": "zeros"}, "sample_input"),
        ({"target": "class_labels"}, "target"),
        ({"loss": "cross_entropy"}, "target"),
        ({"loss": "cross_entropy", "target": "standard_normal"}, "target"),
        ({"loss": "l1", "target": "class_labels"}, "target"),
    ],
)
def test_a_combination_that_cannot_be_measured_is_refused(changes, field):
    with pytest.raises(SpecError) as caught:
        ExperimentSpec.from_dict(changes)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "changes",
    [
        {"normalization": "batch_norm", "batch_size": 2, "sample_input": "standard_normal"},
        {"target": "class_labels", "loss": "cross_entropy"},
        {"target": "class_labels", "loss": "output_sum"},
    ],
)
def test_the_combinations_beside_them_are_allowed(changes):
    assert changes.items() <= ExperimentSpec.from_dict(changes).to_dict().items()


@given(experiment_specs(), st.integers(0, 9))
def test_replacing_one_field_leaves_the_others(spec, seed):
    changed = spec.replace(seed=seed)
    assert changed.to_dict() == spec.to_dict() | {"seed": seed}


def test_replacing_is_checked_too():
    with pytest.raises(SpecError):
        ExperimentSpec().replace(normalization="batch_norm")
