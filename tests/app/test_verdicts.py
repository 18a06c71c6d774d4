"""The verdicts page: the grid, the multiplied loss, the question before it, and cut-offs that can be changed."""

import pytest
from test_charts import contrast

from gradlab import CutOffs, ExperimentSpec, diagnose, run_experiment
from gradlab.charts import verdict_grid
from gradlab.charts.verdict_grid import NOT_SHOWN, WORDS
from gradlab.cut_offs import CUT_OFF_REASONS
from gradlab.diagnosis import Verdict
from gradlab.published_rules import RULE_SETS, RuleWord
from gradlab.ui.panels import SIGNS

POWERS = range(-8, 9)
OWN = {"outputs": "This lab: outputs", "weights": "This lab: weights"}
HARD = [
    {"layer_sizes": "3-1"},
    {"layer_sizes": "1-1"},
    {"layer_sizes": "1x12"},
    {"layer_sizes": "3x201"},
    {"initializer": "normal", "sigma_w": "0"},
    {"layer_sizes": "3x21", "gain": "1e6", "activation": "identity"},
    {"layer_sizes": "4x12", "activation": "relu", "seed": "3"},
    {"layer_sizes": "99999", "loss_power": "9", "activation": "<script>"},
]


def cells(page):
    """Detector -> the title of its verdict at each power."""
    found = {}
    for layer, data in page.layers():
        if layer["mark"]["type"] == "text":
            for row in data.itertuples():
                found.setdefault(row.detector, {})[row.power] = row.verdict
    return found


def framed(page):
    (power,) = [row.power for _, data in page.layers() if list(data.columns) == ["power"] for row in data.itertuples()]
    return power


def answer(page, option="7 or 8"):
    """Commit to an answer as a visitor does."""
    page.at.radio[0].set_value(option)
    page.at.button[0].click()
    return page.run()


def judged(spec, power):
    """Title -> verdict, of every published rule set, asked one by one."""
    result = run_experiment(spec)
    return {rules.title: WORDS[rules.judge(result, 10.0**power).verdict].title for rules in RULE_SETS.values()}


def test_before_the_answer_only_the_verdicts_on_the_loss_as_it_is_are_shown(visit):
    page = visit("verdicts")
    for name, row in cells(page).items():
        assert {power for power, title in row.items() if title != WORDS[NOT_SHOWN].title} == {0}, name
    assert "change their verdict between" not in page.markdown
    assert not page.at.select_slider
    assert " to 10^" not in page.chart.alt


def test_a_commit_without_an_answer_reveals_nothing(visit):
    page = visit("verdicts")
    page.at.button[0].click()
    page.run()
    assert "Choose an answer" in page.markdown
    assert not page.at.select_slider


def test_after_it_every_cell_is_what_the_rule_set_says_and_ours_never_changes(visit):
    page = answer(visit("verdicts"))
    shown, spec = cells(page), ExperimentSpec()
    for power in (-8, -4, 0, 5, 8):
        assert {name: row[power] for name, row in shown.items() if name not in OWN.values()} == judged(spec, power)
    for gradient, name in OWN.items():
        verdict = diagnose(run_experiment(spec), gradient=gradient).verdict
        assert set(shown[name].values()) == {WORDS[verdict].title}
    assert list(shown)[:2] == list(OWN.values())


def test_the_headline_counts_the_rule_sets_that_change(visit):
    page = answer(visit("verdicts", activation="relu", layer_sizes="16x12", seed="5"))
    rows = {name: row for name, row in cells(page).items() if name not in OWN.values()}
    changing = sum(len(set(row.values())) > 1 for row in rows.values())
    ends = "between 10⁻⁸ and 10⁸; ours does not."
    assert f"**{changing} of 8 published rule sets change their verdict {ends}**" in page.markdown


@pytest.mark.parametrize(("option", "sign"), [("0", "✗"), ("1 to 3", "✗"), ("4 to 6", "✗"), ("7 or 8", "✓")])
def test_the_answer_is_held_against_the_measurement(visit, option, sign):
    page = answer(visit("verdicts"), option)
    assert f"You said: *{option}*. **{sign} 7 of 8 change.**" in page.markdown
    assert "AUTOTRAINER says the same throughout." in page.markdown


def test_the_first_answer_stays(visit):
    page = answer(visit("verdicts"), "0")
    assert not page.at.radio
    page.at.session_state["verdicts_option"] = "7 or 8"
    page.set(seed=7)
    assert "You said: *0*. **✗ 7 of 8 change for the experiment you answered about.**" in page.markdown
    page.go("measure").go("verdicts")
    assert "You said: *0*." in page.markdown


def test_multiplying_the_loss_moves_the_frame_and_the_verdicts_and_runs_nothing_again(visit):
    page = answer(visit("verdicts"))
    before = cells(page)
    assert framed(page) == 0
    page.at.select_slider[0].set_value("-5")
    page.run()
    assert framed(page) == -5
    assert cells(page) == before
    assert page.link["loss_power"] == "-5"
    assert "verdict at 10⁻⁵" in page.markdown
    changed = [name for name, verdict in judged(ExperimentSpec(), -5).items() if verdict != judged(ExperimentSpec(), 0)[name]]
    (line,) = [line for line in page.markdown.splitlines() if line.startswith("With the loss times 10⁻⁵")]
    assert all(name in line for name in changed)
    assert not any(name in line for name in before if name not in changed)


