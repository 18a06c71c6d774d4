"""Every common mistake is shown live: two numbers that differ, and by as much as theory says."""

import math
import pickle
import re
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
from chain import Chain
from hypothesis import given, settings
from hypothesis import strategies as st
from specs import experiment_specs, network_specs
from torch import nn

from gradlab import ExperimentSpec, GradlabError, diagnose, run_experiment
from gradlab.batches import target
from gradlab.lessons.demonstrations import capturing, too_large
from gradlab.lessons.demonstrations.base import NothingToShow, statistics_of, usable
from gradlab.lessons.mistakes import LESSON_TITLES, MISTAKES, Lesson, checklist_markdown, escaped
from gradlab.presets import PRESETS

each_mistake = pytest.mark.parametrize("key", MISTAKES)
REFERENCE = ExperimentSpec()
DEEP = REFERENCE.replace(layer_sizes="16x8-4", sample_input="standard_normal", batch_size=6, activate_last=False)
LABELS = DEEP.replace(loss="cross_entropy", target="class_labels", activation="tanh", use_shortcut=True)
LARGEST = REFERENCE.replace(layer_sizes="900x11", initializer="he")
SPECS = {"reference": REFERENCE, "deep": DEEP, "labels": LABELS, "one layer": REFERENCE.replace(layer_sizes="2-1")}
SPECS |= {name: preset.spec for name, preset in PRESETS.items()}


def shown(key, spec=REFERENCE, **changes):
    return MISTAKES[key].demonstrate(spec.replace(**changes))


# --- what holds for all of them ---------------------------------------------------------------------------------------


def test_every_mistake_of_both_lessons_is_on_the_list():
    lessons = [mistake.lesson for mistake in MISTAKES.values()]
    assert (lessons.count(Lesson.READING), lessons.count(Lesson.CAPTURING)) == (5, 7)
    assert len({mistake.title for mistake in MISTAKES.values()}) == len(MISTAKES)
    assert set(LESSON_TITLES) == set(Lesson)


@each_mistake
def test_a_mistake_says_why_it_fails_and_what_to_do_instead(key):
    mistake = MISTAKES[key]
    assert 0 < len(mistake.title) <= 70
    assert not mistake.title.endswith(".")
    for text in (mistake.why, mistake.instead):
        assert text.endswith(".")
        assert len(text) > 30


@each_mistake
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_demonstration_measures_two_numbers_that_differ(key, spec):
    found = MISTAKES[key].demonstrate(spec)
    assert found.wrong.value != found.right.value
    assert found.wrong.label != found.right.label
    assert found.right.value is not None
    assert found.right.text not in ("", "–", "None")
    assert found.damage.endswith(".")
    assert all(len(row) == len(found.columns) for row in found.rows)
    assert list(found.table().columns) == list(found.columns)
    assert len(found.table()) == len(found.rows) >= 1
    assert found.note or found.spec.network.layer_sizes == spec.network.layer_sizes
    assert pickle.loads(pickle.dumps(found)) == found


@each_mistake
def test_on_the_reference_experiment_each_mistake_shows(key):
    found = shown(key)
    assert "reference experiment" not in found.note
    assert found.spec.network.layer_sizes == REFERENCE.network.layer_sizes


@each_mistake
def test_a_demonstration_takes_less_than_two_seconds_of_one_core(key):
    assert not too_large(LARGEST)
    begin = time.thread_time()
    MISTAKES[key].demonstrate(LARGEST)
    assert time.thread_time() - begin < 2


@each_mistake
@given(spec=experiment_specs(network_specs(st.lists(st.integers(1, 6), min_size=2, max_size=7))))
@settings(max_examples=12)
def test_no_experiment_makes_a_demonstration_fail_or_show_what_is_no_number(key, spec):
    found = MISTAKES[key].demonstrate(spec)
    for value in (found.wrong.value, found.right.value, *(cell for row in found.rows for cell in row)):
        assert not isinstance(value, float) or math.isfinite(value)
    assert found.wrong.value != found.right.value
    assert found.note == "" or found.note.endswith(".")


