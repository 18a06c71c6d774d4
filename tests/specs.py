"""Random valid specifications, for tests of what must hold for every one of them."""

from hypothesis import strategies as st

from gradlab.spec import (
    MAX_SCALE,
    MAX_SEED,
    Activation,
    BatchSpec,
    CaptureMethod,
    ExperimentSpec,
    Initializer,
    Loss,
    NetworkSpec,
    Normalization,
    Precision,
    SampleInput,
    Target,
)

SIZES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=12).map(
    lambda runs: tuple(size for size, count in runs for _ in range(count))
)


@st.composite
def network_specs(draw, sizes=SIZES):
    return NetworkSpec(
        layer_sizes=draw(sizes.filter(lambda s: len(s) > 1)),
        activation=draw(st.sampled_from(Activation)),
        activate_last=draw(st.booleans()),
        use_shortcut=draw(st.booleans()),
        initializer=draw(st.sampled_from(Initializer)),
        gain=draw(st.floats(-MAX_SCALE, MAX_SCALE)),
        sigma_w=draw(st.floats(0, MAX_SCALE)),
        sigma_b=draw(st.floats(0, MAX_SCALE)),
        normalization=draw(st.sampled_from(Normalization)),
        use_bias=draw(st.booleans()),
        dtype=draw(st.sampled_from(Precision)),
    )


@st.composite
def experiment_specs(draw, networks=None):
    network = draw(network_specs() if networks is None else networks)
    loss = draw(st.sampled_from(Loss))
    labels = Target.CLASS_LABELS
    targets = {Loss.CROSS_ENTROPY: [labels], Loss.OUTPUT_SUM: list(Target)}.get(loss, [t for t in Target if t is not labels])
    over_the_batch = network.normalization is Normalization.BATCH_NORM
    inputs, fewest = ([SampleInput.STANDARD_NORMAL], 2) if over_the_batch else (list(SampleInput), 1)
    batch = BatchSpec(
        sample_input=draw(st.sampled_from(inputs)),
        batch_size=draw(st.integers(fewest, 64)),
        target=draw(st.sampled_from(targets)),
    )
    return ExperimentSpec(
        network=network,
        batch=batch,
        loss=loss,
        capture_method=draw(st.sampled_from(CaptureMethod)),
        seed=draw(st.integers(0, MAX_SEED)),
    )
