"""Times the CPU for the built-in network before any trial goes there, in a thread beside the loop.

The probe times a few steps of a small, a middle and a large trial of the space, as `gain` does: in
their own processes, with the threads that a trial has. GPUs are not probed, but timed by the trials
that run there: the memory of a probe would not be reserved. Where both could take a trial, a GPU
takes the first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from automl.config import ChooseDevice, ExecutionKind
from automl.errors import AutoMLError
from automl.measure.gain.gain_messages import TrainingWay
from automl.record.event_log import EventLog
from automl.record.texts import fit_line
from automl.running.loop.messages import CpuProbed
from automl.running.loop.trial_paces import DevicePaceModel
from automl.running.prepare.prepared_config import PreparedStudy
from automl.running.trials.step_timing import (
    HOST_DEVICE,
    TimingTask,
    distinct_sizes,
    draw_params_evenly,
    time_tasks,
)
from automl.trial import DeviceKind, PaceMeasured, Params

TOTAL_SECONDS = 30.0
"""Most seconds for all probes together. On a busy machine torch alone takes ten to load."""
STEP_SECONDS = 1.0
"""Seconds for timing the steps of each probe."""

logger = logging.getLogger(__name__)


def open_pace_model(
    prepared: PreparedStudy, kinds: frozenset[DeviceKind], log: EventLog
) -> DevicePaceModel | None:
    """Return the pace model, with all that earlier sweeps of the study found. None if there is one
    kind of device."""
    if len(kinds) < 2:
        return None

    def note(kind: DeviceKind, flops: float, seconds: float, execution: int | None) -> None:
        log.append(PaceMeasured(time.time(), kind, flops, seconds, execution))

    unknown_work_to_cpu = prepared.config.devices.choose is ChooseDevice.all
    work = prepared.work
    likely = [found for params in draw_params_evenly(prepared.space) if (found := work(params))]
    chooser = DevicePaceModel(work, kinds, unknown_work_to_cpu, likely, note=note)
    chooser.learn(log.record)
    return chooser


def open_cpu_prober(
    prepared: PreparedStudy, chooser: DevicePaceModel | None, post: Callable[[CpuProbed], None]
) -> CpuProber | None:
    """Return the prober, or None if there is nothing to time.

    There is nothing to time without a choice of devices, if the CPU was timed before, if the work
    of trials is unknown, or if they train in threads of this process.
    """
    if chooser is None or chooser.is_probed:
        return None
    middle = prepared.space.fill(lambda param: param.domain.at(0.5))
    in_threads = prepared.config.execution.kind is ExecutionKind.inline
    if in_threads or prepared.work(middle) is None:
        return None
    chooser.is_probing = True
    return CpuProber(prepared, post)


class CpuProber:
    """Times the CPU in a thread and posts the result once. Leaving the `with` ends it."""

    def __init__(self, prepared: PreparedStudy, post: Callable[[CpuProbed], None]) -> None:
        self._prepared, self._post = prepared, post
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def _run(self) -> None:
        try:
            found = probe_cpu(self._prepared, self._ending.is_set)
        except AutoMLError as error:
            logger.warning("the CPU could not be timed: %s", fit_line(str(error)))
            found = CpuProbed()
        except BaseException:
            self._post(CpuProbed())  # trials wait for the message
            raise
        self._post(found)

    def __enter__(self) -> CpuProber:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ending.set()
        self._thread.join()


def probe_cpu(
    prepared: PreparedStudy,
    is_over: Callable[[], bool] = lambda: False,
    total_seconds: float = TOTAL_SECONDS,
) -> CpuProbed:
    """Return the seconds of a step of the space's trials on the CPU, as far as they could be
    timed."""

    def flops(params: Params) -> int | None:
        work = prepared.work(params)
        return None if work is None else int(work.step_flops)

    way = TrainingWay(prepared.setup.n_threads, prepared.plan.training.precision)
    tasks = [
        TimingTask(HOST_DEVICE, size, (way,)) for size in distinct_sizes(prepared.space, flops)
    ]
    rows = time_tasks(
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
    return CpuProbed(found)