@each_mistake
@pytest.mark.parametrize("sizes", ["2048x3", "64x51"])
def test_an_experiment_too_large_to_wait_for_is_shown_on_the_reference_and_it_is_said(key, sizes):
    large = REFERENCE.replace(layer_sizes=sizes, batch_size=1024)
    assert too_large(large) in MISTAKES[key].demonstrate(large).note
    assert shown(key).wrong == MISTAKES[key].demonstrate(large).wrong


@pytest.mark.parametrize("initializer", ["orthogonal", "normal"])
def test_an_orthogonal_draw_counts_as_the_work_it_is(initializer):
    spec = REFERENCE.replace(layer_sizes="2048-2048", initializer=initializer)
    assert bool(too_large(spec)) == (initializer == "orthogonal")


@each_mistake
@pytest.mark.parametrize("changes", [{"initializer": "normal", "sigma_w": 0}, {"gain": 1e6, "layer_sizes": "8x40"}])
def test_where_every_gradient_is_zero_or_none_is_finite_no_such_number_is_compared(key, changes):
    found = shown(key, activation="relu", **changes)
    assert found.wrong.value != found.right.value
    assert all(math.isfinite(r.value) for r in (found.wrong, found.right) if r.value is not None)


@pytest.mark.parametrize(("value", "said"), [(0.0, "exactly zero"), (None, "not finite"), (math.nan, "not finite")])
def test_what_cannot_be_compared_is_named_for_what_it_is(value, said):
    with pytest.raises(NothingToShow, match=said):
        usable(value, "a gradient")


def test_a_gradient_that_is_not_finite_is_not_called_zero():
    note = shown("zero_target_as_task", layer_sizes="8x40", activation="relu", initializer="he", gain=1e6).note
    assert "not finite" in note


@pytest.mark.parametrize("entries", [[1.0, math.nan], [math.inf, 0.0]])
def test_a_gradient_that_is_finite_in_part_is_not_compared(entries):
    with pytest.raises(NothingToShow, match="not finite"):
        statistics_of(torch.tensor(entries))


def test_demonstrations_leave_the_random_state_and_the_warning_filters_as_they_were():
    state, filters = torch.get_rng_state(), list(warnings.filters)
    for key in MISTAKES:
        shown(key)
    assert torch.equal(torch.get_rng_state(), state)
    assert warnings.filters == filters


def test_demonstrations_in_several_threads_find_what_they_find_alone():
    filters, alone = list(warnings.filters), {key: shown(key) for key in MISTAKES}
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(shown, list(MISTAKES) * 8))
    assert together == list(alone.values()) * 8
    assert warnings.filters == filters


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [2, 5, 12])
def test_the_first_line_of_the_list_is_the_last_to_get_its_gradient(depth):
    found = shown("top_to_bottom", layer_sizes=f"4x{depth}-2" if depth > 5 else "-".join(["4"] * depth + ["2"]))
    assert (found.wrong.value, found.right.value) == (depth, 1)
    assert [row[2] for row in found.rows] == list(range(depth, 0, -1))


def test_a_large_last_layer_tells_nothing_and_the_trend_tells_the_networks_apart():
    found, trends = shown("large_last_layer"), []
    for row, use_shortcut in zip(found.rows, (False, True), strict=True):
        spec = REFERENCE.replace(use_shortcut=use_shortcut)
        neighbour, last = (g.square().mean().sqrt().item() for g in Chain(spec).output_gradients()[-2:])
        assert row[1] == pytest.approx(last / neighbour, rel=1e-5)
        assert row[1] > 5
        trends.append(diagnose(run_experiment(spec)).factor)
    assert found.wrong.value == pytest.approx(neighbour / last, rel=1e-5)
    assert (found.rows[0][2], found.right.value) == tuple(trends)
    assert [row[3] for row in found.rows] == ["vanishing", "steady"]


