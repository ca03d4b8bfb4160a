"""Times the CPU for the built-in network before any trial goes there, in a thread beside the loop.

A few steps of a small, a middle and a large trial of the space, as `gain` times them: in processes
of their own, with the threads that a trial has. GPUs are timed by the trials that run there: what a
probe takes of their memory nobody would have admitted, and where both could take a trial a GPU
takes the first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from automl.config import Choose, ExecutionKind
from automl.errors import AutoMLError
from automl.record.texts import fit_line
from automl.running.chooser import Chooser
from automl.running.gain.measure import HOST_DEVICE, Task, measure
from automl.running.gain.sizes import draws, sizes
from automl.running.messages import Probed
from automl.running.parts import Parts
from automl.running.prepared import Prepared
from automl.training.gain.words import Way
from automl.trial import DeviceKind, Paced, Params

TOTAL_SECONDS = 30.0
"""For all of them, at the most: on a busy machine torch alone takes ten to load."""
STEP_SECONDS = 1.0
"""For the steps of each."""

logger = logging.getLogger(__name__)


def open_chooser(parts: Parts) -> Chooser | None:
    """What knows how long trials take on each kind of device, with all that earlier sweeps of the
    study found; None: there is one kind."""
    kinds = frozenset(address.kind for address in parts.reader.addresses)
    if len(kinds) < 2:
        return None

    def note(kind: DeviceKind, flops: float, seconds: float, execution: int | None) -> None:
        parts.log.append(Paced(time.time(), kind, flops, seconds, execution))

    anyone = parts.config.devices.choose is Choose.all
    work = parts.prepared.work
    likely = [found for params in draws(parts.prepared.space) if (found := work(params))]
    chooser = Chooser(work, kinds, anyone, likely, note=note)
    chooser.learn(parts.log.record)
    return chooser


def open_prober(
    prepared: Prepared, chooser: Chooser | None, post: Callable[[Probed], None]
) -> Prober | None:
    """None: there is nothing to choose, it was timed before, nobody knows what such trials have to
    compute, or they train in threads of this process."""
    if chooser is None or chooser.is_probed:
        return None
    middle = prepared.space.fill(lambda param: param.domain.at(0.5))
    in_threads = prepared.config.execution.kind is ExecutionKind.inline
    if in_threads or prepared.work(middle) is None:
        return None
    chooser.is_probing = True
    return Prober(prepared, post)


class Prober:
    """Posts what it found once. Leaving the `with` ends it."""

    def __init__(self, prepared: Prepared, post: Callable[[Probed], None]) -> None:
        self._prepared, self._post = prepared, post
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def _run(self) -> None:
        try:
            found = probe(self._prepared, self._ending.is_set)
        except AutoMLError as error:
            logger.warning("the CPU could not be timed: %s", fit_line(str(error)))
            found = Probed()
        except BaseException:
            self._post(Probed())  # trials wait for it
            raise
        self._post(found)

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ending.set()
        self._thread.join()


def probe(
    prepared: Prepared,
    is_over: Callable[[], bool] = lambda: False,
    total_seconds: float = TOTAL_SECONDS,
) -> Probed:
    """Seconds of a step of such trials on the CPU, as far as they could be timed."""

    def flops(params: Params) -> int | None:
        work = prepared.work(params)
        return None if work is None else int(work.step_flops)

    way = Way(prepared.setup.n_threads, prepared.plan.training.precision)
    tasks = [Task(HOST_DEVICE, size, (way,)) for size in sizes(prepared.space, flops)]
    rows = measure(
        prepared.setup,
        tasks,
        logger.debug,
        total_seconds=total_seconds,
        way_seconds=STEP_SECONDS,
        is_over=is_over,
    )
    timed = [(row.size.params, row.timing.step_seconds) for row in rows]
    found = tuple((params, seconds) for params, seconds in timed if seconds is not None)
    if not found and not is_over():
        logger.warning("the CPU could not be timed: %s", rows[0].timing.trouble)
    return Probed(found)
