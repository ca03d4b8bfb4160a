"""The pages of nine kinds of studies in a browser: wide and on a phone, light and dark.

Each page asks for nothing and reports no error, no text lies over another, every picture answers to
the pointer, and axe-core finds no violation.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from automl.running.features.report_page import make_report
from tests.report.study_kinds import STUDY_KINDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SLOW = {"10000"}
KINDS = [pytest.param(kind, marks=pytest.mark.slow if kind in SLOW else ()) for kind in STUDY_KINDS]
LOOKS = {"wide": (1400, "light"), "dark": (1400, "dark"), "phone": (390, "light")}
OVERLAPS = """() => {
  const found = [], shown = (one) => one.checkVisibility() && one.textContent.trim();
  for (const svg of document.querySelectorAll('svg[role=img]')) {
    const boxes = [...svg.querySelectorAll('text')].filter(shown)
      .map((one) => [one.textContent, one.getBoundingClientRect()]);
    boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const tall = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (wide > 1 && tall > 3) found.push(`${svg.getAttribute('aria-label')}: ${a} | ${b}`);
    }));
  }
  return found;
}"""
"""Texts of one picture whose boxes lie over each other."""
SMALL = """() => [...document.querySelectorAll('main svg[role=img] text')]
  .filter((one) => one.checkVisibility() && one.getBoundingClientRect().width)
  .map((one) => {
    const matrix = one.getScreenCTM(), scale = Math.hypot(matrix.a, matrix.b);
    return [one.textContent, scale * parseFloat(getComputedStyle(one).fontSize)];
  })
  .filter(([, size]) => size < 9)"""
"""Texts of pictures with letters of less than 9 pixels."""
MARKS = """(svg) => {
  svg.scrollIntoView({ block: 'center' });
  const mark = svg.querySelector('[data-n]'), matrix = svg.getScreenCTM();
  if (mark.tagName === 'rect') {
    const box = mark.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  }
  const path = mark.getAttribute('d'), isLine = mark.matches('.line, .curve');
  const piece = isLine ? /M[^ML]*L[^ML]*/.exec(path)[0] : path;
  const places = piece.matchAll(/[ML]([\\d.-]+) ([\\d.-]+)/g);
  const line = [...places].map(([, x, y]) => [+x, +y]);
  const shift = isLine ? 0 : mark.matches('.failed') ? 3 : mark.matches('.hollow') ? 2 : 0;
  const [x, y] = isLine ? [0, 1].map((i) => (line[0][i] + line[1][i]) / 2) : line[0];
  return [matrix.a * (x + shift) + matrix.e, matrix.d * (y + shift) + matrix.f];
}"""
"""The place of a picture's first mark on the screen."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages that were made so far, by kind."""
    return {}


@pytest.fixture
def address(kind: str, pages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    if kind not in pages:
        pages[kind] = make_report(STUDY_KINDS[kind](tmp_path_factory.mktemp("study") / kind))
    return pages[kind].as_uri()


def opened(browser: Browser, address: str, look: str) -> Iterator[Page]:
    """Yield the page; it must ask for nothing and report no error."""
    width, scheme = LOOKS[look]
    view: Any = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    page = browser.new_page(**view)
    errors, requests = list[str](), list[str]()
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    yield page
    page.close()
    assert errors == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_legible_and_accessible(browser: Browser, address: str, look: str) -> None:
    for page in opened(browser, address, look):
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(SMALL) == []
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
        assert violations(page) == []


def violations(page: Page) -> list[str]:
    """Return what axe-core finds on the page as it is now."""
    pytest.importorskip("axe_playwright_python", reason="no axe: pip install axe-playwright-python")
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    found: Any = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{rule['id']} ({rule['help']}): {node['html'][:160]} {node['failureSummary'][-120:]}"
        for rule in found["violations"]
        for node in rule["nodes"][:3]
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_picture_tells_its_marks_and_a_click_selects(browser: Browser, address: str) -> None:
    for page in opened(browser, address, "wide"):
        pictures = page.locator("main svg[role=img]:has([data-n])")
        tip = page.locator(".tip")
        for picture in pictures.all():
            x, y = picture.evaluate(MARKS)
            page.mouse.move(x, y)
            label = picture.get_attribute("aria-label")
            assert tip.is_visible(), f"nothing is told in: {label}"
            assert tip.inner_text().startswith("trial "), label
            page.mouse.click(x, y)
            assert page.locator("#trial").is_visible(), label
            page.keyboard.press("Escape")
            assert page.locator("#trial").is_hidden(), label
        assert pictures.count() or "No result yet" in page.locator("main").inner_text()


@pytest.mark.parametrize("kind", KINDS)
def test_the_keyboard_walks_the_trials(browser: Browser, address: str) -> None:
    for page in opened(browser, address, "phone"):
        body = page.locator("#trial-table tbody")
        if body.count():
            body.focus()
            page.keyboard.press("ArrowDown")
            assert page.locator("#trial-table tr[aria-selected=true]").count() == 1
            assert page.locator("#trial").is_visible()
            assert violations(page) == []
            page.keyboard.press("Escape")
            assert page.locator("#trial").is_hidden()
