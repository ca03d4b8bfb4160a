"""A program that is refused: its one message, and that nothing of it is left."""

from __future__ import annotations

import uuid
from contextlib import suppress

import psutil

from tests.end_to_end.program import Program, wait_until

_MARK = "AUTOML_TESTS_MARK"
"""A variable that all processes of a program inherit, whatever session they are in."""


def refused(program: Program, *words: str) -> str:
    """What `python -m automl WORDS`, which is refused, says."""
    program.environment[_MARK] = mark = uuid.uuid4().hex
    done = program.start(*words).wait()
    assert done.code == 2, (done.stdout, done.stderr)
    said = done.stderr.splitlines()
    assert sum(line.startswith("automl: ") for line in said) == 1, done.stderr
    assert "Traceback" not in done.stderr
    wait_until(lambda: not _marked(mark), "the end of what it had started")
    return done.stderr


def _marked(mark: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(_MARK) == mark:
                found.append(" ".join(process.cmdline()))
    return found
