"""Tells what a sweep would do with the devices: memory asked for, trials at once, time.

It asks the same code that a sweep asks: `RequestMaker` for the memory, `place_trial` for the
places. Nothing is reserved, and no trial is started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from automl.admission.accounting.ledger import Ledger
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import AdmissionRefusal
from automl.admission.requests import RequestMaker
from automl.config import UNLIMITED_N_TRIALS
from automl.devices.device_reading import DeviceReading
from automl.record.study_record import StudyRecord
from automl.running.prepare.prepared_config import PreparedStudy
from automl.trial import DeviceId, Params, RequestSource


@dataclass(frozen=True)
class SizeOutlook:
    """How many trials of one size would run at once."""

    name: str
    params: Params
    memory_bytes: int | None
    """The memory that such a trial asks for; None: it is not known before one has run."""
    source: RequestSource
    n_by_device: dict[DeviceId, int]
    """Number of trials of this size on each device, if all trials were of it."""
    limit: str
    """Why no further trial would start, in words."""

    @property
    def n_at_once(self) -> int:
        return sum(self.n_by_device.values())


def size_outlook(
    prepared: PreparedStudy,
    requests: RequestMaker,
    reading: DeviceReading,
    name: str,
    params: Params,
) -> SizeOutlook:
    """Place trials of one size on the devices as they are now, until admission refuses one."""
    request = requests.request_for(params)
    ledger, n_by_device = Ledger(), Counter[DeviceId]()
    limits = prepared.limits.with_places_of(reading.devices)
    n_most = limits.at_once([device.address for device in reading.devices])
    limit = f"{n_most} at once is the most that cores and settings allow"
    for key in range(n_most):
        now = reading.begun_seconds
        found = place_trial(request, reading, ledger.snapshot(), limits, now_seconds=now)
        if isinstance(found, AdmissionRefusal):
            limit = found.reason
            break
        ledger.reserve(key, found)
        n_by_device[found.devices[0]] += 1
    return SizeOutlook(name, params, request.memory_bytes, request.source, dict(n_by_device), limit)


@dataclass(frozen=True)
class TimeOutlook:
    """How long the trials that are left would take, none pruned beyond those that were timed."""

    trial_seconds: float
    """Mean time of a trial on its device."""
    n_left: int
    """Number of trials that are left; with a limit the number of those that end within it."""
    n_at_once: int
    known_by: str
    """What the time of a trial was taken from, in words."""
    seconds: float
    """Time from the start of the first trial to the end of the last."""
    start_seconds: float = 0.0
    """The part of it until worker processes are ready, as far as it was measured."""
    limit_seconds: float | None = None
    """The time limit of the sweep; None: a number of trials ends it."""


def time_from_record(
    prepared: PreparedStudy, record: StudyRecord | None, n_at_once: int
) -> TimeOutlook | None:
    """Return the time by the trials of the study that have ended; None: none has, or no number of
    trials ends the study."""
    trials = [] if record is None else record.trials.values()
    seconds = [trial.seconds for trial in trials if trial.state.is_final]
    known_by = f"the mean of the {len(seconds)} that have ended"
    return time_from_seconds(prepared, seconds, len(seconds), n_at_once, known_by)


def time_from_seconds(
    prepared: PreparedStudy,
    seconds: Sequence[float],
    n_ended: int,
    n_at_once: int,
    known_by: str,
) -> TimeOutlook | None:
    """Return the time if each trial takes the mean of `seconds`; None: there are none, or no number
    of trials ends the study."""
    n_trials = prepared.config.study.decided_n_trials
    if not seconds or n_trials >= UNLIMITED_N_TRIALS:
        return None
    mean, n_left = sum(seconds) / len(seconds), max(0, n_trials - n_ended)
    rounds = -(-n_left // max(1, n_at_once))
    return TimeOutlook(mean, n_left, n_at_once, known_by, rounds * mean)
