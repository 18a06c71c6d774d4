"""A link and the settings it stands for: everything possible in it is kept, everything else left out with a sentence.

Pure functions from the parameters of a URL to settings and back; no session is involved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gradlab.errors import SpecError, listed, shorten
from gradlab.lessons.myths import MYTHS
from gradlab.sizes import sizes_to_text
from gradlab.spec import FIELDS, ExperimentSpec
from gradlab.trail import Quantity
from gradlab.ui.pages import TITLES

VIEWS: dict[str, list[str]] = {
    "gradient": [str(quantity) for quantity in Quantity],
    "order": ["arrival", "printed"],
    "seed_count": ["200", "1000", "5000"],
    "measured_sizes": ["wide", "own"],
    "under_study": ["use_shortcut", *(name for name in FIELDS if name != "use_shortcut")],
    "loss_power": [str(power) for power in (0, *range(-8, 0), *range(1, 9))],
    "myth": list(MYTHS),
}
"""How a page shows the experiment: the options of each view setting, the default first."""
CONTROLS = ("open", "locked", "hidden")
LESSON = {"controls": CONTROLS[0], "pages": "", "pinned": ""}
"""What a link says beside the experiment: what may be done with the controls, which pages there are, which run is A."""
DEFAULTS: dict[str, Any] = ExperimentSpec().to_dict() | {name: options[0] for name, options in VIEWS.items()} | LESSON
MAX_PRODUCTS = 500_000_000
"""Multiplications of one forward run (weights × batch size) that a shared server takes on: about a second of one core."""


def link_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """The URL's parameters for these settings. The seed is always there: a URL without any is one nobody has filled in."""
    told = {name: value for name, value in settings.items() if name == "seed" or value != DEFAULTS[name]}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in told.items()}


def accept(given: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The settings of a link with everything impossible left out, and a sentence on each thing left out."""
    settings, left_out = dict(DEFAULTS), []
    for name, options in {**VIEWS, "controls": CONTROLS}.items():
        if name in given and given[name] in options:
            settings[name] = given[name]
        elif name in given:
            left_out.append(str(SpecError(name, given[name], listed(options))))
    if "pages" in given:
        known, unknown = pages_of(given["pages"])
        settings["pages"] = ",".join(known)
        left_out += [f"pages = {shorten(name)} is not one of them" for name in unknown]
    if given.get("pinned"):
        try:
            settings["pinned"] = text_of(spec_of(given["pinned"]))
        except SpecError as error:
            left_out.append(str(error) if error.field == "pinned" else f"pinned: {error}")
    fields = {name: value for name, value in given.items() if name in FIELDS}
    while True:
        try:
            return settings | affordable(ExperimentSpec.from_dict(fields)).to_dict(), left_out
        except SpecError as error:
            del fields[_culprit(fields, error)]
            left_out.append(str(error))


def _culprit(fields: Mapping[str, str], error: SpecError) -> str:
    """The setting to leave out: the one the error names, or one without which the others go together."""
    if error.field in fields:
        return error.field
    for name in reversed(list(fields)):
        try:
            affordable(ExperimentSpec.from_dict({other: value for other, value in fields.items() if other != name}))
        except SpecError:
            continue
        return name
    return list(fields)[-1]


def affordable(spec: ExperimentSpec) -> ExperimentSpec:
    """The experiment itself; raises SpecError for one that would keep everybody else on a shared server waiting."""
    products = products_of(spec)
    if products > MAX_PRODUCTS:
        allowed = f"on a shared server, weights × batch size of at most {MAX_PRODUCTS:,}, not {products:,}"
        raise SpecError("layer_sizes", sizes_to_text(spec.network.layer_sizes), allowed)
    return spec


def products_of(spec: ExperimentSpec) -> int:
    """Multiplications of one forward run: what an experiment costs."""
    return spec.network.parameter_count * spec.batch.batch_size


def pages_of(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The pages that a text such as `predict,trail` names, in the order of the menu, and what in it is no page."""
    names = [name.strip() for name in text[:1000].split(",") if name.strip()]
    return tuple(name for name in TITLES if name in names), tuple(name for name in names if name not in TITLES)


def text_of(spec: ExperimentSpec) -> str:
    """A whole experiment as the value of one parameter: `seed:5,activation:relu`."""
    return ",".join(f"{name}:{value}" for name, value in link_of(spec.to_dict()).items())


def spec_of(text: str) -> ExperimentSpec:
    """The experiment that `text_of` wrote; raises SpecError for anything else."""
    return affordable(ExperimentSpec.from_dict(dict(_pairs(text.split(",")))))


def _pairs(parts: Iterable[str]) -> Iterable[tuple[str, str]]:
    for part in parts:
        name, colon, value = part.partition(":")
        if not colon:
            raise SpecError("pinned", part, "name:value pairs joined by commas, such as seed:5,activation:relu")
        yield name, value
