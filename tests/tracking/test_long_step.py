"""A step that takes long is announced, tells that it goes on, and ends with its time."""

from __future__ import annotations

import itertools
import threading

import pytest

from automl.errors import StorageError
from automl.tracking.long_step import long_step


def test_a_step_says_what_it_does_how_far_it_is_and_what_it_took() -> None:
    lines: list[str] = []
    told_twice = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            told_twice.set()

    seconds = itertools.count(0.0, 12.0)
    with long_step(
        "scoring", say, detail=lambda: "1 of 2", beat_seconds=0.001, now=lambda: next(seconds)
    ):
        assert lines[0] == "scoring", "it is said before"
        assert told_twice.wait(300)
    assert lines[1:3] == ["scoring: 12 s so far, 1 of 2", "scoring: 24 s so far, 1 of 2"]
    assert lines[-1].startswith("scoring: done in ")


def test_a_short_step_has_one_line() -> None:
    lines: list[str] = []
    with long_step("scoring", lines.append, now=lambda: 0.0):
        pass
    assert lines == ["scoring"]


def test_progress_that_cannot_be_read_is_left_to_the_step() -> None:
    has_tried = threading.Event()

    def detail() -> str:
        has_tried.set()
        raise StorageError("events.log: Permission denied")

    lines: list[str] = []
    with long_step("s", lines.append, detail=detail, beat_seconds=0.001, now=lambda: 0.0):
        assert has_tried.wait(300)
    assert lines == ["s"]


def test_a_step_that_fails_ends_no_thread_later_and_is_not_called_done() -> None:
    lines: list[str] = []
    seconds = iter([0.0, 60.0])
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt), long_step("s", lines.append, now=lambda: next(seconds)):
        raise KeyboardInterrupt
    assert lines == ["s"]
    assert threading.active_count() == before
