"""Every value that the controls offer, by the name of the setting."""

from gradlab.batches import LOSSES, SAMPLE_INPUTS, TARGETS
from gradlab.capture import CAPTURE_METHODS
from gradlab.networks import ACTIVATIONS, INITIALIZERS, NORMALIZATIONS
from gradlab.presets import PRESETS
from gradlab.spec import MAX_BATCH_SIZE, MAX_SCALE, MAX_SEED, Precision
from gradlab.ui.links import VIEWS
from gradlab.ui.stages import STAGES

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
SWITCHES = VIEWS | {"stage": STAGES, "preset": list(PRESETS)}
