"""Makes all requests: the memory that a trial asks for, and how it is known.

| known by | asks for |
|---|---|
| what the user declared | the declared memory |
| a trial with the same params that was measured | 1.05 times the most it held |
| its structure, and trials that were measured | what 99 % of its like hold at most |
| its structure alone | the arithmetic; of a survey 1.5 times and 64 MiB |
| what other trials held | a GPU to itself, or beside others 1.2 times what 9 of 10 held |
| nothing | unknown: a GPU to itself |

`footprint.py` learns from structure. A request is made anew at each decision, for the head of the
queue, for a pack, and for trials further back: what was measured meanwhile counts. What a running
trial was promised stays. For the main thread; no lock, no clock.

`SurveyMemory` finds out which params no new survey is needed for. Two surveys that agree to the
byte, and differ in some params, show that none of these matters (a learning rate, a seed), until
surveys that differ in these alone disagree. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from automl.admission.footprint import MemoryStructure
from automl.admission.measured_memory import MeasuredTrial, TrialMeasurements, params_key
from automl.trial import DeviceKind, MemoryPeakMeasured, Params, RequestSource, ResourceRequest

SEEN_PEAK_MARGIN = 1.05
"""Margin from the measured peak of a trial to the request of another with the same params."""
SURVEY_MARGIN = 1.5
"""Margin from a survey to a peak, before any trial is measured."""
SURVEY_BASE_BYTES = 64 * 2**20
"""Bytes that a surveyed request has besides, for workspaces of libraries, which no survey sees:
64 MiB on an H200, and more for convolutions (experiments/006-packing/gpu.md)."""
JOIN_MARGIN = 1.2
"""Margin from what most trials held to the room in which a trial of unknown size joins others.

With it no more than 4 of 100 run out (experiments/006-packing/governor.md).
"""
OOM_GROWTH = 1.5
"""A trial that ran out of memory asks for this many times more."""
ALONE_AFTER_N_OOM = 2
"""Number of times a trial ran out of memory after which it gets the largest device to itself."""

_ANYWHERE = frozenset(DeviceKind)


class RequestMaker:
    """Makes the requests of one sweep's trials, and learns from their measured memory."""

    def __init__(
        self,
        estimate: Callable[[Params], ResourceRequest],
        declared_bytes: int | None,
        devices_per_trial: int = 1,
        helpers_bytes: int = 0,
    ) -> None:
        """Take what is known before any trial.

        `estimate` returns what arithmetic on params tells; what the user declared takes precedence.
        `devices_per_trial` counts GPUs; on the host a trial has the whole host. `helpers_bytes` is
        main memory of processes that a trial's own process starts, which its peak does not show.
        """
        self._helpers_bytes = helpers_bytes
        self._estimate = estimate
        self._declared_bytes = declared_bytes
        self._devices_per_trial = devices_per_trial
        self._surveys: dict[object, MemoryStructure] = {}
        self._ran_out: dict[object, int] = {}
        """The largest request that was too little, by kind of device and params."""
        self.measurements = TrialMeasurements()

    # --- making requests ---

    def request_for(
        self, params: Params, n_ran_out: int = 0, where: AbstractSet[DeviceKind] = _ANYWHERE
    ) -> ResourceRequest:
        """Return the request of a trial that ran out of memory `n_ran_out` times.

        The trial may run on any of the kinds in `where`; the request is that of the kind on which
        it wants the most.
        """
        estimate = self._on_several_gpus(self._estimate(params), where)
        kinds = sorted(estimate.kinds & where or estimate.kinds, key=lambda kind: kind.value)
        request = max((self._request_on(kind, params, estimate) for kind in kinds), key=_size_rank)
        if n_ran_out == 0:
            return request
        had_bytes = request.memory_bytes or max(
            self._ran_out.get(params_key(params, kind), 0) for kind in kinds
        )
        if n_ran_out >= ALONE_AFTER_N_OOM or not had_bytes:
            return _with_memory(request, None, RequestSource.RAN_OUT, alone=True)
        return _with_memory(request, int(OOM_GROWTH * had_bytes), RequestSource.RAN_OUT)

    def request_for_pack(self, members: Sequence[Params], kind: DeviceKind) -> ResourceRequest:
        """Return the request of trials that train together, as one admission on a device of this
        kind.

        The memory is what packs were seen to hold. Before any was seen it is the arithmetic of the
        largest member times the number of lanes, since what a trial holds alone says nothing about
        a pack. On a GPU the size is unknown where that of one member is.
        """
        estimates = [self._estimate(params) for params in members]
        pack = replace(estimates[0], kinds=frozenset({kind}))
        if self._declared_bytes is not None:
            return _with_memory(pack, len(members) * self._declared_bytes, RequestSource.DECLARED)
        structures = [self._structure(p, kind, e) for p, e in zip(members, estimates, strict=True)]
        known = [structure for structure in structures if structure is not None]
        if not known or (len(known) < len(members) and kind is DeviceKind.GPU):
            return replace(pack, memory_bytes=None, source=RequestSource.UNKNOWN)
        largest = max(known, key=lambda structure: structure.total_bytes)
        return self._fitted(pack, largest, kind, len(members))

    def least_request(self, where: AbstractSet[DeviceKind] = _ANYWHERE) -> ResourceRequest:
        """Return the least that any trial asks for on any of these kinds of device.

        While not even this has room, no trial is asked of the sampler.
        """
        return self._on_several_gpus(ResourceRequest(self._declared_bytes or 0), where)

    # --- learning ---

    def survey(self, params: Params, structure: MemoryStructure) -> None:
        """Take what a survey saw of a GPU, before trials with these params are measured."""
        surveyed = replace(structure, source=RequestSource.SURVEYED)
        self._surveys[params_key(params, DeviceKind.GPU)] = surveyed

    def learn(self, params: Params, peak: MemoryPeakMeasured, kind: DeviceKind) -> None:
        """Take what was measured on a device of this kind, now or in an earlier sweep of the
        study."""
        structure = self._structure(params, kind, self._estimate(params))
        new = MeasuredTrial(params, kind, peak.peak_bytes, peak.n_lanes, structure)
        self.measurements.add(peak.trial, new)

    def forget(self, trial: int) -> None:
        """Forget a trial that failed or ran out of memory, maybe before it held all that it
        wants."""
        self.measurements.drop(trial)

    def ran_out(self, params: Params, asked_bytes: int, kind: DeviceKind) -> None:
        """Note that `asked_bytes` were too little for a trial with these params.

        No trial with them asks for less again, however little others were seen to hold.
        """
        key = params_key(params, kind)
        self._ran_out[key] = max(asked_bytes, self._ran_out.get(key, 0))

    def _on_several_gpus(
        self, request: ResourceRequest, where: AbstractSet[DeviceKind]
    ) -> ResourceRequest:
        """Return the request with as many GPUs as each trial has. Such a trial trains on GPUs
        only."""
        if self._devices_per_trial == 1 or DeviceKind.GPU not in request.kinds & where:
            return request
        gpus = frozenset({DeviceKind.GPU})
        return replace(request, n_devices=self._devices_per_trial, kinds=gpus)

    # --- one kind of device ---

    def _request_on(
        self, kind: DeviceKind, params: Params, estimate: ResourceRequest
    ) -> ResourceRequest:
        if self._declared_bytes is not None:
            return _with_memory(estimate, self._declared_bytes, RequestSource.DECLARED)
        request = self._by_measurements(kind, params, estimate)
        if kind is DeviceKind.CPU and request.memory_bytes is not None and self._helpers_bytes:
            request = _with_memory(
                request, request.memory_bytes + self._helpers_bytes, request.source
            )
        too_little = self._ran_out.get(params_key(params, kind), 0)
        if request.memory_bytes is None or request.memory_bytes >= too_little:
            return request
        return _with_memory(request, too_little, request.source)

    def _by_measurements(
        self, kind: DeviceKind, params: Params, estimate: ResourceRequest
    ) -> ResourceRequest:
        most_bytes = self.measurements.most_bytes(params, kind)
        if most_bytes is not None:
            return _with_memory(
                estimate, math.ceil(SEEN_PEAK_MARGIN * most_bytes), RequestSource.SEEN
            )
        structure = self._structure(params, kind, estimate)
        if structure is not None:
            return self._fitted(estimate, structure, kind)
        most_bytes = None if kind is DeviceKind.CPU else self.measurements.held_by_most(kind)
        if most_bytes is None:
            return estimate
        joins_at = math.ceil(JOIN_MARGIN * most_bytes)
        return replace(estimate, joins_at_bytes=joins_at, source=RequestSource.PROBED)

    def _fitted(
        self,
        request: ResourceRequest,
        structure: MemoryStructure,
        kind: DeviceKind,
        n_lanes: int = 1,
    ) -> ResourceRequest:
        """Return the request by structure, and by what was measured of trials or packs like it."""
        learned = self.measurements.bound_bytes(structure, kind, n_lanes)
        if learned is not None:
            return _with_memory(request, learned, RequestSource.LEARNED)
        size_bytes = n_lanes * structure.total_bytes
        if structure.source is RequestSource.SURVEYED:
            size_bytes = SURVEY_BASE_BYTES + SURVEY_MARGIN * size_bytes
        return _with_memory(request, math.ceil(size_bytes), structure.source)

    def _structure(
        self, params: Params, kind: DeviceKind, estimate: ResourceRequest
    ) -> MemoryStructure | None:
        surveyed = self._surveys.get(params_key(params, kind))
        if surveyed is not None or estimate.memory_bytes is None:
            return surveyed
        return MemoryStructure((estimate.memory_bytes,))


