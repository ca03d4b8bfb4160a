"""A process that carries out one trial after another, and ends where one leaves it changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from automl.execution.isolation.compared import (
    Names,
    changed_names,
    closed_descriptors,
    descriptors,
    names,
    put_back_names,
)
from automl.execution.isolation.left import Living
from automl.execution.isolation.watched import put_back, values
from automl.record.texts import fit_line

logger = logging.getLogger(__name__)


class ApartInProcess:
    """See `automl.trial.Apart`: of a worker, which is fit for another trial or ends. For its main
    thread; made when all is there that every trial may rely on."""

    def __init__(self) -> None:
        self.spent = False
        # Those of its own: what a trial leaves open may be closed whenever it is garbage.
        self._descriptors = descriptors()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        before, were, living = values(), names(), Living()
        try:
            yield
        finally:
            try:
                left = [*put_back(before), *_put_back_names(were), *self._compared(living)]
            except BaseException as error:  # noqa: BLE001  the trial may have broken anything
                left = [f"what it left cannot be looked at ({type(error).__name__}: {error})"]
            if left:
                self.spent = True
                logger.warning(
                    "a trial left its process changed, which is ended, and the next trial gets "
                    "another: %s",
                    fit_line("; ".join(left)),
                )

    def _compared(self, living: Living) -> Iterator[str]:
        left = living.end_others()
        yield from (f"thread {name} lives on" for name in left.threads)
        yield from (f"{name} was closed" for name in closed_descriptors(self._descriptors))
        yield from (f"process was left behind, and killed: {name}" for name in left.processes)


def _put_back_names(were: Names) -> Iterator[str]:
    """After the values: torch names a class by the default dtype. Our own work goes on with what
    the trial may have broken."""
    changed = changed_names(were)
    if changed:
        put_back_names(were)
    yield from (f"{name} is another" for name in changed)
