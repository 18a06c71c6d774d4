"""What can be seen: on a phone, in the dark, with weak eyes."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from gradlab.ui.pages import TITLES

THEMES = ("light", "dark")
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
        // What clears the place of a number in a chart has the page's colour, inside and around.
        if (element.closest('svg') && style.stroke === style.fill) continue;
        const hidden = style.visibility === 'hidden' || !opacity(element) || !element.getBoundingClientRect().width;
        if (!text || hidden || element.closest('[disabled], style, script, [data-testid=stIconMaterial]')) continue;
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


def weak_texts(visitor, theme):
    """The texts on the page with a contrast below 4.5."""
    texts = visitor.page.evaluate(TEXTS)
    assert {text["inChart"] for text in texts} == {True, False}
    assert all((luminance(text["background"]) > 0.5) == (theme == "light") for text in texts if not text["inChart"])
    return {text["text"]: round(contrast(text), 2) for text in texts if contrast(text) < 4.5}


def barriers(visitor):
    """What axe-core finds that keeps people out, with the elements it is about."""
    found = Axe().run(visitor.page).response["violations"]
    return {
        problem["id"]: [node["html"][:200] for node in problem["nodes"]]
        for problem in found
        if problem["impact"] in ("serious", "critical")
    }


def check_looks(visitor, theme):
    assert (weak_texts(visitor, theme), barriers(visitor)) == ({}, {})


@pytest.mark.parametrize("theme", THEMES)
def test_every_page_can_be_read_by_eye_and_by_a_screen_reader(visit, theme):
    """WCAG 2.2: a contrast of 4.5 for every text, in charts too, and nothing serious or critical in axe-core."""
    visitor, found = visit("/", color_scheme=theme), {}
    for page, title in TITLES.items():
        visitor.menu(title)
        found[page] = weak_texts(visitor, theme) | barriers(visitor)
    assert {page: problems for page, problems in found.items() if problems} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_so_can_what_appears_after_an_answer(visit, theme):
    visitor = visit("/predict?seed=x", color_scheme=theme)  # with the notice that part of the link was left out
    check_looks(visitor, theme)
    visitor.answer("It grows")
    check_looks(visitor, theme)
    visitor.menu("Trail")
    visitor.answer_first()
    check_looks(visitor, theme)
    visitor.menu("Mistakes")
    visitor.press("Show it live")
    check_looks(visitor, theme)
    for page, button in (("Verdicts", "Commit"), ("Myths", "Commit and measure"), ("Seeds", "Commit")):
        visitor.menu(page)
        visitor.page.get_by_role("radiogroup", name="Your answer").locator("label").first.click()
        visitor.press(button)
        check_looks(visitor, theme)
    visitor.menu("Takeaways")
    check_looks(visitor, theme)
    visitor.menu("Measure")
    visitor.fill("Layer sizes", "nonsense")  # with the reason why it cannot be run
    visitor.page.get_by_text("More settings").click()
    visitor.settle()
    check_looks(visitor, theme)


def test_the_text_in_a_chart_has_another_colour_in_the_dark(visit):
    light, dark = (visit("/", color_scheme=theme).page.evaluate(TEXTS) for theme in THEMES)
    colors = [{text["text"]: text["color"] for text in texts if text["inChart"]} for texts in (light, dark)]
    assert {"1.33", "0.222", "layers.0"} <= colors[0].keys() == colors[1].keys()
    assert all(colors[0][text] != colors[1][text] for text in ("1.33", "layers.0"))


@pytest.mark.parametrize("page", TITLES)
def test_a_phone_has_the_picture_on_its_first_screen_and_never_scrolls_sideways(visit, page):
    visitor = visit(f"/{page}?layer_sizes=3x101&activation=relu", **PHONE)
    picture = visitor.chart.bounding_box()
    assert picture["y"] + picture["height"] <= 844
    if (more := visitor.page.get_by_text("More settings")).count():
        more.click()
        visitor.settle()
    assert visitor.page.evaluate(TOO_WIDE) == []
    assert visitor.page.evaluate("innerWidth") == 390
    drawn = visitor.chart.locator("svg").bounding_box()
    assert drawn["x"] >= 0
    assert drawn["x"] + drawn["width"] <= 390