def test_the_table_says_why_with_the_number_at_that_power(visit):
    page = answer(visit("verdicts", loss_power="8"))
    result = run_experiment(ExperimentSpec())
    for rules in RULE_SETS.values():
        verdict = rules.judge(result, 1e8)
        assert verdict.sentence.replace("|", r"\|") in page.markdown
        assert rules.link in page.markdown
        assert rules.source in page.markdown
        assert all(threshold in page.markdown for threshold in rules.thresholds)


def test_both_gradients_have_a_verdict_and_a_disagreement_is_named(visit):
    page = visit("verdicts")
    for gradient, name in {"outputs": "output", "weights": "weight"}.items():
        found = diagnose(run_experiment(ExperimentSpec()), gradient=gradient)
        assert f"**This lab, {name} gradients: {SIGNS[found.verdict]}.** {found.sentence}" in page.markdown
    assert "The two answer different questions" in page.markdown


def test_every_cut_off_stands_there_with_its_reason(visit):
    page = visit("verdicts")
    for name, reason in CUT_OFF_REASONS.items():
        assert page.widget(f"verdicts_cut_off_{name}").value == getattr(CutOffs(), name)
        assert reason in page.markdown


def test_changed_cut_offs_change_our_verdict_and_are_named(visit):
    page = answer(visit("verdicts"))
    page.set(verdicts_cut_off_vanishing=0.01)
    assert "with your cut-offs, output gradients: ↘ weakening" in page.markdown
    assert "ours, with your cut-offs, does not." in page.markdown
    assert set(cells(page)["This lab: outputs"].values()) == {"weakening"}
    page.go("measure").go("verdicts")
    assert page.widget("verdicts_cut_off_vanishing").value == 0.01
    page.click("verdicts_reset")
    assert page.widget("verdicts_cut_off_vanishing").value == 0.1
    assert "with your cut-offs" not in page.markdown
    assert "output gradients: ▼ vanishing" in page.markdown


def test_cut_offs_out_of_order_are_named_and_the_last_ones_stay(visit):
    page = answer(visit("verdicts")).set(verdicts_cut_off_vanishing=0.01)
    page.set(verdicts_cut_off_weakening=2.0)
    assert "weakening = 2.0 is not possible" in page.why
    assert "with your cut-offs, output gradients: ↘ weakening" in page.markdown
    page.set(verdicts_cut_off_weakening=0.4)
    assert page.why == ""


def test_too_few_layers_asked_for_is_no_error(visit):
    page = visit("verdicts").set(verdicts_cut_off_fewest_layers=9)
    assert "too shallow to judge" in page.markdown
    page.set(verdicts_cut_off_fewest_layers=1)
    assert "fewest_layers = 1" in page.why


def test_flags_stand_below_with_what_to_do(visit):
    page = visit("verdicts", layer_sizes="3x41")
    flags = diagnose(run_experiment(ExperimentSpec().replace(layer_sizes="3x41"))).flags
    assert flags
    assert f"{flags[0].sentence} {flags[0].what_to_do}" in page.markdown


@pytest.mark.parametrize("link", HARD, ids=lambda link: link.get("layer_sizes", "zero"))
def test_hard_experiments_are_judged_without_an_error(visit, link):
    page = answer(visit("verdicts", **link))
    shown = cells(page)
    assert len(shown) == 10
    for name in OWN.values():
        assert len(set(shown[name].values())) == 1, shown[name]
    assert "ours does not." in page.markdown


def test_every_word_has_a_sign_of_its_own_that_the_headline_has_too():
    assert set(WORDS) == {*Verdict, *RuleWord, NOT_SHOWN}
    words = [word for word in WORDS.values() if word.title not in ("nothing to report",)]
    assert len({word.sign for word in words}) == len(words)
    for verdict, sign in SIGNS.items():
        if verdict not in (Verdict.TOO_SHALLOW, Verdict.NOT_MEASURABLE):
            assert sign == f"{WORDS[verdict].sign} {WORDS[verdict].title}"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("hidden", [False, True])
def test_the_grid_is_valid_and_its_words_hold_it(dark, hidden):
    rows = {"ours": ["steady"] * 3, "theirs": ["vanishing", "none", "exploding"]}
    drawn = verdict_grid(rows, powers=[-1, 0, 1], current=0, hidden=hidden, dark=dark)
    drawn.chart.to_dict(validate=True)
    every = "theirs: vanishing from 10^-1 to 10^-1, nothing to report from 10^0 to 10^0, exploding from 10^1 to 10^1"
    assert (every in drawn.alt_text) != hidden
    assert ("exploding" in drawn.how_to_read) != hidden


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_signs_are_legible_on_every_colour(theme):
    text = {"light": "#3D3F49", "dark": "#E6E6E6"}[theme]
    for word in WORDS.values():
        assert contrast(text, getattr(word, theme)) >= 4.5, word
