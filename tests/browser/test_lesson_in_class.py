"""A link for a class: what it locks, hides and leaves out, and that another browser sees the same numbers."""

import re

import pytest

from gradlab.ui.pages import TITLES

LINK = "seed=7&activation=tanh&layer_sizes=4-6-6-6-2"


@pytest.fixture
def shared(visit):
    """Opens a page and turns on Share or Lesson link."""

    def share(page, switch="Share"):
        visitor = visit(f"/{page}?{LINK}")
        with visitor.a_run():
            visitor.page.get_by_test_id("stCheckbox").filter(has_text=switch).locator("label").first.click()
        return visitor

    return share


def link_on(visitor):
    return re.sub(r"\s", "", visitor.page.get_by_test_id("stCode").last.inner_text()).removeprefix(visitor.url)


@pytest.mark.parametrize("page", ["measure", "shortcuts", "takeaways"])
def test_the_shared_link_opens_the_same_numbers_in_another_browser(visit, shared, page):
    one = shared(page)
    code = one.page.get_by_test_id("stImage").locator("img, svg").first
    assert code.bounding_box()["width"] > 150
    link = link_on(one)
    assert link.startswith(f"/{page}?")
    other = visit(link, color_scheme="dark", locale="de-DE")
    assert other.fingerprint == one.fingerprint
    assert other.alt == one.alt
    assert other.warnings == []


def test_a_link_once_shown_follows_what_is_changed_above_it(shared):
    visitor = shared("measure")
    for seed in ("41", "42"):
        visitor.fill("Seed", seed)
        assert f"seed={seed}" in link_on(visitor)
    with visitor.a_run():
        visitor.page.get_by_test_id("stCheckbox").filter(has_text="Share").locator("label").first.click()
    assert visitor.page.get_by_test_id("stImage").count() == 0
    assert visitor.query["seed"] == "42"


def test_a_lesson_link_is_made_on_the_page_and_holds_in_another_browser(visit, shared):
    teacher = shared("trail", "Lesson link")
    with teacher.a_run():
        teacher.pick("The controls", "are shown, locked")
    for title in ("Trail", "Shortcuts"):
        with teacher.a_run():
            teacher.page.get_by_role("combobox", name="Only these pages").click()
            teacher.page.get_by_role("option", name=title, exact=True).click()
        teacher.page.keyboard.press("Escape")
    student = visit(link_on(teacher), color_scheme="dark")
    assert student.path == "/trail"
    assert student.menu_entries == ["Trail", "Shortcuts"]
    assert student.fingerprint == teacher.fingerprint
    assert student.page.get_by_label("Seed", exact=True).and_(student.page.locator("input")).is_disabled()
    student.menu("Shortcuts")
    assert student.page.get_by_label("Seed", exact=True).and_(student.page.locator("input")).is_disabled()
    assert student.query["controls"] == "locked"


def test_hidden_controls_leave_the_picture_and_the_questions(visit):
    visitor = visit(f"/measure?{LINK}&controls=hidden")
    assert visitor.page.get_by_role("combobox", name="Activation").count() == 0
    assert visitor.page.get_by_role("radiogroup", name="Your answer").count() == 1
    assert visitor.query["controls"] == "hidden"


@pytest.mark.parametrize("limited", ["predict", "trail,shortcuts", "seeds,myths", "start,measure"])
def test_each_page_of_a_lesson_is_found_at_its_address_and_the_first_at_the_bare_one_too(visit, limited):
    names = limited.split(",")
    for path in (*(f"/{name}" for name in names), "/"):
        visitor = visit(f"{path}?pages={limited}&seed=5")
        assert visitor.query == {"pages": limited, "seed": "5"}
        if len(names) > 1:
            assert visitor.menu_entries == [TITLES[name] for name in names]
        visitor.check()  # above all no "Page not found"
    first = visit(f"/{names[0]}?pages={limited}&seed=5")
    assert first.title == visitor.title
