"""The script of an experiment, run without gradlab, prints the experiment's own numbers."""

import ast
import contextlib
import io
import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from specs import experiment_specs

from gradlab.experiment import run_experiment
from gradlab.presets import PRESETS
from gradlab.script import to_script
from gradlab.spec import (
    Activation,
    CaptureMethod,
    ExperimentSpec,
    Initializer,
    Loss,
    Normalization,
    Precision,
    SampleInput,
    Target,
)

LABELS = {"target": "class_labels", "loss": "cross_entropy"}
UNEQUAL = ExperimentSpec().replace(
    layer_sizes="5-4x7-3", batch_size=4, use_shortcut=True, sample_input="standard_normal", seed=7
)
OPTIONS = [
    *(("activation", option) for option in Activation),
    *(("initializer", option) for option in Initializer),
    *(("normalization", option) for option in Normalization),
    *(("dtype", option) for option in Precision),
    *(("sample_input", option) for option in SampleInput),
    *(("target", option) for option in Target),
    *(("loss", option) for option in Loss),
    *(("capture_method", option) for option in CaptureMethod),
    *((flag, value) for flag in ("activate_last", "use_shortcut", "use_bias") for value in (True, False)),
    *[("gain", -0.3), ("gain", 1e-5), ("seed", 0), ("seed", 2**32 - 1), ("batch_size", 1024)],
    *[("layer_sizes", sizes) for sizes in ("1-1", "64x21", "3-64x20-1", "6-6-6", "-".join(map(str, range(10, 90))))],
]


def printed(text):
    """The loss and the readings, by name and kind, that a script's output tells."""
    (word, loss), *lines = (line.split() for line in text.splitlines())
    assert word == "loss"
    readings = {(name, kind): float(number) for name, kind, number, *_ in lines}
    assert len(readings) == len(lines)
    return float(loss), readings


def run(script):
    """What the script prints, run in this process, whose random state it leaves alone."""
    with torch.random.fork_rng(), contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(script, "script", "exec"), {"__name__": "__main__"})
    return output.getvalue()


def measured(spec):
    """The same from gradlab: every reading that has a number."""
    result = run_experiment(spec)
    records = [((record.layer, "output"), record) for record in result.outputs]
    records += [((record.parameter, record.role), record) for record in result.parameters]
    return result.loss, {key: record.statistics.mean_abs for key, record in records}


def assert_the_script_tells(spec, text):
    loss, readings = printed(text)
    expected_loss, expected = measured(spec)
    assert loss == pytest.approx(expected_loss, rel=1e-6, abs=0, nan_ok=True)
    # The script adds before it divides: a sum may leave the range of float64 where the mean is still within.
    beyond = {key: math.inf for key, mean in expected.items() if mean > 1e304 and readings[key] == math.inf}
    assert readings == pytest.approx(expected | beyond, rel=1e-6, abs=0, nan_ok=True)


@settings(max_examples=40)
@given(experiment_specs())
def test_the_script_of_any_experiment_prints_the_numbers_of_the_experiment(spec):
    assert_the_script_tells(spec, run(to_script(spec)))


@pytest.mark.parametrize(("field", "value"), OPTIONS, ids=[f"{field}={value!s:.12}" for field, value in OPTIONS])
def test_a_script_follows_every_option(field, value):
    belongs = {Loss.CROSS_ENTROPY: LABELS, Target.CLASS_LABELS: LABELS}.get(value, {})
    spec = UNEQUAL.replace(**{field: value} | belongs)
    assert_the_script_tells(spec, run(to_script(spec)))


@pytest.mark.parametrize("activate_last", [True, False])
@pytest.mark.parametrize("normalization", Normalization)
def test_a_shortcut_between_equal_sizes_needs_no_condition(normalization, activate_last):
    spec = UNEQUAL.replace(layer_sizes="4x7", normalization=normalization, activate_last=activate_last)
    script = to_script(spec)
    assert " if x.shape" not in script
    assert_the_script_tells(spec, run(script))


def test_gradients_that_are_not_finite_are_counted_not_hidden():
    spec = UNEQUAL.replace(layer_sizes="64x60", gain=1e4, activation="identity", capture_method="retain_grad")
    text = run(to_script(spec))
    assert_the_script_tells(spec, text)
    broken = [line for line in text.splitlines() if "entries that are NaN or infinite" in line]
    result = run_experiment(spec)
    assert len(broken) == sum(record.statistics.nonfinite_count > 0 for record in [*result.outputs, *result.parameters]) > 0


def test_a_saved_script_runs_in_an_interpreter_of_its_own(tmp_path):
    spec = UNEQUAL.replace(initializer="normal", sigma_b=0.2, normalization="batch_norm", capture_method="full_backward_hooks")
    path = tmp_path / "experiment.py"
    path.write_text(to_script(spec), encoding="utf-8")
    command = [sys.executable, "-I", "-W", "error", path]  # isolated: it finds no gradlab beside it
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert_the_script_tells(spec, done.stdout)


@settings(max_examples=60)
@given(experiment_specs())
def test_a_script_is_short_imports_torch_alone_and_holds_nothing_it_does_not_use(spec):
    script = to_script(spec)
    tree = ast.parse(script)
    assert len([line for line in script.splitlines() if line.strip()]) <= 75 + spec.network.depth / 10
    assert max(map(len, script.splitlines())) <= 110
    assert not script.endswith("\n\n")
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    assert modules <= {"itertools", "math", "torch", "torch.nn"}
    made = {alias.name for node in imports for alias in node.names}
    made |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    made |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert made - used <= {"__init__", "forward"}


def test_the_most_ordinary_experiment_has_the_plainest_script():
    script = to_script(ExperimentSpec())
    assert len([line for line in script.splitlines() if line.strip()]) <= 60
    for word in ("generator", "GAIN", "SIGMA", "norm", "shortcut", "bias", "double()."):
        assert word not in script.replace(".double()", ""), word


@pytest.mark.parametrize("name", [name for name in PRESETS if PRESETS[name].spec.network.initializer is not Initializer.NORMAL])
def test_settings_that_change_no_number_change_no_line(name):
    spec = PRESETS[name].spec
    unused = {"sigma_w": 3.0, "sigma_b": 2.0}
    assert to_script(spec.replace(**unused)) == to_script(spec)