@pytest.mark.parametrize("seed", [123, 1, 2])
def test_in_a_mean_with_signs_positive_and_negative_entries_cancel(seed):
    found = shown("sign_as_strength", DEEP, seed=seed)
    gradients = {f"layers.{i}": g.double() for i, g in enumerate(Chain(found.spec).weight_gradients())}
    means = {name: g.mean().abs().item() / g.abs().mean().item() for name, g in gradients.items()}
    name = min(means, key=means.get)
    assert found.wrong.label.startswith(name)
    assert found.right.value == pytest.approx(gradients[name].abs().mean().item(), rel=1e-5)
    assert found.wrong.value == pytest.approx(gradients[name].mean().item(), abs=1e-6 * found.right.value)
    assert found.factor == pytest.approx(means[name], abs=1e-6)


@pytest.mark.parametrize("seed", [123, 5])
def test_with_one_output_another_target_changes_every_gradient_by_the_ratio_of_the_errors(seed):
    found = shown("zero_target_as_task", seed=seed)
    (output,) = run_experiment(found.spec).output[0]
    wanted = target(found.spec.replace(target="standard_normal")).item()
    assert found.factor == pytest.approx(abs(output / (output - wanted)), rel=1e-4)
    assert [row[3] for row in found.rows] == pytest.approx([1 / found.factor] * 5, rel=1e-4)


def test_two_networks_built_after_one_seeding_differ_in_their_weights():
    found = shown("two_changes_at_once", DEEP)
    sizes = DEEP.network.layer_sizes
    with torch.random.fork_rng():
        torch.manual_seed(DEEP.seed)
        one, two = ([nn.Linear(a, b).weight for a, b in pairwise(sizes)] for _ in range(2))
    assert found.wrong.value == sum(int((a != b).sum()) for a, b in zip(one, two, strict=True))
    assert found.wrong.value > 0.99 * sum(weight.numel() for weight in one)
    assert found.right.value == 0


# --- capturing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [123, 7, 8])
def test_at_batch_size_1_a_weight_gradient_is_the_output_gradient_times_the_length_of_the_input(seed):
    found = shown("weight_gradient_for_output", seed=seed)
    lengths = [x.norm().item() for x in Chain(found.spec).inputs]
    assert [row[2] / row[4] for row in found.rows] == pytest.approx(lengths, rel=1e-5)
    assert found.factor == pytest.approx(max(lengths, key=lambda length: abs(math.log(length))), rel=1e-5)
    assert [(row[1], row[3]) for row in found.rows][-1] == ("(1, 3)", "(1, 1)")


@pytest.mark.parametrize("spec", [REFERENCE, DEEP, LABELS])
def test_a_hidden_tensor_has_no_grad_unless_it_is_retained(spec):
    found = shown("non_leaf_gradient", spec)
    assert found.wrong.value is None
    assert found.right.value == pytest.approx(Chain(spec).output_gradients()[0].double().norm().item(), rel=1e-5)
    assert "not a leaf Tensor" in found.damage


@pytest.mark.parametrize("runs", [2, 3, 6])
def test_with_hooks_left_behind_the_nth_run_reports_n_times_and_keeps_n_times_the_memory(runs):
    found = capturing.hooks_left_behind(DEEP, runs)
    depth = DEEP.network.depth
    numbers = sum(output.numel() for output in Chain(DEEP).outputs)
    assert found.factor == runs
    assert (found.wrong.value, found.right.value) == (runs * depth, depth)
    assert found.rows == tuple((n, n * depth, depth, n * depth, 0, n * numbers * 4) for n in range(1, runs + 1))


@pytest.mark.parametrize("batch_size", [2, 5])
def test_a_branch_outside_the_loss_gets_none_and_one_in_it_the_gradient_of_its_mean(batch_size):
    found = shown("off_the_path", DEEP, batch_size=batch_size)
    assert found.wrong.value is None
    assert found.right.value == pytest.approx(1 / math.sqrt(batch_size * 16), rel=1e-6)
    assert [row[2] for row in found.rows] == [0, 1]


