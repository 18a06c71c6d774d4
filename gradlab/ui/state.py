"""What a visitor has chosen: kept for the session, shown by the widgets, mirrored in the URL.

The URL holds the seed and every setting that is not the default, under the name and with the value it has in the CSV.
(Streamlit's own binding of widgets to the URL writes an option's label instead, so that rewording a label would break
every link; and it forgets the setting on a page change.) A choice here is always one that can be run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from gradlab.errors import SpecError
from gradlab.spec import FIELDS, ExperimentSpec
from gradlab.ui.links import DEFAULTS, VIEWS, accept, affordable, link_of, pages_of, spec_of

_CHOSEN, _WRITTEN, _PAGE, _NOTICES = "chosen", "written_to_url", "page", "link_notices"


def begin(page: str) -> None:
    """Take over what the URL says, if it says something that was not written here: a link, a reload, the back button."""
    address = st.query_params.to_dict()  # to ask for each name by itself takes a millisecond
    given = {name: address[name] for name in DEFAULTS if name in address}
    moved = _enter(page)
    st.session_state[_NOTICES] = []
    if not given:
        # The menu leads to a bare URL, which is then filled in; the back button returns to it, and filling it in again
        # would keep the visitor from ever going further back.
        st.session_state[_WRITTEN] = {} if moved else link_of(chosen())
    elif given != st.session_state.get(_WRITTEN):
        accepted, st.session_state[_NOTICES] = accept(given)
        st.session_state[_WRITTEN] = given
        choose(accepted)


def _enter(page: str) -> bool:
    """Note which page the visitor is on; whether they have come from another one."""
    moved = page != st.session_state.get(_PAGE)
    st.session_state[_PAGE] = page
    if moved:
        choose(chosen())  # widgets of the same name on another page are others, and start empty
    return moved


def chosen() -> dict[str, Any]:
    """Every setting by name."""
    return {**DEFAULTS, **st.session_state.get(_CHOSEN, {})}


def chosen_spec() -> ExperimentSpec:
    """The experiment that is chosen."""
    return ExperimentSpec.from_dict({name: chosen()[name] for name in FIELDS})


def choose(settings: Mapping[str, Any]) -> None:
    """Make these settings the choice, and have the widgets show them."""
    st.session_state[_CHOSEN] = chosen() | dict(settings)
    forget(settings)


def forget(names: Iterable[str]) -> None:
    """Let go of what the widgets of these settings say: drawn again, they show what is chosen."""
    for name in names:
        st.session_state.pop(_key(name), None)


def _key(name: str) -> str:
    return f"setting_{name}"


def widget(name: str) -> str:
    """The key of a setting's widget; call it before drawing the widget, which then shows what is chosen."""
    key = _key(name)
    if key not in st.session_state:
        st.session_state[key] = chosen()[name]
    return key


def described() -> dict[str, Any]:
    """The fields of the experiment as the widgets have them; those without a widget on the page, as they are chosen."""
    settings = chosen()
    return {name: st.session_state.get(_key(name), settings[name]) for name in FIELDS}


def from_widgets() -> tuple[ExperimentSpec, SpecError | None]:
    """The experiment the widgets describe, or the last one that could be run and why this one cannot."""
    try:
        spec, refused = affordable(ExperimentSpec.from_dict(described())), None
    except SpecError as error:
        spec, refused = chosen_spec(), error
    st.session_state[_CHOSEN] = chosen() | spec.to_dict()
    return spec, refused


def view(name: str) -> str:
    """The chosen option of a view setting, as its widget has it; call it after drawing the widget."""
    value = st.session_state.get(widget(name))
    option = str(value) if value in VIEWS[name] else VIEWS[name][0]
    st.session_state[_CHOSEN] = chosen() | {name: option}
    return option


def controls() -> str:
    """What a lesson link lets a visitor do with the controls: `open`, `locked` or `hidden`."""
    return str(chosen()["controls"])


def pages_shown() -> tuple[str, ...]:
    """The pages a lesson link limits the lab to, empty for all; for the menu, before any page has begun."""
    given = st.query_params.get("pages")
    return pages_of(given if given is not None else str(chosen()["pages"]))[0]


def pinned() -> ExperimentSpec | None:
    """The run that was pinned as A, if one was."""
    text = str(chosen()["pinned"])
    return spec_of(text) if text else None


def write_link() -> None:
    """Bring the URL up to date with the choice."""
    wanted = link_of(chosen())
    if wanted != st.session_state.get(_WRITTEN):
        st.query_params.from_dict(wanted)
        st.session_state[_WRITTEN] = wanted


def link(page: str, **lesson: str) -> str:
    """The address that opens this page with the settings chosen here; `lesson` adds what a lesson link sets."""
    host = urlsplit(st.context.url or "http://localhost:8501/")
    query = urlencode(link_of(chosen() | lesson))
    return urlunsplit((host.scheme, host.netloc, f"/{page}", query, ""))


def notices() -> list[str]:
    """What was wrong with the link that led here."""
    return list(st.session_state.get(_NOTICES, []))