def _with_memory(
    request: ResourceRequest,
    memory_bytes: int | None,
    source: RequestSource,
    *,
    alone: bool = False,
) -> ResourceRequest:
    return replace(
        request, memory_bytes=memory_bytes, source=source, alone=alone, joins_at_bytes=None
    )


def _size_rank(request: ResourceRequest) -> tuple[float, bool]:
    size = math.inf if request.memory_bytes is None else request.memory_bytes
    return size, request.joins_at_bytes is not None


class SurveyMemory:
    """Remembers what the surveys of one sweep saw. For the main thread."""

    def __init__(self) -> None:
        self._surveyed: list[tuple[Params, MemoryStructure]] = []
        self._alike: set[str] = set()
        """Params in which two agreeing surveys differ."""
        self._proved: set[str] = set()
        """The subset of `_alike` whose params are the only difference of two agreeing surveys."""
        self._matter: set[str] = set()
        """Params of `_alike` that turned out to matter, because surveys that differ in them
        disagree."""

    def add(self, params: Params, structure: MemoryStructure) -> None:
        for other_params, earlier in self._surveyed:
            differing = {
                n for n in {*params, *other_params} if params.get(n) != other_params.get(n)
            }
            if earlier == structure:
                self._alike |= differing
                self._proved |= differing if len(differing) == 1 else set()
            elif differing <= self._alike:
                self._matter |= differing - self._proved
        self._surveyed.append((params, structure))

    def find(self, params: Params) -> MemoryStructure | None:
        """Return what was seen with params that differ in nothing that matters; None: a survey is
        needed."""
        irrelevant = self._alike - self._matter
        for other_params, structure in self._surveyed:
            names = {*params, *other_params} - irrelevant
            if all(params.get(name) == other_params.get(name) for name in names):
                return structure
        return None
