"""The page in a browser: what is hovered, selected, filtered and walked, with no error and no
request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from automl.running.features.report_page import make_report
from automl.trial import Event, FinishedOutcome, TrialStarted
from tests.report.studies import BEGUN, FAMILIES, searched, searched_families, write_study
from tests.report.test_leaderboard import SETTINGS as OF_A_TABLE
from tests.report.test_leaderboard import joined, of_a_table
from tests.report.test_page import HOSTILE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@contextmanager
def opened_report(browser: Browser, study: Path, width: int = 1400) -> Iterator[Page]:
    """Yield the page of a study; it must ask for nothing and report no error."""
    opened = browser.new_page(viewport={"width": width, "height": 900})
    errors, requests = list[str](), list[str]()
    opened.on("console", lambda message: errors.append(message.text))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(f"file://{make_report(study)}")
    yield opened
    opened.close()
    assert errors == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """The page of a study of 60 trials."""
    study = write_study(tmp_path / "any", searched(60))
    (study / "logs").mkdir()
    with opened_report(browser, study) as opened:
        yield opened


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
    assert [60 + 306 - y for y in places("lr")] == before["lr"]
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


def test_the_curves_go_over_the_time_in_which_each_trial_had_run(
    browser: Browser, tmp_path: Path
) -> None:
    study = write_study(tmp_path / "any", searched_families(30))
    with opened_report(browser, study) as page:
        ends = (
            "all => Object.fromEntries(all.map((one) => [one.dataset.n,"
            " +/L([\\d.]+) [\\d.]+$/.exec(one.getAttribute('d'))[1]]))"
        )
        curves, rows = page.locator("path.curve"), page.evaluate("study.data.rows")
        families = {str(row[0]): row[2] for row in rows}
        over_steps = curves.evaluate_all(ends)
        assert len({*over_steps.values()}) == 1, "all trials have six steps"
        page.get_by_label("over time").check()
        over_time = curves.evaluate_all(ends)
        slow = {x for n, x in over_time.items() if families[n] == "mlp"}
        fast = {x for n, x in over_time.items() if families[n] != "mlp"}
        (x_slow,), (x_fast,), left = slow, fast, 72
        assert x_slow - left == pytest.approx(3 * (x_fast - left), rel=0.01)
        text = page.locator("svg.curves").text_content() or ""
        assert "seconds in which the trial had run" in text
        page.get_by_label("over time").uncheck()
        assert curves.evaluate_all(ends) == over_steps


OVERLAPS = """svg => {
  const all = [...svg.querySelectorAll('text')].filter((one) => one.checkVisibility());
  const slanted = (one) => /rotate/.test(one.getAttribute('transform') ?? '');
  const boxes = all.map((one) => [one.textContent, slanted(one), one.getBoundingClientRect()]);
  const found = [];
  boxes.forEach(([name, isSlanted, a], i) => boxes.slice(i + 1).forEach(([other, isToo, b]) => {
    if (isSlanted && isToo) return;  // parallel lines of text, whose boxes say nothing
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3) found.push([name, other]);
  }));
  return found;
}"""


@pytest.mark.parametrize("width", [1400, 390])
def test_params_of_a_family_are_a_group_that_opens_and_no_labels_overlap(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    study = write_study(tmp_path / "any", searched_families(60, HOSTILE))
    with opened_report(browser, study, width) as page:

        def shown() -> list[str]:
            axes = page.locator("svg.parallel [data-axis]")
            code = "all => all.filter((a) => a.style.display !== 'none').map((a) => a.dataset.name)"
            return [str(name) for name in axes.evaluate_all(code)]

        assert shown() == ["family", HOSTILE, "val_loss"]
        picture = page.locator("svg.parallel")
        assert picture.evaluate(OVERLAPS) == []
        page.get_by_role("button", name="open boosting").click()
        own = [f"boosting_{name}" for name in FAMILIES["boosting"]]
        assert [name for name in shown() if name.startswith("boosting_")] == own
        for name in ("trees", "mlp", "optimizer"):
            page.get_by_role("button", name=f"open {name}").click()
        assert len(shown()) == 14
        assert picture.evaluate(OVERLAPS) == []
        page.get_by_role("button", name="turn mlp_width").click()
        assert picture.evaluate(OVERLAPS) == []
        page.get_by_role("button", name="close boosting").click()
        assert not {*own} & {*shown()}


def test_names_that_are_moved_beside_one_another_stand_on_two_lines(
    browser: Browser, tmp_path: Path
) -> None:
    names = ("a", "number_of_units_1", "b", "number_of_units_2", "c")
    events: list[Event] = []
    for number in range(9):
        params = dict.fromkeys(names, number + 0.5)
        events += [
            TrialStarted(number, BEGUN, params, "cpu"),
            FinishedOutcome(number, BEGUN + 1, 1.0 + number),
        ]
    with opened_report(browser, write_study(tmp_path / "any", events)) as page:
        for _ in range(2):
            page.get_by_role("button", name="move number_of_units_1 to the right").click()
            assert page.locator("svg.parallel").evaluate(OVERLAPS) == []


def test_a_click_on_the_ensemble_shows_what_is_behind_it(browser: Browser, tmp_path: Path) -> None:
    study = write_study(tmp_path / "any", of_a_table(joined()), OF_A_TABLE)
    with opened_report(browser, study) as page:
        page.locator("#trial-table tbody tr", has_text="ensemble").click()
        panel = page.locator("#trial")
        assert panel.locator("h2").inner_text() == "ensemble"
        assert (
            panel.locator("svg[role=img]").count()
            == page.locator("#why svg[role=img]").count()
            == 3
        )
        assert "0.35\u00a0(0.3\u00a0to\u00a00.4)" in panel.inner_text()
        panel.get_by_role("button", name="trial 1").click()
        assert panel.locator("h2").inner_text() == "Trial 1: finished"
        page.locator("input[aria-label='filter val_loss']").fill("<0.45")
        first = page.locator("#trial-table td:first-child").all_inner_texts()
        assert first == ["ensemble", "1"]


def test_a_value_with_its_error_stays_on_one_line_and_sorts_as_a_number(
    browser: Browser, tmp_path: Path
) -> None:
    events: list[Event] = []
    for number, values in enumerate([(0.4, 0.6), (9.0, 11.0), (1.0, 3.0)]):
        events += [
            TrialStarted(number, BEGUN + number, {"lr": 0.1 * number, "x": "y " * 40}, "cpu"),
            FinishedOutcome(number, BEGUN + number + 1, sum(values) / 2, values),
        ]
    with opened_report(browser, write_study(tmp_path / "any", events), 390) as page:
        cell = page.locator("#trial-table tbody td:nth-child(2)")
        assert cell.all_inner_texts() == [
            "0.5\u00a0±\u00a00.1",
            "2\u00a0±\u00a01",
            "10\u00a0±\u00a01",
        ]
        page.locator("#trial-table th", has_text="val_loss").locator("button").click(click_count=2)
        assert [text.split("\u00a0")[0] for text in cell.all_inner_texts()] == ["10", "2", "0.5"]
        for state in page.locator("#trial-table td.state").all():
            is_whole = "one => one.scrollWidth <= one.clientWidth && one.innerText === 'finished'"
            assert state.evaluate(is_whole)
        page.evaluate(
            "document.execCommand = () => { window.copied = document.activeElement.value; }"
        )
        page.get_by_role("button", name="copy as CSV").click()
        head, first, *_ = page.evaluate("window.copied").splitlines()
        assert head == "trial,val_loss,val_loss (uncertainty),lr,x,state,seconds"
        assert first.startswith("1,10,± 1,0.1,y y")


def test_a_page_that_loads_itself_again_keeps_what_is_selected(
    browser: Browser, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    study = write_study(tmp_path / "any", searched(30))
    opened = browser.new_page(viewport={"width": 1400, "height": 900})
    opened.goto(f"file://{make_report(study, is_running=True, refresh_seconds=2.0)}")
    opened.locator("input[aria-label='filter trial']").fill("<10")
    opened.locator("#trial-table th button", has_text="lr").click()
    opened.locator("#trial-table tbody tr").first.click()
    number = opened.locator("#trial-table tbody td").first.inner_text()
    with opened.expect_navigation():
        pass
    # Each of these waits, since the page may be loading itself once more.
    expect(opened.locator("#trial h2")).to_have_text(re.compile(f"Trial {number}:"))
    expect(opened.locator("input[aria-label='filter trial']")).to_have_value("<10")
    expect(opened.locator("#trial-table th[aria-sort]")).to_have_text(["lr"])
    expect(opened.locator(".made")).to_contain_text("The sweep runs; as of")
    make_report(study)
    opened.locator(".made", has_text="Made ").wait_for()
    opened.close()


def test_a_page_that_nobody_writes_any_more_says_so_and_stays(
    browser: Browser, tmp_path: Path
) -> None:
    study = write_study(tmp_path / "any", searched(30))
    page = make_report(study, is_running=True, refresh_seconds=0.2)
    text = re.sub(
        r'data-made="(\d+)"',
        lambda made: f'data-made="{int(made[1]) - 120}"',
        page.read_text("utf-8"),
    )
    page.write_text(text, "utf-8")
    opened = browser.new_page()
    opened.goto(f"file://{page}")
    opened.evaluate("window.isOld = true")
    told = opened.locator(".made", has_text="No news of the sweep since")
    told.wait_for()
    assert "It may have been killed" in told.inner_text()
    assert opened.evaluate("window.isOld")
    opened.close()
