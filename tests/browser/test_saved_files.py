"""What is taken home: the files hold the numbers of the experiment on the page, to the last bit."""

import re
import subprocess
import sys

import pandas
import pytest

import gradlab
from gradlab.export import read_csv
from gradlab.fingerprint import fingerprint
from gradlab.lessons.mistakes import MISTAKES
from gradlab.spec import ExperimentSpec

LINK = "seed=7&activation=tanh&layer_sizes=4-6-6-6-2"
SPEC = ExperimentSpec().replace(seed=7, activation="tanh", layer_sizes="4-6-6-6-2")


@pytest.fixture(scope="module")
def result():
    return gradlab.run_experiment(SPEC)


@pytest.mark.parametrize("page", ["measure", "trail", "shortcuts", "outputs", "verdicts"])
def test_the_csv_holds_the_experiment_to_the_last_bit_and_costs_no_run(visit, tmp_path, result, page):
    visitor = visit(f"/{page}?{LINK}")
    if page == "shortcuts":  # it compares two, and hands out the one it is about
        result = gradlab.run_experiment(SPEC.replace(use_shortcut=True))
    assert visitor.fingerprint == fingerprint(result)
    runs = visitor.runs
    saved = visitor.save("The readings (CSV)", tmp_path)
    assert saved.name == "gradients_seed7.csv"
    assert saved.read_bytes() == gradlab.to_csv(result).encode()
    table = read_csv(saved)
    expected = result.weight_table()
    found = table[table["parameter"].isin(expected["parameter"])].set_index("parameter")["mean_abs"]
    assert dict(found) == dict(zip(expected["parameter"], expected["mean_abs"], strict=True))
    visitor.settle()
    assert visitor.runs == runs


def test_the_script_prints_the_same_numbers_without_gradlab(visit, tmp_path, result):
    script = visit(f"/measure?{LINK}").save("The same in plain PyTorch (script)", tmp_path)
    assert not re.search(r"^\s*(import|from) gradlab", script.read_text(), re.MULTILINE)
    printed = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    numbers = [float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])", printed)]
    assert len(numbers) >= len(result.weight_table())
    for reading in result.weight_table()["mean_abs"]:
        assert min(abs(number / reading - 1) for number in numbers) < 1e-6, printed


@pytest.mark.parametrize("page", ["measure", "shortcuts", "verdicts", "methods"])
def test_a_picture_is_saved_as_an_image_without_anything_from_elsewhere(visit, tmp_path, page):
    visitor = visit(f"/{page}?{LINK}")
    svg = visitor.save("Save as SVG", tmp_path).read_text()
    assert svg.startswith("<svg")
    assert "<script" not in svg
    assert not re.findall(r"(?:href|src)=\"(?!#|data:)", svg)
    png = visitor.save("Save as PNG", tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    for name, kind, content in (("svg", "svg+xml", svg.encode()), ("png", "png", png.read_bytes())):
        # A browser that can decode it shows how large it is.
        size = visitor.page.evaluate(
            """async ([kind, bytes]) => {
                const image = new Image();
                image.src = URL.createObjectURL(new Blob([new Uint8Array(bytes)], {type: `image/${kind}`}));
                await image.decode();
                return [image.naturalWidth, image.naturalHeight];
            }""",
            [kind, list(content)],
        )
        assert min(size) > 100, name


def test_the_checklist_has_a_tick_for_what_was_shown_and_no_other(visit, tmp_path):
    visitor = visit("/mistakes")
    visitor.press("Show it live")
    text = visitor.save("The checklist (Markdown)", tmp_path).read_text()
    first = next(iter(MISTAKES.values())).title
    lines = [line for line in text.splitlines() if re.match(r"- \[[ x]\]", line)]
    assert [line for line in lines if line.startswith("- [x]")] == [line for line in lines if first in line]
    assert len(lines) == len(MISTAKES)


def test_the_record_holds_the_prediction_as_it_was_given_and_what_was_measured(visit, tmp_path):
    visitor = visit("/predict")
    visitor.answer("It grows", "Certain")  # it does not
    visitor.menu("Takeaways")
    text = visitor.save("Your record (Markdown)", tmp_path).read_text()
    assert text.startswith("# ")
    (row,) = [line for line in text.splitlines() if "| certain |" in line]
    assert "| grows |" in row
    assert row.endswith("| no |")


def test_the_table_of_a_csv_opens_anywhere(visit, tmp_path):
    """Plain commas and one header: pandas by itself reads as many rows as there are records."""
    saved = visit(f"/measure?{LINK}").save("The readings (CSV)", tmp_path)
    assert len(pandas.read_csv(saved)) == len(read_csv(saved)) > 0
