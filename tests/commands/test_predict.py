"""What `predict` does behind its own back: one thing at a time, in order, and no error is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from automl.commands.predict import BackgroundThread


def fail() -> None:
    raise ValueError("no room")


def test_what_is_done_behind_is_done_in_order_and_to_the_end() -> None:
    done: list[int] = []
    with BackgroundThread("writing") as behind:
        for number in range(50):
            behind.do(partial(done.append, number))
    assert done == list(range(50))


def do_behind(*works: Callable[[], None]) -> None:
    with BackgroundThread("writing") as behind:
        for work in works:
            behind.do(work)


def test_what_the_last_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="no room"):
        do_behind(fail)


def test_what_one_raises_the_next_call_raises() -> None:
    done: list[int] = []
    with pytest.raises(ValueError, match="no room"):
        do_behind(fail, partial(done.append, 1))
    assert done == []