@pytest.mark.parametrize("calls", [2, 3, 7, 10])
@pytest.mark.parametrize("spec", [REFERENCE, DEEP, LABELS])
def test_k_backward_calls_without_zeroing_give_k_times_the_value(calls, spec):
    found = capturing.gradients_add_up(spec, calls)
    assert found.factor == pytest.approx(calls, rel=1e-6)
    assert [row[1] / row[2] for row in found.rows] == pytest.approx(list(range(1, calls + 1)), rel=1e-6)
    assert found.right.value == pytest.approx(Chain(spec).weight_gradients()[-1].abs().mean().item(), rel=1e-5)


@pytest.mark.parametrize("batch_size", [2, 6, 7])
@pytest.mark.parametrize("loss", ["mse", "mse_sum", "l1", "cross_entropy", "output_sum"])
def test_a_summed_loss_gives_the_averaged_one_times_the_number_of_elements(loss, batch_size):
    wanted = "class_labels" if loss == "cross_entropy" else "standard_normal"
    found = shown("sum_for_mean", DEEP, loss=loss, target=wanted, batch_size=batch_size)
    elements = batch_size * (1 if loss == "cross_entropy" else 4)
    assert found.factor == pytest.approx(elements, rel=1e-6)
    assert [row[2] for row in found.rows] == [elements] * 2
    assert f"over {elements} elements" in found.damage
    assert found.note == ""


@pytest.mark.parametrize("spec", [REFERENCE, LABELS.replace(batch_size=1)])
def test_over_one_element_sum_and_mean_are_the_same_so_more_samples_are_taken(spec):
    found = shown("sum_for_mean", spec)
    assert found.factor == pytest.approx(8, rel=1e-6)
    assert found.spec.batch.batch_size == 8
    assert "8 samples" in found.note


@pytest.mark.parametrize("spec", [REFERENCE, DEEP, LABELS])
def test_a_scaled_loss_scales_the_reading_and_clipping_and_zeroing_change_it(spec):
    found = shown("read_too_late", spec)
    right, clipped, zeroed, gone, scaled = (row[1] for row in found.rows)
    chain = Chain(spec)
    norm = math.hypot(*(g.double().norm().item() for g in torch.autograd.grad(chain.loss, [*chain.network.parameters()])))
    assert found.factor == scaled / right == 65536
    assert clipped == pytest.approx(right * (norm / 2) / (norm + 1e-6), rel=1e-5)
    assert (zeroed, gone) == (0, None)


# --- the checklist ----------------------------------------------------------------------------------------------------


def test_an_item_is_ticked_only_after_its_demonstration_ran():
    done = {key: shown(key) for key in ("gradients_add_up", "non_leaf_gradient")}
    text = checklist_markdown(done)
    assert text.count("- [x] ") == 2
    assert text.count("- [ ] ") == 10
    assert f"- [x] **{escaped(MISTAKES['gradients_add_up'].title)}**" in text
    assert text.splitlines()[2].startswith("2 of 12 ")
    assert checklist_markdown({}).count("- [ ] ") == 12


def test_a_ticked_item_carries_its_numbers_and_its_experiment():
    found = shown("gradients_add_up", DEEP)
    text = checklist_markdown({"gradients_add_up": found})
    assert f": {found.wrong.text}\n" in text
    assert f": {found.right.text}\n" in text
    assert f"layer\\_sizes {found.spec.to_dict()['layer_sizes']}" in text


def test_the_checklist_knows_its_items():
    with pytest.raises(GradlabError, match=r"'spelling'.*top_to_bottom"):
        checklist_markdown({"spelling": shown("off_the_path")})


@pytest.mark.parametrize(
    "text", ["# a", "- a", "1. a", "1) a", "+ a", "*a* _b_ `c`", "[a](b)", "<b>", "a|b", "a\n\n- b", "~~a~~"]
)
def test_escaped_text_has_no_mark_that_markdown_would_read(text):
    literal = escaped(text)
    assert "\n" not in literal
    assert not re.match(r"[#+-]|\d+[.)]", literal)
    assert not re.search(r"(?<!\\)[`*_\[\]<>|~]", literal)
    assert re.sub(r"\\(.)", r"\1", literal) == " ".join(text.split())
