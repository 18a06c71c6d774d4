"""What was counted over many seeds, in numbers: for each network, and layer by layer beside the chosen seed."""

from __future__ import annotations

import pandas
import streamlit as st

from gradlab import charts
from gradlab.export import to_csv
from gradlab.lessons.many_seeds import NAMED, ManySeeds
from gradlab.spec import ExperimentSpec
from gradlab.text import short_number
from gradlab.trail import Quantity
from gradlab.ui import cache, ensembles, numbers
from gradlab.ui.ensembles import Measured
from gradlab.ui.seeds import Found, can_be_asked, chosen, said, standing


def table(spec: ExperimentSpec, quantity: Quantity, found: Found) -> None:
    """Everything counted, for each network; each layer's band with the chosen seed's reading."""
    if not found:
        return
    st.header("In numbers")
    columns = [summary for summary, _ in found.values()]
    revealed = said() is not None or not can_be_asked(spec, found)

    def steps(counts: list[int]) -> list[str]:
        if spec.network.depth < 2:
            return ["–"] * len(columns)
        return [_of(count, each.seeds) for count, each in zip(counts, columns, strict=True)]

    rows = {
        "seeds measured": [f"{each.seeds:,}" for each in columns],
        "γ, median": [short_number(each.factors[1]) if each.factors else "–" for each in columns],
        "γ, 8 of 10 seeds": [
            f"{short_number(each.factors[0])} to {short_number(each.factors[2])}" if each.factors else "–" for each in columns
        ],
        "γ on the other side of 1": ["–" if each.opposite is None else _of(each.opposite, each.judged) for each in columns],
        "falls at every step": steps([each.falling for each in columns]) if revealed else ["asked above"] * len(columns),
        "first layer below the last": steps([each.first_below_last for each in columns]),
        "NaN or infinity in a layer": [_of(len(each.non_finite), each.seeds) for each in columns],
        "a layer exactly zero": [_of(len(each.zero), each.seeds) for each in columns],
    }
    head = [f"| {quantity.singular}s | {' | '.join(found)} |", "|:---|" + ":---|" * len(found)]
    st.markdown("\n".join(head + [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]))
    if unusual := _unusual(found):
        st.markdown("\n".join(f"- {line}" for line in unusual))
    if len(found) == 2 and all(2 * each.first_below_last > each.seeds for each in columns):
        st.markdown(
            "At most seeds the first layer's gradient is below the last layer's, with and without shortcuts: that does not tell"
            " the two networks apart. γ looks at the hidden layers only."
        )
    if chosen(spec) in found:
        _layers(spec, quantity, *found[chosen(spec)])


def _unusual(found: Found) -> list[str]:
    """The seeds at which some layer's gradient is not a number, or zero."""
    lines = []
    for name, (summary, _) in found.items():
        for seeds, what in ((summary.non_finite, "NaN or infinity"), (summary.zero, "exactly zero throughout")):
            if seeds:
                listed = ", ".join(map(str, seeds[:NAMED])) + (", …" if len(seeds) > NAMED else "")
                lines.append(
                    f"{name}: at {len(seeds):,} of {summary.seeds:,} seeds ({listed}) some layer's gradient is {what}."
                    + (" Such a gradient is left out of the band." if what.startswith("NaN") else "")
                )
    return lines


def _layers(spec: ExperimentSpec, quantity: Quantity, summary: ManySeeds, measured: Measured) -> None:
    where = standing(spec, quantity, measured)
    own = f"seed {spec.seed}"
    rows = [
        {
            "layer": row["layer"],
            own: reading,
            "larger than": None if below is None else 100 * below,
            "10 %": row["low"],
            "median": row["median"],
            "90 %": row["high"],
            "zero": 100 * row["zero_share"],
            "NaN or infinite": 100 * row["nonfinite_share"],
        }
        for row, reading, below in zip(charts.rows_of(summary.band), where.readings, where.below, strict=True)
    ]
    readings, shares = (own, "10 %", "median", "90 %"), ("larger than", "zero", "NaN or infinite")
    digits = dict.fromkeys(readings, numbers.SIZE) | dict.fromkeys(shares, f"{numbers.FACTOR} %%")
    numbers.table(cache.arrow(rows), digits, hints=dict.fromkeys(shares, "Share of the seeds."))
    st.markdown(
        f"*{own}*: the mean absolute {quantity.singular} of the layer, {chosen(spec).lower()}. *Larger than*: the share of"
        f" the {where.others:,} other seeds at which it is smaller. *10 %*: one seed in ten lies below."
    )
    st.download_button(
        "The band (CSV)",
        data=lambda: to_csv(_told(spec, summary)).encode(),
        file_name="seeds_band.csv",
        mime="text/csv",
        on_click="ignore",
        key="seeds_band_csv",
    )


def _told(spec: ExperimentSpec, summary: ManySeeds) -> pandas.DataFrame:
    """The band with the experiment before it, the same in every row."""
    told = pandas.DataFrame([ensembles.without_seed(spec).to_dict()] * len(summary.band)).drop(columns="seed")
    return pandas.concat([told, summary.band.assign(measured_seeds=summary.seeds)], axis=1)


def _of(number: int, total: int) -> str:
    return f"{number:,} of {total:,}"
