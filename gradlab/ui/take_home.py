"""What a visitor takes along: the link and its QR code, a fingerprint to compare, the readings, the script."""

from __future__ import annotations

import streamlit as st

from gradlab.experiment import ExperimentResult
from gradlab.export import to_csv
from gradlab.fingerprint import fingerprint
from gradlab.script import to_script
from gradlab.spec import ExperimentSpec
from gradlab.ui import pages, state
from gradlab.ui.cache import kept
from gradlab.ui.links import CONTROLS
from gradlab.ui.qr import qr_svg
from gradlab.ui.turns import page_in_turn

CONTROLS_TITLES = {"open": "can be changed", "locked": "are shown, locked", "hidden": "are hidden"}


def take_home(page: str, result: ExperimentResult, whose: str = "") -> None:
    """Draw the fingerprint of a result, its downloads, and the link that opens this page with this experiment.

    `whose` says which run it is, on a page that shows more than one.
    """
    st.header("Take it home")
    st.markdown(
        f"Fingerprint of these numbers: **{fingerprint(result)}**. Whoever opens your link and sees the same one has measured"
        f" the same.{f' Fingerprint, readings and script are those of {whose}.' if whose else ''}"
    )
    with st.container(horizontal=True):
        download(result, key=f"{page}_csv")
        st.download_button(
            "The same in plain PyTorch (script)",
            data=lambda: to_script(result.spec).encode(),
            file_name=f"gradients_seed{result.spec.seed}.py",
            mime="text/x-python",
            on_click="ignore",
            key=f"{page}_script",
        )
    _share(page)


@st.fragment  # its switches change nothing above them: they run these lines again, and not the page
def _share(page: str) -> None:
    """Draw the link that opens this page with this experiment, when it is asked for, and what a lesson link can set."""
    with page_in_turn():
        _draw_share(page)


def _draw_share(page: str) -> None:
    with st.container(horizontal=True):
        sharing = st.toggle("Share", key=f"{page}_share", help="The link to this page with this experiment, and its QR code.")
        lesson = st.toggle(
            "Lesson link", key=f"{page}_lesson", help="A link for a class: with locked controls, or fewer pages."
        )
    if lesson:
        _shared(_lesson_link(page))
    elif sharing:
        _shared(state.link(page))


def shortcuts_of(spec: ExperimentSpec) -> str:
    """Which of the network without and the one with shortcuts an experiment is, in words."""
    return f"the network {'with' if spec.network.use_shortcut else 'without'} shortcuts"


def download(result: ExperimentResult, key: str, label: str = "The readings (CSV)", name: str = "gradients") -> None:
    """The whole result as CSV, made when it is asked for, without running the page again."""
    st.download_button(
        label,
        data=lambda: to_csv(result).encode(),
        file_name=f"{name}_seed{result.spec.seed}.csv",
        mime="text/csv",
        on_click="ignore",
        key=key,
    )


def _lesson_link(page: str) -> str:
    """Draw what a lesson link can set; the link."""
    titles = CONTROLS_TITLES
    controls = st.segmented_control(
        "The controls",
        CONTROLS,
        default=CONTROLS[0],
        required=True,
        format_func=titles.__getitem__,
        key=f"{page}_lesson_controls",
    )
    shown = st.multiselect(
        "Only these pages", list(pages.TITLES), format_func=pages.TITLES.__getitem__, key=f"{page}_lesson_pages",
        placeholder="all pages",
    )  # fmt: skip
    only = [name for name in pages.TITLES if name in shown or (shown and name == page)]
    return state.link(page, controls=controls or CONTROLS[0], pages=",".join(only))


def _shared(link: str) -> None:
    st.code(link, language=None, wrap_lines=True)  # the box has a button that copies
    drawn = _qr(link)
    if drawn is None:
        st.markdown("This link is too long for a QR code.")
    else:
        st.image(drawn, caption=None, width=240)


@kept(max_entries=200)
def _qr(link: str) -> str | None:
    return qr_svg(link)
