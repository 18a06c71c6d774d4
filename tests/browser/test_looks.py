"""What can be seen: on a phone, in the dark, with weak eyes."""

import pytest

PATHS = ("/", "/measure?seed=x", "/trail")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}

# Every text on the page with its colour and what lies behind it, as sRGB from 0 to 255.
TEXTS = """() => {
    const parse = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
    const over = ([r, g, b, a = 1], below, opacity) => [r, g, b].map((c, i) => c * a * opacity + below[i] * (1 - a * opacity));
    const parents = element => element ? [element, ...parents(element.parentElement)] : [];
    const opacity = element => parents(element).reduce((product, parent) => product * getComputedStyle(parent).opacity, 1);
    const behind = element => element
        ? over(parse(getComputedStyle(element).backgroundColor), behind(element.parentElement), 1) : [255, 255, 255];
    const texts = [];
    for (const element of document.querySelectorAll('[data-testid=stApp] *')) {
        const text = [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join('');
        const style = getComputedStyle(element);
        const hidden = style.visibility === 'hidden' || !opacity(element) || !element.getBoundingClientRect().width;
        if (!text || hidden || element.closest('[disabled], style, script')) continue;
        const inChart = Boolean(element.closest('svg'));
        // A slider's value stands above the thumb that it belongs to, not on it.
        const background = behind(element.closest('[data-testid=stSliderThumbValue]')?.parentElement.parentElement ?? element);
        const color = over(parse(inChart ? style.fill : style.color), background, opacity(element));
        texts.push({text, inChart, color, background});
    }
    return texts;
}"""
# Every box that is wider than it can show.
TOO_WIDE = """() => [...document.querySelectorAll('html, body, [data-testid=stMain], [data-testid=stVegaLiteChart]')]
    .filter(box => box.scrollWidth > box.clientWidth).map(box => [box.tagName, box.scrollWidth, box.clientWidth])"""


def luminance(color):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (channel / 255 for channel in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(text):
    """The contrast of WCAG 2, from 1 to 21."""
    dark, light = sorted((luminance(text["color"]), luminance(text["background"])))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_reach_a_contrast_of_four_and_a_half_on_either_background(visit, theme):
    visitor, weak = visit("/", color_scheme=theme), {}
    for path in PATHS:
        visitor.open(path)
        texts = visitor.page.evaluate(TEXTS)
        assert {text["inChart"] for text in texts} == {True, False}
        assert all((luminance(text["background"]) > 0.5) == (theme == "light") for text in texts)
        weak |= {(path, text["text"]): round(contrast(text), 2) for text in texts if contrast(text) < 4.5}
    assert weak == {}


def test_the_text_in_a_chart_has_another_colour_in_the_dark(visit):
    light, dark = (visit("/", color_scheme=theme).page.evaluate(TEXTS) for theme in ("light", "dark"))
    colors = [{text["text"]: text["color"] for text in texts if text["inChart"]} for texts in (light, dark)]
    assert {"5.05e-3", "Plain", "With shortcuts", "layers.0"} <= colors[0].keys() == colors[1].keys()
    assert all(colors[0][text] != colors[1][text] for text in ("5.05e-3", "Plain", "With shortcuts"))


def test_a_phone_shows_every_page_without_scrolling_sideways(visit):
    visitor = visit("/", **PHONE)
    for path in ("/", "/measure?layer_sizes=3x201", "/trail", "/trail?layer_sizes=3x201&activation=relu&seed=x"):
        visitor.open(path)
        if path != "/":
            visitor.page.get_by_text("More settings").click()
            visitor.settle()
        assert visitor.page.evaluate(TOO_WIDE) == []
        assert visitor.page.evaluate("innerWidth") == 390
        box = visitor.chart.locator("svg").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390


def test_a_phone_has_the_picture_on_its_first_screen(visit):
    box = visit("/", **PHONE).chart.bounding_box()
    assert box["y"] + box["height"] <= 844
