"""Scores are written one after the other while others are computed, and no error is lost."""

from __future__ import annotations

import pytest

from automl.commands.predict import write_behind


def fail(_: int) -> None:
    raise ValueError("no room")


def test_all_are_written_in_order() -> None:
    written: list[int] = []
    assert list(write_behind(range(50), written.append)) == list(range(50))
    assert written == list(range(50))


@pytest.mark.parametrize("n_items", [1, 2])
def test_an_error_of_the_writing_is_raised(n_items: int) -> None:
    with pytest.raises(ValueError, match="no room"):
        list(write_behind(range(n_items), fail))


def test_nothing_is_written_after_an_error() -> None:
    written: list[int] = []

    def write(number: int) -> None:
        if number == 0:
            fail(number)
        written.append(number)

    with pytest.raises(ValueError, match="no room"):
        list(write_behind(range(3), write))
    assert written == []
