"""A fingerprint stands for an experiment and its numbers, wherever and however often it is measured."""

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from specs import experiment_specs

from gradlab.capture import Status
from gradlab.experiment import run_experiment
from gradlab.fingerprint import WORDS, fingerprint
from gradlab.presets import PRESETS
from gradlab.spec import Activation, CaptureMethod, ExperimentSpec

SPECS = [preset.spec for preset in PRESETS.values()]
SMALL = [ExperimentSpec(seed=seed) for seed in range(300)]


def changed(result, change, only=None):
    """The result with every reading's mean, or that of one reading, replaced by `change(mean)`."""
    place = -1

    def new(record):
        nonlocal place
        place += 1
        statistics = record.statistics
        if only is None or place == only:
            statistics = statistics._replace(mean_abs=change(statistics.mean_abs))
        return replace(record, statistics=statistics)

    return replace(result, outputs=tuple(map(new, result.outputs)), parameters=tuple(map(new, result.parameters)))


def test_the_words_are_many_short_and_hard_to_mistake():
    assert len(WORDS) == len(set(WORDS)) == 256
    assert all(word.isascii() and word.islower() and 3 <= len(word) <= 7 for word in WORDS)
    one_off = {}  # each word with one of its letters left out: two words that share such a form differ in one letter
    for word in WORDS:
        for form in {word, *(word[:i] + "*" + word[i + 1 :] for i in range(len(word)))}:
            assert one_off.setdefault(form, word) == word


def test_every_process_and_every_thread_finds_the_same_words():
    specs = [spec.replace(capture_method=capture_method) for spec in SPECS[:4] for capture_method in CaptureMethod]
    here = [fingerprint(run_experiment(spec)) for spec in specs]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda spec: fingerprint(run_experiment(spec)), specs * 8)) == here * 8
    code = (
        "import gradlab; from gradlab.fingerprint import fingerprint\n"
        f"for flat in {[spec.to_dict() for spec in specs]!r}:\n"
        "    print(fingerprint(gradlab.run_experiment(gradlab.ExperimentSpec.from_dict(flat))))"
    )  # with as many threads inside torch as the machine has, and another seed for the hashes of texts
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, cwd=Path(__file__).parents[1])
    assert done.stdout.split() == here


def test_other_seeds_and_other_settings_have_other_words():
    specs = [*SMALL, *SPECS, *(ExperimentSpec().replace(activation=a, seed=1000) for a in Activation)]
    words = {fingerprint(run_experiment(spec)) for spec in specs}
    assert len(words) == len(set(specs))


def test_the_last_digits_change_the_words_in_fewer_than_three_of_a_thousand():
    draws = random.Random(1)
    results = [run_experiment(spec) for spec in SMALL]
    differ = 0
    for result in results:
        words = fingerprint(result)
        for _ in range(10):
            disturbed = changed(result, lambda mean: mean * (1 + draws.uniform(-1e-7, 1e-7)))
            differ += fingerprint(disturbed) != words
    assert differ / (10 * len(results)) < 0.003


@settings(max_examples=40)
@given(experiment_specs())
def test_any_one_reading_that_is_off_by_a_fifth_of_a_percent_changes_the_words(spec):
    result = run_experiment(spec)
    words = fingerprint(result)
    readings = [*result.outputs, *result.parameters]
    ordinary = [i for i, reading in enumerate(readings) if 1e-30 < reading.statistics.mean_abs < 1e30]
    for place in ordinary[:3] + ordinary[-3:]:
        for factor in (1.002, 0.998):
            assert fingerprint(changed(result, lambda mean, factor=factor: mean * factor, place)) != words


def test_zero_missing_and_non_finite_are_not_taken_for_each_other():
    result = run_experiment(ExperimentSpec())
    first, *others = result.outputs
    zero = replace(first, status=Status.ALL_ZERO, statistics=first.statistics._replace(mean_abs=0.0))
    broken = replace(first, status=Status.NON_FINITE, statistics=first.statistics._replace(nonfinite_count=1))
    missing = replace(first, status=Status.NO_GRADIENT, statistics=None)
    results = [replace(result, outputs=(record, *others)) for record in (first, zero, broken, missing)]
    assert len(set(map(fingerprint, results))) == 4


def test_numbers_that_fade_away_below_the_floor_do_not_change_the_words():
    result = run_experiment(ExperimentSpec())
    assert fingerprint(changed(result, lambda mean: 3e-45, 0)) == fingerprint(changed(result, lambda mean: 9e-38, 0))
    wide = run_experiment(ExperimentSpec().replace(dtype="float64"))
    assert fingerprint(changed(wide, lambda mean: 3e-45, 0)) != fingerprint(changed(wide, lambda mean: 9e-38, 0))
