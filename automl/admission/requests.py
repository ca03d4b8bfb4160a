"""The one door by which requests are made: what a trial asks for, and how that is known.

| known by | asks for |
|---|---|
| what the user declared | that |
| a trial with the same params that was measured | 1.05 times the most it held |
| its structure, and trials that were measured | what 99 % of its like hold at most |
| its structure alone | the arithmetic; of a survey 1.5 times |
| what other trials held | a GPU to itself, or beside others 1.2 times what 9 of 10 held |
| nothing | unknown: a GPU to itself |

How structure tells is in `footprint.py`. A request is made anew at each decision, for the head, for
a pack, and for whatever is looked ahead to: what was measured meanwhile counts. What a running
trial was promised stays. For the main thread; no lock, no clock.

Which params a survey need not be made for again, because others showed that they do not matter.

Two surveys that agree to the byte, and differ in some params, tell that none of these matters (a
learning rate, a seed), until others that differ in these alone do not agree. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from automl.admission.footprint import MemoryStructure
from automl.admission.measured_memory import MeasuredTrial, TrialMeasurements, is_same_params
from automl.trial import DeviceKind, MemoryPeakMeasured, Params, RequestSource, ResourceRequest

SEEN_MARGIN = 1.05
"""Of one trial's peak to another's with the same params."""
SURVEY_MARGIN = 1.5
"""Of a survey to a peak, before any trial is measured: libraries' workspaces are not seen by it."""
JOIN_MARGIN = 1.2
"""Of what most trials held, to the room in which one joins others of which nothing is known: so
that no more than 4 of 100 run out (experiments/006-packing)."""
OOM_GROWTH = 1.5
"""A trial that ran out of memory asks for this much more."""
ALONE_AFTER = 2
"""Times a trial ran out of memory after which it gets the largest device to itself."""

_ANYWHERE = frozenset(DeviceKind)


