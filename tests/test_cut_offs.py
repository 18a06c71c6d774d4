"""The cut-offs: an order that cannot be broken, and a reason for each."""

import math
from dataclasses import fields

import pytest

from gradlab import CutOffs, SpecError
from gradlab.cut_offs import CUT_OFF_REASONS


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"vanishing": 0.6}, "0.6"),
        ({"weakening": 1.0}, "1.0"),
        ({"growing": 0.9}, "0.9"),
        ({"growing": 20.0}, "20.0"),
        ({"exploding": 1.5}, "1.5"),
        ({"severe_vanishing": 0.2}, "0.2"),
        ({"severe_exploding": 5.0}, "5.0"),
        ({"severe_vanishing": 0.0}, "0.0"),
        ({"vanishing": math.nan}, "nan"),
        ({"exploding": math.inf}, "inf"),
        ({"weakening": "half"}, "'half'"),
        ({"weakening": True}, "True"),
        ({"fewest_layers": 1}, "1"),
        ({"fewest_layers": 3.5}, "3.5"),
        ({"tiny": 2.0}, "2.0"),
        ({"huge": 0.5}, "0.5"),
        ({"dead_units": -0.1}, "-0.1"),
        ({"saturated": 1.1}, "1.1"),
    ],
    ids=str,
)
def test_cut_offs_out_of_order_are_refused_with_the_value(changes, value):
    (name,) = changes
    with pytest.raises(SpecError) as refused:
        CutOffs(**changes)
    assert refused.value.field == name
    assert f"{name} = {value} is not possible" in str(refused.value)


def test_every_cut_off_has_its_reason():
    assert list(CUT_OFF_REASONS) == [f.name for f in fields(CutOffs)]
    assert all(len(reason) > 20 for reason in CUT_OFF_REASONS.values())
