"""Several writers, each of which takes a whole piece of work at a time: a trial's run.

Threads, as a run's four requests are a few milliseconds of Python and the rest is waiting for the
server (`experiments/018-mlflow-server`). What belongs to one piece is touched by its writer alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from automl.tracking.answers import NotTakenError

MAX_WRITERS = 4
"""Over HTTP. A database has one: MLflow's SQL store starves its own pool of connections."""


def write_all(numbers: Iterable[int], write: Callable[[int], None], n_writers: int) -> None:
    """Call `write` for each number, in their order, by up to `n_writers` at a time.

    One that is not taken (NotTakenError) hinders no other, and is raised at the end; after a
    second one, or any other error, no more are begun: it is not that one trial. Returns or raises
    when every call that has begun has ended.
    """
    work = _Work(numbers, write)
    n_threads = min(n_writers, len(work.left))
    if n_threads <= 1:
        work.take_all()
    else:
        with ThreadPoolExecutor(n_threads, "mlflow-writer") as pool:
            for _ in range(n_threads):
                pool.submit(work.take_all)
    work.raise_worst()


class _Work:
    def __init__(self, numbers: Iterable[int], write: Callable[[int], None]) -> None:
        self.left = deque(numbers)
        self._write = write
        self._lock = threading.Lock()  # guards all below, and what is taken
        self._not_taken: list[NotTakenError] = []
        self._others: list[BaseException] = []

    def take_all(self) -> None:
        """Until nothing is left, or it is of no use to begin another."""
        while (number := self._next()) is not None:
            try:
                self._write(number)
            except NotTakenError as error:
                with self._lock:
                    self._not_taken.append(error)
            except BaseException as error:  # noqa: BLE001  # raised where all have ended
                with self._lock:
                    self._others.append(error)

    def _next(self) -> int | None:
        with self._lock:
            if self._others or len(self._not_taken) > 1 or not self.left:
                return None
            return self.left.popleft()

    def raise_worst(self) -> None:
        for error in (*self._others, *self._not_taken):
            raise error
