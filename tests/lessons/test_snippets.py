"""The lines of PyTorch on the page run as they are, and find what the lab finds."""

import subprocess
import sys

import pytest
import torch

from gradlab import ExperimentSpec, capture_gradients, run_experiment
from gradlab.batches import sample_input, target
from gradlab.lessons.snippets import CAPTURES, MEASUREMENT
from gradlab.presets import PRESETS
from gradlab.spec import CaptureMethod

SNIPPETS = {"measurement": MEASUREMENT} | {str(method): snippet for method, snippet in CAPTURES.items()}
PUBLISHED = [2.0173588e-4, 1.2011160e-4, 7.1520399e-4, 1.3988736e-3, 5.0496454e-3]
"""Mean absolute weight gradients, chapter 4 of Raschka's LLMs-from-scratch, first layer first."""
TWO_LAYERS = PRESETS["two_layer_regression"].spec
LAYERS = {"fc1": "layers.0.0", "relu": "layers.0.1", "fc2": "layers.1.0"}

each_snippet = pytest.mark.parametrize("snippet", SNIPPETS.values(), ids=SNIPPETS)
each_capture = pytest.mark.parametrize("method", CAPTURES)


@pytest.fixture(scope="module")
def printed():
    """Snippet name -> what it prints, in one fresh interpreter where every warning is an error: lines, split at spaces."""
    each = "\n".join(f"print({name!r}); exec({snippet.code!r}, {{}}); print()" for name, snippet in SNIPPETS.items())
    done = subprocess.run([sys.executable, "-W", "error", "-c", each], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    blocks = [block.splitlines() for block in done.stdout.strip().split("\n\n")]
    return {name: [line.split() for line in lines] for name, *lines in blocks}


def run(snippet):
    """The names that the snippet leaves, run here."""
    names = {}
    with torch.random.fork_rng():
        exec(snippet.code, names)
    return names


def test_every_capture_method_has_its_lines():
    assert set(CAPTURES) == set(CaptureMethod)


@each_snippet
def test_every_note_belongs_to_one_line(snippet):
    for note in snippet.notes:
        assert snippet.code.count(note.fragment) == 1, note.fragment
        assert note.text.endswith(".")
    lines = snippet.code.splitlines()
    numbered = snippet.numbered_notes()
    assert [number for number, _ in numbered] == sorted({number for number, _ in numbered})
    for note in snippet.notes:
        number = next(number for number, text in numbered if text == note.text)
        assert note.fragment in lines[number - 1]


@each_snippet
def test_a_line_fits_on_a_page(snippet):
    assert max(map(len, snippet.code.splitlines())) <= 108


def test_the_measurement_prints_the_published_figures(printed):
    lines = printed["measurement"]
    assert [float(line[-1]) for line in lines] == pytest.approx(PUBLISHED, rel=1e-5)
    assert [line[0] for line in lines] == [f"{layer}.0.weight" for layer in range(5)]


def test_the_measurement_is_that_of_the_lab():
    names = run(MEASUREMENT)
    table = run_experiment(ExperimentSpec()).weight_table()
    assert list(names["strengths"].values()) == pytest.approx(table["mean_abs"].to_list(), rel=1e-6)
    assert names["target"].shape == names["output"].shape
    assert not names["target"].any()


@each_capture
def test_the_capture_snippets_have_the_labs_network_and_samples(method):
    names = run(CAPTURES[method])
    assert torch.equal(names["x"].detach(), sample_input(TWO_LAYERS))
    assert torch.equal(names["y"], target(TWO_LAYERS))


@each_capture
def test_by_hand_a_capture_gives_the_labs_layers_shapes_and_norms(printed, method):
    lab = {record.layer: record for record in run_experiment(TWO_LAYERS.replace(capture_method=method)).outputs}
    lines = printed[method]
    names = [line[0] for line in lines]
    assert set(names) == ({"fc1"} if method == "retain_grad" else set(LAYERS))
    for name, *shape, norm in lines:
        record = lab[LAYERS[name]]
        assert " ".join(shape) == str(record.shape)
        assert float(norm) == pytest.approx(record.statistics.norm, rel=1e-6)


@each_capture
def test_by_hand_a_capture_equals_the_labs_to_the_last_bit(method):
    lab = run_experiment(TWO_LAYERS, keep_gradients=True)
    gradients = {record.layer: record.gradient for record in lab.outputs}
    for name, gradient in run(CAPTURES[method])["captured"].items():
        assert torch.equal(gradient, gradients[LAYERS[name]])


@pytest.mark.parametrize("method", ["tensor_hooks", "full_backward_hooks"])
def test_the_snippets_take_their_hooks_off_again(method):
    names = run(CAPTURES[method])
    before = {name: gradient.clone() for name, gradient in names["captured"].items()}
    names["captured"].clear()
    with capture_gradients(names["model"], keep_gradients=True) as capture:
        torch.nn.functional.mse_loss(names["model"](names["x"]), names["y"]).backward()
    assert names["captured"] == {}
    assert all(torch.equal(record.gradient, before[record.layer]) for record in capture.passes[0].outputs)