class RequestMaker:
    """Makes the requests of one sweep."""

    def __init__(
        self,
        estimate: Callable[[Params], ResourceRequest],
        declared_bytes: int | None,
        devices_per_trial: int = 1,
        helpers_bytes: int = 0,
    ) -> None:
        """`estimate` says what is known of params by arithmetic; what the user declared goes
        before it. `devices_per_trial` counts GPUs: on the host a trial has the host.
        `helpers_bytes` is main memory of processes that a trial's own one starts, which its peak
        does not show."""
        self._helpers_bytes = helpers_bytes
        self._estimate = estimate
        self._declared_bytes = declared_bytes
        self._devices_per_trial = devices_per_trial
        self._surveys: dict[object, MemoryStructure] = {}
        self._ran_out: dict[object, int] = {}
        """What was too little, by kind and params."""
        self.measurements = TrialMeasurements()

    # --- asking ---

    def of(
        self, params: Params, n_ran_out: int = 0, where: AbstractSet[DeviceKind] = _ANYWHERE
    ) -> ResourceRequest:
        """For a trial that ran out of memory so often, on whichever of these kinds of device: as
        much as it wants where it wants the most."""
        estimate = self._on_several(self._estimate(params), where)
        kinds = sorted(estimate.kinds & where or estimate.kinds, key=lambda kind: kind.value)
        request = max((self._on(kind, params, estimate) for kind in kinds), key=_size)
        if n_ran_out == 0:
            return request
        had_bytes = request.memory_bytes or max(
            self._ran_out.get(is_same_params(params, kind), 0) for kind in kinds
        )
        if n_ran_out >= ALONE_AFTER or not had_bytes:
            return _sized(request, None, RequestSource.RAN_OUT, alone=True)
        return _sized(request, int(OOM_GROWTH * had_bytes), RequestSource.RAN_OUT)

    def of_pack(self, members: Sequence[Params], kind: DeviceKind) -> ResourceRequest:
        """For trials that train together, one admission on such a device.

        By what packs were seen to hold; before that as many times its largest member's arithmetic
        as it has lanes, since what a trial holds alone tells nothing of a pack. Of unknown size on
        a GPU where one of them is.
        """
        estimates = [self._estimate(params) for params in members]
        pack = replace(estimates[0], kinds=frozenset({kind}))
        if self._declared_bytes is not None:
            return _sized(pack, len(members) * self._declared_bytes, RequestSource.DECLARED)
        structures = [self._structure(p, kind, e) for p, e in zip(members, estimates, strict=True)]
        known = [structure for structure in structures if structure is not None]
        if not known or (len(known) < len(members) and kind is DeviceKind.GPU):
            return replace(pack, memory_bytes=None, source=RequestSource.UNKNOWN)
        largest = max(known, key=lambda structure: structure.total_bytes)
        return self._fitted(pack, largest, kind, len(members))

    def least(self, where: AbstractSet[DeviceKind] = _ANYWHERE) -> ResourceRequest:
        """What any trial asks for at least on whichever of these kinds of device; none is asked for
        while not even that has room."""
        return self._on_several(ResourceRequest(self._declared_bytes or 0), where)

    # --- learning ---

    def survey(self, params: Params, structure: MemoryStructure) -> None:
        """Take what a survey saw of a GPU, before what was measured with these params."""
        surveyed = replace(structure, source=RequestSource.SURVEYED)
        self._surveys[is_same_params(params, DeviceKind.GPU)] = surveyed

    def learn(self, params: Params, peak: MemoryPeakMeasured, kind: DeviceKind) -> None:
        """Take what was measured on such a device, now or in an earlier sweep of the study."""
        structure = self._structure(params, kind, self._estimate(params))
        new = MeasuredTrial(params, kind, peak.peak_bytes, peak.n_lanes, structure)
        self.measurements.add(peak.trial, new)

    def forget(self, trial: int) -> None:
        """It failed or ran out of memory, maybe before it held all that it wants."""
        self.measurements.drop(trial)

    def ran_out(self, params: Params, asked_bytes: int, kind: DeviceKind) -> None:
        """So much was too little for a trial with these params: none asks for less again, however
        little others were seen to hold."""
        key = is_same_params(params, kind)
        self._ran_out[key] = max(asked_bytes, self._ran_out.get(key, 0))

    def _on_several(
        self, request: ResourceRequest, where: AbstractSet[DeviceKind]
    ) -> ResourceRequest:
        """As many GPUs as each trial has, where there are any: then it trains nowhere else."""
        if self._devices_per_trial == 1 or DeviceKind.GPU not in request.kinds & where:
            return request
        gpus = frozenset({DeviceKind.GPU})
        return replace(request, n_devices=self._devices_per_trial, kinds=gpus)

    # --- one kind of device ---

    def _on(self, kind: DeviceKind, params: Params, estimate: ResourceRequest) -> ResourceRequest:
        if self._declared_bytes is not None:
            return _sized(estimate, self._declared_bytes, RequestSource.DECLARED)
        request = self._known(kind, params, estimate)
        if kind is DeviceKind.CPU and request.memory_bytes is not None and self._helpers_bytes:
            request = _sized(request, request.memory_bytes + self._helpers_bytes, request.source)
        too_little = self._ran_out.get(is_same_params(params, kind), 0)
        if request.memory_bytes is None or request.memory_bytes >= too_little:
            return request
        return _sized(request, too_little, request.source)

    def _known(
        self, kind: DeviceKind, params: Params, estimate: ResourceRequest
    ) -> ResourceRequest:
        most_bytes = self.measurements.most_bytes(params, kind)
        if most_bytes is not None:
            return _sized(estimate, math.ceil(SEEN_MARGIN * most_bytes), RequestSource.SEEN)
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
        """By structure, and by what was measured of such trials or packs."""
        learned = self.measurements.bound_bytes(structure, kind, n_lanes)
        if learned is not None:
            return _sized(request, learned, RequestSource.LEARNED)
        margin = SURVEY_MARGIN if structure.source is RequestSource.SURVEYED else 1
        return _sized(
            request, math.ceil(margin * n_lanes * structure.total_bytes), structure.source
        )

    def _structure(
        self, params: Params, kind: DeviceKind, estimate: ResourceRequest
    ) -> MemoryStructure | None:
        surveyed = self._surveys.get(is_same_params(params, kind))
        if surveyed is not None or estimate.memory_bytes is None:
            return surveyed
        return MemoryStructure((estimate.memory_bytes,))


def _sized(
    request: ResourceRequest,
    memory_bytes: int | None,
    source: RequestSource,
    *,
    alone: bool = False,
) -> ResourceRequest:
    return replace(
        request, memory_bytes=memory_bytes, source=source, alone=alone, joins_at_bytes=None
    )


def _size(request: ResourceRequest) -> tuple[float, bool]:
    size = math.inf if request.memory_bytes is None else request.memory_bytes
    return size, request.joins_at_bytes is not None


class SurveyMemory:
    """What the surveys of one sweep saw. For the main thread."""

    def __init__(self) -> None:
        self._seen: list[tuple[Params, MemoryStructure]] = []
        self._alike: set[str] = set()
        """Params in which two surveys that agree differ."""
        self._proved: set[str] = set()
        """Of them, those in which alone two differ."""
        self._matter: set[str] = set()

    def add(self, params: Params, structure: MemoryStructure) -> None:
        for others, seen in self._seen:
            differing = {n for n in {*params, *others} if params.get(n) != others.get(n)}
            if seen == structure:
                self._alike |= differing
                self._proved |= differing if len(differing) == 1 else set()
            elif differing <= self._alike:
                self._matter |= differing - self._proved
        self._seen.append((params, structure))

    def find(self, params: Params) -> MemoryStructure | None:
        """What was seen with params that differ in nothing that matters; None: survey it."""
        free = self._alike - self._matter
        for others, structure in self._seen:
            names = {*params, *others} - free
            if all(params.get(name) == others.get(name) for name in names):
                return structure
        return None
