"""What a visitor takes home: the claims of the course, each beside a measurement, and the record of their own answers."""

from __future__ import annotations

import streamlit as st

from gradlab.lessons import report
from gradlab.lessons.course import PAGES
from gradlab.lessons.progress import CONFIDENCE_TITLES
from gradlab.lessons.report import LookAgain, Summary
from gradlab.lessons.takeaways import TAKEAWAYS, Evidence
from gradlab.spec import ExperimentSpec
from gradlab.ui import cache, pages, questions

LESSONS = {"A10": "Weight gradients along depth", "B8": "Output gradients"}
_SAID = {True: ("✓", "Here"), False: ("✗", "Not in this experiment"), None: ("○", "No yes or no from this experiment")}


def takeaways(plain: ExperimentSpec, shortcut: ExperimentSpec) -> None:
    """Each claim with what this pair of networks says to it."""
    found = cache.evidence(plain, shortcut)
    for tab, lesson in zip(st.tabs(list(LESSONS.values())), LESSONS, strict=True):
        with tab:
            for key, takeaway in TAKEAWAYS.items():
                if takeaway.covers == lesson:
                    st.markdown(_beside(takeaway.text, found[key]))


def _beside(text: str, evidence: Evidence) -> str:
    mark, said = _SAID[evidence.holds]
    return f"{mark} **{text}**  \n*{said}:* {evidence.sentence}"


# --- the visitor's own record -----------------------------------------------------------------------------------------


def record() -> None:
    """What agreed with the measurement, how sure the visitor was, what to look at again, and all of it as a document."""
    st.header("What did you predict, and how sure were you?")
    progress = questions.progress()
    found = report.summary(progress)
    st.markdown(" ".join(found.sentences))
    if not progress.answers and not progress.guesses:
        pages.link("predict", "Predict first, then measure →")
        return
    if progress.answers:
        st.markdown(_calibration(found))
    _look_again(found.look_again)
    st.download_button(
        "Your record (Markdown)",
        data=lambda: report.to_markdown(progress).encode(),
        file_name="gradient_predictions.md",
        mime="text/markdown",
        on_click="ignore",
        key="takeaways_record",
    )


def _calibration(found: Summary) -> str:
    lines = ["| You were | answers | as measured | share |", "|:---|---:|---:|---:|"]
    for row in found.calibration:
        share = "–" if row.share is None else f"{100 * row.share:.0f} %"
        lines.append(f"| {CONFIDENCE_TITLES[row.confidence].lower()} | {row.answered} | {row.right} | {share} |")
    return "\n".join(lines)


def _look_again(missed: tuple[LookAgain, ...]) -> None:
    """The pages to go back to, the one with the surest miss first, each with what was missed there."""
    if not missed:
        return
    st.markdown("**To look at again**, what you were surest of first:")
    for page in dict.fromkeys(item.page for item in missed):
        lines = {
            f"- {', '.join(item.topics)} (you were {CONFIDENCE_TITLES[item.confidence].lower()})": None
            for item in missed
            if item.page == page
        }
        pages.link(page, f"{PAGES[page].menu}: {PAGES[page].title}")
        st.markdown("\n".join(lines))
