"""What a visitor has chosen: kept for the session, shown by the widgets, mirrored in the URL.

The URL holds the seed and every setting that is not the default, under the name and with the value it has in the CSV.
(Streamlit's own binding of widgets to the URL writes an option's label instead, so that rewording a label would break
every link; and it forgets the setting on a page change.) A choice here is always one that can be run.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from gradlab.errors import SpecError, shorten
from gradlab.spec import FIELDS, ExperimentSpec, sizes_to_text
from gradlab.trail import Quantity

VIEWS = {"gradient": [str(quantity) for quantity in Quantity], "order": ["arrival", "printed"]}
"""How a page shows the experiment: the options of each view setting, the default first."""
DEFAULTS: dict[str, Any] = ExperimentSpec().to_dict() | {name: options[0] for name, options in VIEWS.items()}
MAX_PRODUCTS = 500_000_000
"""Multiplications of one forward run (weights × batch size) that a shared server takes on: about a second of one core."""

_CHOSEN, _WRITTEN, _PAGE, _NOTICES = "chosen", "written_to_url", "page", "link_notices"


def enter(page: str) -> bool:
    """Note which page the visitor is on; whether they have come from another one."""
    moved = page != st.session_state.get(_PAGE)
    st.session_state[_PAGE] = page
    if moved:
        choose(chosen())  # widgets of the same name on another page are others, and start empty
    return moved


def begin(page: str) -> None:
    """Take over what the URL says, if it says something that was not written here: a link, a reload, the back button."""
    given = {name: st.query_params[name] for name in DEFAULTS if name in st.query_params}
    moved = enter(page)
    st.session_state[_NOTICES] = []
    if not given:
        # The menu leads to a bare URL, which is then filled in; the back button returns to it, and filling it in again
        # would keep the visitor from ever going further back.
        st.session_state[_WRITTEN] = {} if moved else link_of(chosen())
    elif given != st.session_state.get(_WRITTEN):
        accepted, st.session_state[_NOTICES] = accept(given)
        st.session_state[_WRITTEN] = given
        choose(accepted)


def chosen() -> dict[str, Any]:
    """Every setting by name."""
    return dict(st.session_state.get(_CHOSEN, DEFAULTS))


def choose(settings: dict[str, Any]) -> None:
    """Make these settings the choice, and have the widgets show them."""
    st.session_state[_CHOSEN] = chosen() | settings
    for name, value in settings.items():
        st.session_state[widget(name)] = value


def widget(name: str) -> str:
    """The key of a setting's widget; call it before drawing the widget, which then shows what is chosen."""
    key = f"setting_{name}"
    if key not in st.session_state:
        st.session_state[key] = chosen()[name]
    return key


def from_widgets() -> tuple[ExperimentSpec, SpecError | None]:
    """The experiment the widgets describe, or the last one that could be run and why this one cannot."""
    flat = {name: st.session_state[widget(name)] for name in FIELDS}
    views = {name: st.session_state[widget(name)] for name in VIEWS}
    try:
        spec, refused = affordable(ExperimentSpec.from_dict(flat)), None
    except SpecError as error:
        spec, refused = ExperimentSpec.from_dict({name: chosen()[name] for name in FIELDS}), error
    st.session_state[_CHOSEN] = spec.to_dict() | views
    return spec, refused


def write_link() -> None:
    """Bring the URL up to date with the choice."""
    wanted = link_of(chosen())
    if wanted != st.session_state.get(_WRITTEN):
        st.query_params.from_dict(wanted)
        st.session_state[_WRITTEN] = wanted


def notices() -> list[str]:
    """What was wrong with the link that led here."""
    return list(st.session_state.get(_NOTICES, []))


def accept(given: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The settings of a link with everything impossible left out, and a sentence on each thing left out."""
    left_out = []
    views = {}
    for name, options in VIEWS.items():
        if name in given:
            views[name] = given[name] if given[name] in options else options[0]
            if given[name] not in options:
                left_out.append(f"{name} = {shorten(given[name])}")
    fields = {name: value for name, value in given.items() if name in FIELDS}
    while True:
        try:
            return DEFAULTS | affordable(ExperimentSpec.from_dict(fields)).to_dict() | views, left_out
        except SpecError as error:
            del fields[_culprit(fields, error)]
            left_out.append(str(error))


def _culprit(fields: dict[str, str], error: SpecError) -> str:
    """The setting to leave out: the one the error names, or one without which the others go together."""
    if error.field in fields:
        return error.field
    for name in reversed(fields):
        try:
            affordable(ExperimentSpec.from_dict({other: value for other, value in fields.items() if other != name}))
        except SpecError:
            continue
        return name
    return next(reversed(fields))


def affordable(spec: ExperimentSpec) -> ExperimentSpec:
    """The experiment itself; raises SpecError for one that would keep everybody else on a shared server waiting."""
    products = spec.network.parameter_count * spec.batch.batch_size
    if products > MAX_PRODUCTS:
        allowed = f"on a shared server, weights × batch size of at most {MAX_PRODUCTS:,}, not {products:,}"
        raise SpecError("layer_sizes", sizes_to_text(spec.network.layer_sizes), allowed)
    return spec


def link_of(settings: dict[str, Any]) -> dict[str, str]:
    """The URL's parameters for these settings. The seed is always there: a URL without any is one nobody has filled in."""
    told = {name: value for name, value in settings.items() if name == "seed" or value != DEFAULTS[name]}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in told.items()}
