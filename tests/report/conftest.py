"""A real browser for the pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.browser import NAMES

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    pytest.importorskip("playwright", reason="no playwright: pip install it")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser: install one of {', '.join(NAMES)}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()
