"""A process that answers one question after another, beside trials and behind them."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from automl.errors import AutoMLError
from automl.execution.executor import resolve
from automl.execution.process import CONTEXT, start_child
from automl.record.stopping import leave_to_sweep
from automl.trial import Entry

_NICENESS = 10
"""Trials go first."""


class NoAnswerError(Exception):
    """Raised when the process has ended, so that there is no answer, now or later."""


class AnsweringProcess:
    """Of one thread, which need not wait. What the entry's function returns for its config answers,
    and keeps what it likes from one question to the next."""

    def __init__(self, entry: Entry) -> None:
        """Raises AutoMLError where none can be started."""
        self._pipe, theirs = CONTEXT.Pipe()
        self._child = start_child("automl-answers", _serve, entry, theirs)
        theirs.close()
        self.busy = False
        """It works at a question, or its answer has not been taken."""

    def ask(self, question: object) -> None:
        """Raises NoAnswerError."""
        assert not self.busy, "one question after another"
        try:
            self._pipe.send(question)
        except OSError as error:
            raise NoAnswerError from error
        self.busy = True

    def poll(self) -> object | None:
        """The answer; None: it is not there yet. Raises NoAnswerError, or the answer's own
        AutoMLError."""
        return self._taken() if self.busy and self._pipe.poll() else None

    def answer(self, question: object) -> object:
        """Wait for it, and for that to an earlier question, which nobody wants any more. Raises as
        `poll` does."""
        if self.busy:
            with suppress(AutoMLError):
                self._taken()
        self.ask(question)
        return self._taken()

    def end(self) -> None:
        """At once, whatever it works at."""
        self._child.kill()
        self._child.join()
        self._pipe.close()

    def _taken(self) -> object:
        try:
            answer: object = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise NoAnswerError from error
        self.busy = False
        if isinstance(answer, AutoMLError):
            raise answer
        return answer


def _serve(entry: Entry, pipe: Connection) -> None:
    """Until whoever asks is gone."""
    leave_to_sweep()
    os.nice(_NICENESS)
    answers: Callable[[object], object] | None = None
    with suppress(EOFError, BrokenPipeError):
        while True:
            question = pipe.recv()
            try:
                answers = answers or resolve(entry.target)(entry.config)
                answer = answers(question)
            except AutoMLError as error:
                answer = error
            except Exception as error:  # noqa: BLE001 - sent to the parent, which raises it
                answer = AutoMLError("".join(traceback.format_exception_only(error)).strip())
            pipe.send(answer)
