"""The link: what it says is shown, what it cannot say is left out with a notice, and what is shown it says."""

import pytest

from gradlab.presets import PRESETS
from gradlab.spec import ExperimentSpec

DEFAULTS = ExperimentSpec().to_dict()
PAGES = ("measure", "trail")
A_LINK = {"layer_sizes": "4-8x7-2", "activation": "relu", "use_shortcut": "true", "gain": "1.5", "seed": "4294967295"}
BAD = [
    *[("seed", value) for value in ("-1", "4294967296", "1.5", "", "nan", "inf", "1e400", "9" * 5000, "MARK", "١٢x")],
    *[("gain", value) for value in ("nan", "-inf", "1e7", "--1", "MARK")],
    *[("sigma_w", value) for value in ("-0.1", "1e7")],
    *[("layer_sizes", value) for value in ("", "3", "1x202", "4096x200", "MARK", "3-3-1;MARK", "9" * 5000, "-" * 5000)],
    *[("use_shortcut", value) for value in ("1", "yes", "None", "MARK")],
    *[("activation", value) for value in ("RELU", "ReLU", "<b>MARK</b>", "__class__", "MARK" * 2000)],
    *[("batch_size", value) for value in ("0", "1025", "MARK")],
    *[("capture_method", "MARK"), ("gradient", "MARK"), ("order", "<script>MARK</script>"), ("dtype", "float16")],
]


@pytest.mark.parametrize("page_name", PAGES)
def test_a_link_sets_the_controls_and_the_numbers(visit, measured, page_name):
    page = visit(page_name, **A_LINK)
    spec = ExperimentSpec.from_dict(A_LINK)
    assert page.settings == spec.to_dict()
    assert page.drawn == measured(spec)
    assert page.left_out == []
    assert page.link == A_LINK


@pytest.mark.parametrize("page_name", PAGES)
@pytest.mark.parametrize("preset", PRESETS)
def test_what_the_controls_say_comes_back_from_the_link(visit, page_name, preset):
    page = visit(page_name).set(preset=preset)
    again = visit(page_name, **page.link)
    assert again.settings == page.settings == PRESETS[preset].spec.to_dict()
    assert again.chart.spec == page.chart.spec
    assert again.widget("preset").value == preset
    assert again.link == page.link


def test_a_link_names_the_seed_and_whatever_is_not_the_default(visit):
    page = visit("measure")
    assert page.link == {"seed": "123"}
    page.set(activation="tanh", use_bias=False, sigma_b=0.25, gradient="outputs")
    assert page.link == {"seed": "123", "activation": "tanh", "use_bias": "false", "sigma_b": "0.25", "gradient": "outputs"}
    assert page.set(activation="gelu_tanh", use_bias=True, sigma_b=0.0, gradient="weights").link == {"seed": "123"}


def test_a_link_holds_how_the_experiment_is_viewed(visit, measured):
    page = visit("trail", gradient="outputs", order="printed")
    assert page.drawn == measured(ExperimentSpec(), "outputs")
    assert list(page.at.dataframe[0].value["layer"]) == [f"layers.{place}" for place in range(5)]
    assert page.link == {"seed": "123", "gradient": "outputs", "order": "printed"}


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda text: text[:20])
def test_a_bad_value_is_left_out_with_a_notice_and_the_rest_is_kept(visit, name, value):
    page = visit("trail", **{**A_LINK, name: value})
    kept = {key: text for key, text in A_LINK.items() if key != name}
    assert page.settings == ExperimentSpec.from_dict(kept).to_dict()
    assert len(page.left_out) == 1
    assert page.left_out[0].startswith(f"{name} = ")
    assert len(page.left_out[0]) < 300
    assert page.link == ({"seed": "123"} | kept)
    assert {element.type for element in page.elements if "MARK" in str(element.proto)} <= {"text"}


def test_many_bad_values_each_have_their_line(visit):
    page = visit("measure", **dict(BAD))
    assert len(page.left_out) == len(dict(BAD))
    assert page.settings == DEFAULTS


@pytest.mark.parametrize(
    ("link", "missing"),
    [
        ({"loss": "cross_entropy"}, "loss"),
        ({"normalization": "batch_norm"}, "normalization"),
        ({"target": "class_labels"}, "target"),
        ({"target": "standard_normal", "loss": "cross_entropy"}, "target"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else given,
)
@pytest.mark.parametrize("page_name", PAGES)
def test_what_does_not_go_together_is_left_out_and_the_rest_is_kept(visit, page_name, link, missing):
    page = visit(page_name, **A_LINK, **link)
    assert page.left_out
    assert page.link.items() >= A_LINK.items()
    assert missing not in page.link


def test_of_an_experiment_too_large_for_a_shared_server_the_size_is_left_out(visit):
    page = visit("measure", layer_sizes="4000x3", batch_size="1024", activation="relu")
    assert page.settings == DEFAULTS | {"batch_size": 1024, "activation": "relu"}
    assert "on a shared server" in page.left_out[0]


@pytest.mark.parametrize("page_name", PAGES)
def test_parameters_that_nobody_knows_do_no_harm(visit, page_name):
    page = visit(page_name, **{"utm_source": "MARK", "setting_seed": "5", "preset": "too_large", "__proto__": "x", "seed": "9"})
    assert page.settings == DEFAULTS | {"seed": 9}
    assert page.left_out == []
    assert "MARK" not in "".join(str(element.proto) for element in page.elements)


def test_of_a_repeated_parameter_the_last_one_counts(visit):
    page = visit("measure", seed=["1", "2", "3"], activation=["MARK", "relu"])
    assert page.settings == DEFAULTS | {"seed": 3, "activation": "relu"}
    assert page.left_out == []


def test_a_link_followed_later_replaces_all_settings(visit):
    page = visit("measure", **A_LINK)
    page.go("measure", seed="5")
    assert page.settings == DEFAULTS | {"seed": 5}


def test_the_notice_goes_with_the_next_change(visit):
    page = visit("measure", seed="x")
    assert page.left_out
    assert page.set(activation="relu").left_out == []


def test_settings_survive_the_menu(visit, measured):
    page = visit("measure", **A_LINK, gradient="outputs")
    spec = ExperimentSpec.from_dict(A_LINK)
    for name in ("trail", "start", "trail", "measure", "start", "measure"):
        page.go(name)
        if name != "start":
            assert page.settings == spec.to_dict()
            assert page.drawn == measured(spec, "outputs")


def test_the_link_is_filled_in_wherever_the_menu_leads(visit):
    page = visit("measure", **A_LINK)
    for name in ("trail", "measure", "start", "measure", "start", "trail"):
        page.go(name)
        assert page.link == A_LINK, name


def test_what_could_not_be_run_is_forgotten_on_another_page(visit, measured):
    page = visit("measure").set(layer_sizes="4-4-1")
    page.set(layer_sizes="nonsense", activation="relu")
    page.go("trail")
    assert page.why == ""
    assert page.drawn == measured(ExperimentSpec().replace(layer_sizes="4-4-1"))


def test_two_visitors_do_not_meet(visit, measured):
    one, other = visit("measure", seed="1"), visit("measure", seed="2")
    one.set(activation="silu")
    other.set(activation="tanh")
    assert one.run().drawn == measured(ExperimentSpec(seed=1).replace(activation="silu"))
    assert other.run().drawn == measured(ExperimentSpec(seed=2).replace(activation="tanh"))
