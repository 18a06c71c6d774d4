"""Two experiments side by side: every factor in which they differ, and where their trails part.

A comparison says something about one factor if that factor is the one thing that differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

import pandas

from gradlab.cut_offs import CutOffs
from gradlab.diagnosis import Diagnosis, diagnose
from gradlab.errors import SpecError, listed
from gradlab.experiment import ExperimentResult, run_experiment
from gradlab.parting import Parting, layer_name, output_end_first, part, quotient, size_of
from gradlab.spec import FIELDS, Activation, ExperimentSpec, Initializer, Loss, SampleInput, Target
from gradlab.trail import Quantity

Value = str | int | float | bool

FIELD_TITLES: dict[str, str] = {
    "layer_sizes": "layer sizes",
    "activation": "activation",
    "activate_last": "activation after the last layer",
    "use_shortcut": "shortcuts",
    "initializer": "initialisation",
    "gain": "gain",
    "sigma_w": "σ_w",
    "sigma_b": "σ_b",
    "normalization": "normalisation",
    "use_bias": "biases",
    "dtype": "precision",
    "sample_input": "sample input",
    "batch_size": "batch size",
    "target": "target",
    "loss": "loss",
    "capture_method": "capture method",
    "seed": "other weights (seed)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field in which two specifications differ."""

    field: str
    title: str
    a: Value
    b: Value
    has_effect: bool
    """False where neither experiment makes use of the field, or where it cannot change a number."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two experiments, measured and judged, with what differs between them."""

    a: ExperimentResult
    b: ExperimentResult
    diagnosis_a: Diagnosis
    diagnosis_b: Diagnosis
    gradient: Quantity
    under_study: str
    """The field that is meant to differ."""
    differences: tuple[Difference, ...]
    """Every field in which the specifications differ, with or without effect."""
    is_controlled: bool
    """Whether the field under study is the one thing that differs, apart from fields without effect."""
    word: str
    """`comparison`, or a sentence that refuses to call it one and names what else differs."""
    parting: Parting
    sentence: str
    """Where the two trails part."""

    def table(self) -> pandas.DataFrame:
        """One row per layer, the output end first, layers paired from there.

        Columns: `step` (1 at the output end), `layer_a`, `layer_b`, `reading_a`, `reading_b` (RMS), `ratio` (b over a),
        `relative_ratio` (the same, each against its own reading at the output end), `status_a`, `status_b`, `fitted_a`,
        `fitted_b`. NaN, or an empty text, where one network has no such layer or the reading is missing or non-finite.
        """
        pairs = list(zip_longest(*(output_end_first(result, self.gradient) for result in (self.a, self.b))))
        sizes = [(size_of(a), size_of(b)) for a, b in pairs]
        return pandas.DataFrame(
            {
                "step": range(1, len(pairs) + 1),
                "layer_a": [layer_name(a) for a, _ in pairs],
                "layer_b": [layer_name(b) for _, b in pairs],
                "reading_a": [a for a, _ in sizes],
                "reading_b": [b for _, b in sizes],
                "ratio": [quotient(b, a) for a, b in sizes],
                "relative_ratio": [quotient(quotient(b, sizes[0][1]), quotient(a, sizes[0][0])) for a, b in sizes],
                "status_a": [str(a.status) if a else "" for a, _ in pairs],
                "status_b": [str(b.status) if b else "" for _, b in pairs],
                "fitted_a": [a is not None and a.layer in self.diagnosis_a.fitted_layers for a, _ in pairs],
                "fitted_b": [b is not None and b.layer in self.diagnosis_b.fitted_layers for _, b in pairs],
            }
        )


def compare(
    spec_a: ExperimentSpec,
    spec_b: ExperimentSpec,
    *,
    under_study: str = "use_shortcut",
    gradient: Quantity | str = Quantity.OUTPUTS,
    cut_offs: CutOffs | None = None,
) -> Comparison:
    """Both experiments measured and judged, every factor in which they differ, and where their trails part.

    Raises SpecError for an `under_study` that is no field of `ExperimentSpec.to_dict()`.
    """
    return compare_results(
        run_experiment(spec_a), run_experiment(spec_b), under_study=under_study, gradient=gradient, cut_offs=cut_offs
    )


