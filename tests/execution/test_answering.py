"""A process that answers one question after another."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from typing import cast

import pytest

from automl.errors import AutoMLError, ConfigError
from automl.execution.child_calls import AnsweringProcess, NoAnswerError
from automl.trial import ProcessEntry


def open_adding(start: int) -> Callable[[object], object]:
    """Adds up what it is asked, and says its own number for `who`."""
    if start < 0:
        raise ConfigError("start=-1: from 0 up.")
    total = [start]

    def answer(question: object) -> object:
        if question == "who":
            return os.getpid(), os.nice(0)
        if not isinstance(question, int):
            raise ConfigError(f"{question}: no number")
        total[0] += question
        return total[0] if question else 1 // question

    return answer


@pytest.fixture
def adding() -> Iterator[AnsweringProcess]:
    process = AnsweringProcess(ProcessEntry(f"{__name__}:open_adding", 1))
    yield process
    process.end()


def who(process: AnsweringProcess) -> tuple[int, int]:
    """Its number, and how far it stands back."""
    pid, niceness = cast("tuple[int, int]", process.answer("who"))
    return pid, niceness


def polled(process: AnsweringProcess) -> object:
    wait([process._pipe])
    return process.poll()


def test_it_keeps_what_it_learned_and_is_not_waited_for(adding: AnsweringProcess) -> None:
    assert adding.poll() is None
    adding.ask(2)
    assert adding.busy
    assert polled(adding) == 3
    assert not adding.busy
    assert adding.poll() is None
    assert adding.answer(4) == 7


def test_an_earlier_question_is_answered_first(adding: AnsweringProcess) -> None:
    adding.ask(2)
    assert adding.answer(4) == 7
    adding.ask("words")
    assert adding.answer(1) == 8, "nobody wants its error any more"


def test_what_it_raises_is_raised_and_it_goes_on(adding: AnsweringProcess) -> None:
    with pytest.raises(ConfigError, match="words: no number"):
        adding.answer("words")
    with pytest.raises(AutoMLError, match="ZeroDivisionError"):
        adding.answer(0)
    assert adding.answer(2) == 3


def test_one_that_cannot_begin_says_so_at_each_question() -> None:
    process = AnsweringProcess(ProcessEntry(f"{__name__}:open_adding", -1))
    for _ in range(2):
        with pytest.raises(ConfigError, match="start=-1"):
            process.answer(1)
    process.end()


def test_one_that_was_killed_has_no_answer(adding: AnsweringProcess) -> None:
    pid, niceness = who(adding)
    assert niceness == min(os.nice(0) + 10, 19)
    adding.ask(2)
    os.kill(pid, signal.SIGKILL)
    adding._child.join()
    with pytest.raises(NoAnswerError):
        adding.answer(3)


def test_nothing_is_left_of_one_that_works() -> None:
    process = AnsweringProcess(ProcessEntry(f"{__name__}:open_adding", 1))
    pid, _ = who(process)
    process.ask(2)
    process.end()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
