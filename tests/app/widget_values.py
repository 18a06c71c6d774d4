"""What may be given to the controls: every option and bound by the name of the setting, and odd text for everywhere."""

import random

from streamlit.proto.Common_pb2 import StringArray
from streamlit.proto.WidgetStates_pb2 import WidgetState

from gradlab.batches import LOSSES, SAMPLE_INPUTS, TARGETS
from gradlab.capture import CAPTURE_METHODS
from gradlab.networks import ACTIVATIONS, INITIALIZERS, NORMALIZATIONS
from gradlab.presets import PRESETS
from gradlab.spec import MAX_BATCH_SIZE, MAX_SCALE, MAX_SEED, ExperimentSpec, Precision
from gradlab.ui.links import CONTROLS, DEFAULTS, VIEWS, text_of
from gradlab.ui.pages import TITLES

CHOICES = {
    "activation": ACTIVATIONS,
    "initializer": INITIALIZERS,
    "normalization": NORMALIZATIONS,
    "dtype": Precision,
    "sample_input": SAMPLE_INPUTS,
    "loss": LOSSES,
    "target": TARGETS,
    "capture_method": CAPTURE_METHODS,
}
CHOICES = {name: [str(option) for option in options] for name, options in CHOICES.items()}
TOGGLES = ("use_shortcut", "use_bias", "activate_last")
BOUNDS = {
    "seed": (0, MAX_SEED),
    "batch_size": (1, MAX_BATCH_SIZE),
    "gain": (-MAX_SCALE, MAX_SCALE),
    "sigma_w": (0.0, MAX_SCALE),
    "sigma_b": (0.0, MAX_SCALE),
}

SIZES = ("3-3-1", "1-1", "2x30", "16-16-3", "5", "", "x", "3x201", "<b>3</b>", "=1+1", "9" * 999, "\x00", "3;3;1", "💥", "-1-1")
ODD_TEXTS = (
    *(*SIZES, "0", "-1", "2.5", "1e6", "1e-320", "1e400", "NAN", "true", "None", "../../etc/passwd", "%s{0}$x$"),
    *("<script>alert(1)</script>", ":red[x] ![x](http://example.com/x.png)", "\u202e\ud7ff", "0.5", "1,5", "MARK" * 500),
)
COSTLY = PRESETS["he_relu"].title
"""Takes seconds with every change."""
_PINNED = [text_of(ExperimentSpec(seed=5)), text_of(PRESETS["deep_sigmoid"].spec), "seed:5,seed:6", "layer_sizes:4096x200"]
IN_LINKS = {
    **CHOICES,
    **{name: [str(value) for value in values] for name, values in BOUNDS.items()},
    **{name: ["true", "false"] for name in TOGGLES},
    **VIEWS,
    "layer_sizes": SIZES,
    "controls": CONTROLS,
    "pages": [*TITLES, ",".join(TITLES), "measure,trail", "nowhere,predict"],
    "pinned": _PINNED,
}
"""What a link may say, by parameter."""
assert IN_LINKS.keys() == DEFAULTS.keys()


def some_link(chance: random.Random) -> dict[str, str]:
    """A few parameters, one in three of them with text that does not belong there."""
    names = chance.sample(sorted(IN_LINKS), chance.randint(1, 5))
    return {name: chance.choice(ODD_TEXTS if chance.random() < 0.3 else list(IN_LINKS[name])) for name in names}


def some_number(chance, widget):
    """A bound, something close to nothing, or something in between that is not too costly."""
    low, high = getattr(widget, "min", None), getattr(widget, "max", None)
    low, high = (-1e6 if low is None else low), (1e6 if high is None else high)
    return chance.choice([low, high, min(max(low, 0), high), low + chance.random() * (min(high, low + 40) - low)])


def some_state(chance, widget):
    """What a browser would send once a visitor has done something to the widget; as words and as the message."""
    state = WidgetState(id=widget.id)
    match widget.type:
        case "button":
            value = state.trigger_value = True
        case "toggle" | "checkbox":
            value = state.bool_value = chance.choice([True, False])
        case "selectbox" | "radio":
            value = state.string_value = chance.choice([option for option in widget.options if option != COSTLY])
        case "button_group" | "multiselect" | "select_slider":
            several = widget.type == "multiselect"
            value = chance.sample(widget.options, chance.randint(0, len(widget.options)) if several else 1)
            state.string_array_value.CopyFrom(StringArray(data=value))
        case "number_input":
            whole = widget.proto.data_type == widget.proto.INT
            value = state.double_value = (round if whole else float)(some_number(chance, widget))
        case "slider":
            value = round(some_number(chance, widget), 2)
            state.double_array_value.data[:] = [value]
        case "text_input" | "text_area":
            limit = widget.proto.max_chars or None
            value = state.string_value = chance.choice(ODD_TEXTS)[:limit]
    return f"{widget.key} = {value!r}", state
