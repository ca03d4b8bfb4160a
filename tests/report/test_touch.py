"""The page in a browser: what is hovered, selected, filtered and walked, with no error and no
request."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from automl.running.features.report_page import make_report
from tests.end_to_end.browser import NAMES
from tests.report.studies import searched, write_study

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest.importorskip("playwright", reason="no playwright: pip install it")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser: install one of {', '.join(NAMES)}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """The page of a study of 60 trials; it must ask for nothing and report no error."""
    study = write_study(tmp_path / "any", searched(60))
    (study / "logs").mkdir()
    opened = browser.new_page(viewport={"width": 1400, "height": 900})
    errors, requests = list[str](), list[str]()
    opened.on("console", lambda message: errors.append(message.text))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(f"file://{make_report(study)}")
    yield opened
    opened.close()
    assert errors == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []


def first_dot(page: Page, section: str) -> tuple[int, float, float]:
    """Return the trial of the first finished dot of a section's first picture with dots, and its
    place on the screen."""
    dots = page.locator(f"#{section} path.dots.finished").first
    dots.scroll_into_view_if_needed()
    svg = page.locator(f"#{section} svg[role=img]:has(path.dots.finished)").first
    box, view = svg.bounding_box(), svg.get_attribute("viewBox")
    path, numbers = dots.get_attribute("d"), dots.get_attribute("data-n")
    assert box is not None
    assert view is not None
    assert path is not None
    assert numbers is not None
    scale = box["width"] / float(view.split()[2])
    match = re.match(r"M([\d.]+) ([\d.]+)", path)
    assert match is not None
    x, y = box["x"] + float(match[1]) * scale, box["y"] + float(match[2]) * scale
    return int(numbers.split()[0]), x, y


@pytest.mark.parametrize("section", ["progress", "params"])
def test_a_mark_tells_of_its_trial_and_a_click_selects_it_everywhere(
    page: Page, section: str
) -> None:
    number, x, y = first_dot(page, section)
    page.mouse.move(x, y)
    told = page.locator(".tip").inner_text().splitlines()
    assert told[0] == f"trial {number}: finished"
    assert [line.split()[0] for line in told[1:]] == ["val_loss", "lr", "width", "seconds"]
    page.mouse.click(x, y)
    places = page.locator("section:has(.chosen)").evaluate_all("all => all.map((one) => one.id)")
    assert places == ["progress", "params", "trials", "curves", "timeline"]
    panel = page.locator("#trial")
    assert panel.locator("h2").inner_text() == f"Trial {number}: finished"
    for text in (f"this ({number})", "the best (", "cpu: 8 s, finished; asked 2 MiB, seen 1 MiB"):
        assert text in panel.inner_text()
    assert panel.locator("svg .curve").count() == 2, "its own curve, and that of the best"
    page.keyboard.press("Escape")
    assert panel.is_hidden()
    assert page.locator("section .chosen").count() == 0


def test_arrow_keys_walk_the_table_and_a_filter_holds_for_all_pictures(
    page: Page,
) -> None:
    table = page.locator("#trial-table tbody")
    first, second = (int(text) for text in table.locator("td:first-child").all_inner_texts()[:2])
    table.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator("#trial h2").inner_text().startswith(f"Trial {second}:")
    page.keyboard.press("ArrowUp")
    assert page.locator("#trial h2").inner_text().startswith(f"Trial {first}:")
    page.locator("input[aria-label='filter trial']").fill("<10")
    assert "10 of 60 trials" in page.locator("#count").inner_text()
    drawn = page.locator("#progress svg[role=img]").first.locator(".dots, .hollow, .beyond")
    paths = drawn.evaluate_all("all => all.map((one) => one.getAttribute('d'))")
    assert sum(path.count("M") for path in paths if path != "M0 0") == 10
    assert page.locator("path.line:not(.out)").count() == 10
    page.get_by_text("show all").click()
    assert page.locator("path.line:not(.out)").count() == 60


def test_a_drag_along_an_axis_keeps_the_trials_that_pass_there(page: Page) -> None:
    picture = page.locator("svg.parallel")
    picture.scroll_into_view_if_needed()
    box, axis = (
        picture.bounding_box(),
        picture.locator("[data-name=lr] path.axis").get_attribute("d"),
    )
    assert box is not None
    assert axis is not None
    match = re.match(r"M(\d+) (\d+)V(\d+)", axis)
    assert match is not None
    x, top, base = (float(group) * box["width"] / 1000 for group in match.groups())
    page.mouse.move(box["x"] + x, box["y"] + top)
    page.mouse.down()
    page.mouse.move(box["x"] + x, box["y"] + (top + base) / 2, steps=4)
    page.mouse.up()
    assert page.locator("#trial").is_hidden(), "the end of a drag selects nothing"
    left = [float(text) for text in page.locator("#trial-table td:nth-child(3)").all_inner_texts()]
    assert left
    assert all(lr >= 10**-2.51 for lr in left), "the upper half of the range"


def test_a_column_sorts_with_a_mark_and_an_empty_one_is_hidden(page: Page) -> None:
    head = page.locator("#trial-table th", has_text="width")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    widths = [int(text) for text in page.locator("#trial-table td:nth-child(4)").all_inner_texts()]
    assert widths == sorted(widths)
    assert page.locator("#count button", has_text="copy as CSV").count() == 1


def test_an_axis_is_moved_turned_and_left_out(page: Page) -> None:
    def places(name: str) -> list[float]:
        """Return where the lines stand on the axis of a param, from top to bottom as drawn."""
        x = page.evaluate(
            "name => { const axis = document.querySelector(`[data-name='${name}'] path.axis`);"
            "const moved = /translate\\((-?\\d+)/.exec(axis.parentNode.getAttribute('transform'));"
            "return +/M(\\d+)/.exec(axis.getAttribute('d'))[1] + +(moved?.[1] ?? 0); }",
            name,
        )
        lines = page.locator("svg.parallel path.line")
        paths = lines.evaluate_all("all => all.map((one) => one.getAttribute('d'))")
        found = [re.search(rf"[ML]{x} (\d+)", path) for path in paths]
        return [float(match[1]) for match in found if match is not None]

    before = {name: places(name) for name in ("lr", "width", "val_loss")}
    assert all(len(own) == 60 for own in before.values())
    page.get_by_role("button", name="move lr to the right").click()
    assert {name: places(name) for name in before} == before, "each line keeps its places"
    page.get_by_role("button", name="turn lr").click()
    assert [46 + 306 - y for y in places("lr")] == before["lr"]
    page.get_by_role("button", name="leave out width").click()
    lines = page.locator("svg.parallel path.line")
    assert {
        path.count("L") for path in lines.evaluate_all("a => a.map((l) => l.attributes.d.value)")
    } == {1}
    page.get_by_role("button", name="show width").click()
    assert places("width") == before["width"]


def test_any_two_params_are_drawn_together(page: Page) -> None:
    picture = page.locator("svg.pair")
    assert picture.get_attribute("aria-label") == "val_loss by lr and width"
    dots = picture.locator(".dots.value")
    numbers = " ".join(dots.evaluate_all("all => all.map((one) => one.dataset.n)")).split()
    assert sorted(map(int, numbers)) == [*range(60)]
    page.get_by_label("param to the right").select_option("width")
    assert picture.get_attribute("aria-label") == "val_loss by width and width"
    page.locator("input[aria-label='filter trial']").fill("<10")
    paths = dots.evaluate_all("all => all.map((one) => one.getAttribute('d'))")
    assert sum(path.count("M") for path in paths if path != "M0 0") == 10


def test_the_curves_have_a_logarithmic_axis_by_a_switch(page: Page) -> None:
    curve = page.locator("#curves path.curve.winner")
    is_log = page.locator("svg.curves").get_attribute("data-log") == "1"
    before = curve.get_attribute("d")
    assert before is not None
    switch = page.get_by_label("logarithmic axis")
    assert switch.is_checked() == is_log
    switch.set_checked(not is_log)
    changed = curve.get_attribute("d")
    assert changed is not None
    assert changed != before
    switch.set_checked(is_log)
    again = curve.get_attribute("d")
    assert again is not None
    pairs = zip(re.findall(r"[\d.]+", before), re.findall(r"[\d.]+", again), strict=True)
    assert all(abs(float(a) - float(b)) < 1 for a, b in pairs), "there and back"
    labels = page.locator("svg.curves text[text-anchor=end]").all_inner_texts()
    assert len(labels) >= 3