def compare_results(
    a: ExperimentResult,
    b: ExperimentResult,
    *,
    under_study: str = "use_shortcut",
    gradient: Quantity | str = Quantity.OUTPUTS,
    cut_offs: CutOffs | None = None,
    names: tuple[str, str] | None = None,
) -> Comparison:
    """The comparison of two measurements that were made already; see `compare`. `names` are what its sentence calls them."""
    if under_study not in FIELDS:
        raise SpecError("under_study", under_study, listed(FIELDS))
    diagnosis_a, diagnosis_b = (diagnose(result, cut_offs, gradient=gradient) for result in (a, b))
    differences = differences_between(a.spec, b.spec)
    effective = [difference for difference in differences if difference.has_effect]
    is_controlled = [difference.field for difference in effective] == [under_study]
    quantity = diagnosis_a.gradient
    parting = part(a, b, quantity, names or _names(differences, under_study, is_controlled))
    return Comparison(
        a=a,
        b=b,
        diagnosis_a=diagnosis_a,
        diagnosis_b=diagnosis_b,
        gradient=quantity,
        under_study=under_study,
        differences=differences,
        is_controlled=is_controlled,
        word="comparison" if is_controlled else _refusal(differences, under_study),
        parting=parting,
        sentence=parting.sentence,
    )


# --- what differs -----------------------------------------------------------------------------------------------------


def differences_between(spec_a: ExperimentSpec, spec_b: ExperimentSpec) -> tuple[Difference, ...]:
    """Every field of `to_dict` in which two specifications differ, in its order."""
    a, b = spec_a.to_dict(), spec_b.to_dict()
    return tuple(
        Difference(
            field=name,
            title=_title(name, spec_a, spec_b),
            a=a[name],
            b=b[name],
            has_effect=_matters(name, spec_a) or _matters(name, spec_b),
        )
        for name in FIELDS
        if a[name] != b[name]
    )


def _title(name: str, *specs: ExperimentSpec) -> str:
    if name == "seed":
        draws_input = any(spec.batch.sample_input is SampleInput.STANDARD_NORMAL for spec in specs)
        draws_target = any(spec.batch.target is not Target.ZEROS and _matters("target", spec) for spec in specs)
        drawn = ["weights", *["input"] * draws_input, *["target"] * draws_target]
        return f"other {' and '.join(drawn)} (seed)"
    return FIELD_TITLES[name]


def _matters(name: str, spec: ExperimentSpec) -> bool:
    """Whether this experiment makes use of a field: a different value could give other numbers."""
    network = spec.network
    normal = network.initializer is Initializer.NORMAL
    if name == "capture_method":
        return False  # the three give one gradient to the last bit
    if name == "sigma_w":
        return normal
    if name == "sigma_b":
        return normal and network.use_bias
    if name == "target":
        return spec.loss is not Loss.OUTPUT_SUM
    if name == "activate_last":
        return network.activation is not Activation.IDENTITY
    if name == "activation":
        return network.depth > 1 or network.activate_last
    if name == "use_shortcut":
        # A shortcut goes where a layer keeps the size of its input.
        return any(size == after for size, after in zip(network.layer_sizes, network.layer_sizes[1:], strict=False))
    return True


def _refusal(differences: tuple[Difference, ...], under_study: str) -> str:
    studied, titles = FIELD_TITLES[under_study], [d.title for d in differences if d.has_effect and d.field != under_study]
    if any(difference.field == under_study and difference.has_effect for difference in differences):
        return f"No comparison: besides {studied}, something else differs: {', '.join(titles)}."
    no_effect = any(difference.field == under_study for difference in differences)
    start = f"the difference in {studied} has no effect here" if no_effect else f"there is no difference in {studied}"
    rest = f"but in other things: {', '.join(titles)}." if titles else "and nothing else with an effect differs."
    return f"No comparison: {start}, {rest}"


def _names(differences: tuple[Difference, ...], under_study: str, is_controlled: bool) -> tuple[str, str]:
    """What the two networks are called in a sentence."""
    if not is_controlled:
        return "the first network", "the second network"
    studied = next(difference for difference in differences if difference.field == under_study)
    a, b = (
        f"{'with' if value else 'without'} {studied.title}" if isinstance(value, bool) else f"with {studied.title} {value}"
        for value in (studied.a, studied.b)
    )
    return f"the network {a}", f"the network {b}"
