"""The page that is made again and again while a sweep runs."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from automl.record.study_files import StudyFiles
from automl.running.features.live_page import LivePage, interval_seconds
from tests.report.studies import searched, write_study


@pytest.mark.parametrize(("cost", "pause"), [(0.0, 10.0), (0.15, 10.0), (0.75, 50.0), (9.0, 600.0)])
def test_pages_take_at_most_a_fiftieth_of_the_time(cost: float, pause: float) -> None:
    assert interval_seconds(cost) == pytest.approx(pause)


def head(page: Path) -> str:
    match = re.search(r'<p class="made".*?</p>', page.read_text("utf-8"))
    assert match is not None
    return match[0]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path / "any", searched(12))


@pytest.fixture
def process(study: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process of the page, which has made its first one."""
    words = [sys.executable, "-m", "automl.running.page_process", str(study)]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        page = StudyFiles(study).report
        while process.poll() is None and not page.exists():
            time.sleep(0.05)
        yield process


def test_the_page_of_a_killed_sweep_does_not_say_that_it_runs(
    study: Path, process: subprocess.Popen[bytes]
) -> None:
    page = StudyFiles(study).report
    assert "The sweep runs; as of" in head(page)
    assert 'data-refresh="10.0"' in head(page)
    assert process.stdin is not None
    process.stdin.close()  # as the kernel does for a sweep that is killed
    assert process.wait() == 0
    assert head(page).startswith('<p class="made">Made ')


def test_a_process_that_is_killed_leaves_a_whole_page(
    study: Path, process: subprocess.Popen[bytes]
) -> None:
    process.kill()
    process.wait()
    assert StudyFiles(study).report.read_text("utf-8").endswith("</html>")


def test_a_short_sweep_starts_no_process(study: Path) -> None:
    live = LivePage(study)
    live.begin()
    started = time.monotonic()
    live.stop()
    live.close()
    assert time.monotonic() - started < 5
    assert not StudyFiles(study).report.exists()


def test_a_process_that_could_make_no_page_is_told_of_at_the_end(
    study: Path, caplog: pytest.LogCaptureFixture
) -> None:
    StudyFiles(study).report.mkdir()  # no page can take its place
    live = LivePage(study, first_seconds=0.0)
    live.begin()
    while live.failure() is None:
        time.sleep(0.05)
    live.stop()
    live.close()
    assert "was not made again while the sweep ran" in caplog.text
