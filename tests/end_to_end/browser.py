"""A real browser, headless, with a fresh profile at each look."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from html import unescape
from typing import Protocol

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # needs privileges that a container has not; the page is our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=2600,1600",  # what is not on the screen is not in the page
    "--virtual-time-budget=20000",
)
_ROW = re.compile(r'role="row"[^>]*?row-index="(\d+)"')
_CELL = re.compile(r'role="gridcell" col-id="([^"]*)"[^>]*>(.*?)(?=role="gridcell"|role="row"|$)')
_HEADER = re.compile(r'role="columnheader"[^>]*? col-id="([^"]*)"')
_TAG = re.compile(r"<[^>]*>?")


@dataclass(frozen=True)
class Table:
    """What a page of MLflow's shows: its columns, and its rows from top to bottom by column."""

    columns: set[str]
    rows: list[dict[str, str]]


class OpenPage(Protocol):
    """The HTML of the page that a browser shows at an address, once its scripts have run."""

    def __call__(self, address: str) -> str: ...


class Look(Protocol):
    """The table that a browser shows at an address."""

    def __call__(self, address: str) -> Table: ...


@pytest.fixture(scope="session")
def open_page() -> OpenPage:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser: install one of {', '.join(NAMES)}")

    def open_page(address: str) -> str:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            words = (*FLAGS, f"--user-data-dir={profile}", "--dump-dom", address)
            done = subprocess.run(
                [program, *words], capture_output=True, text=True, check=True, timeout=300
            )
        return done.stdout

    return open_page


@pytest.fixture(scope="session")
def look(open_page: OpenPage) -> Look:
    return lambda address: read_table(open_page(address))


def read_table(page: str) -> Table:
    """From the page's HTML; a row is in several pieces there, in no order."""
    rows: dict[int, dict[str, str]] = {}
    begins = [*_ROW.finditer(page)]
    ends = [*(match.start() for match in begins[1:]), len(page)]
    for begin, end in zip(begins, ends, strict=True):
        row = rows.setdefault(int(begin[1]), {})
        for column, text in _CELL.findall(page[begin.end() : end]):
            row[unescape(column)] = unescape(_TAG.sub("", text)).strip()
    columns = {unescape(column) for column in _HEADER.findall(page)}
    return Table(columns, [rows[index] for index in sorted(rows)])
