"""What the trials of a study were seen to hold: by trial, by params, and fitted to their structure.

Trials alone and packs are kept apart, and so are the host and GPUs: none tells of the other. All is
made from the arguments of `add`, in any order, so an earlier sweep's peaks count as this one's do.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

from automl.admission.footprint import Footprint, Structure
from automl.trial import DeviceKind, Params

MOST = 0.9
"""Of trials that were measured, the share that "most" is."""
ENOUGH_TRIALS = 5
"""So few tell what most hold: of fewer than ten the largest counts."""


@dataclass(frozen=True)
class Measured:
    """The most memory that a trial, or a pack that it was of, was seen to hold on a device."""

    params: Params
    kind: DeviceKind
    peak_bytes: int
    n_lanes: int = 1
    structure: Structure | None = None
    """Of the trial; None: not known."""


class Measurements:
    """The measured trials of one study. For the main thread."""

    def __init__(self) -> None:
        self._by_trial: dict[int, dict[Hashable, Measured]] = defaultdict(dict)
        """By how many trained together and where."""
        self._seen: dict[Hashable, dict[int, int]] = defaultdict(dict)
        """Peaks by kind and params, then by trial."""
        self._alone: dict[DeviceKind, list[int]] = defaultdict(list)
        """Peaks of trials alone, in order."""
        self._footprints: dict[Hashable, Footprint] = defaultdict(Footprint)

    def all(self) -> list[Measured]:
        return [m for of_trial in self._by_trial.values() for m in of_trial.values()]

    def add(self, trial: int, new: Measured) -> None:
        """The largest peak of a trial counts; one of 0 was not measured."""
        where = (new.kind, new.n_lanes)
        was = self._by_trial[trial].get(where)
        if new.peak_bytes <= (0 if was is None else was.peak_bytes):
            return
        if was is not None:
            self._remove(trial, was)
        self._by_trial[trial][where] = new
        if new.n_lanes == 1:
            self._seen[same(new.params, new.kind)][trial] = new.peak_bytes
            bisect.insort(self._alone[new.kind], new.peak_bytes)
        if new.structure is not None:
            footprint = self._footprint(new.structure, new.kind, new.n_lanes)
            footprint.add(new.structure.times(new.n_lanes), new.peak_bytes)

    def drop(self, trial: int) -> None:
        """Forget a trial that did not come so far as to hold all that it wants."""
        for was in self._by_trial.pop(trial, {}).values():
            self._remove(trial, was)

    def most_bytes(self, params: Params, kind: DeviceKind) -> int | None:
        """The most that a trial alone with these params was seen to hold; None: there was none."""
        return max(self._seen.get(same(params, kind), {}).values(), default=None)

    def held_by_most(self, kind: DeviceKind) -> int | None:
        """What nine of ten trials alone were seen to hold at most, whatever their params; None: too
        few were."""
        peaks = self._alone[kind]
        return peaks[math.ceil(MOST * len(peaks)) - 1] if len(peaks) >= ENOUGH_TRIALS else None

    def bound_bytes(self, structure: Structure, kind: DeviceKind, n_lanes: int = 1) -> int | None:
        """What a trial (or so many in a pack, the largest of them of this structure) holds at most;
        None while none of its sort was measured."""
        return self._footprint(structure, kind, n_lanes).bound_bytes(structure.times(n_lanes))

    def _remove(self, trial: int, was: Measured) -> None:
        if was.n_lanes == 1:
            del self._seen[same(was.params, was.kind)][trial]
            peaks = self._alone[was.kind]
            del peaks[bisect.bisect_left(peaks, was.peak_bytes)]
        if was.structure is not None:
            footprint = self._footprint(was.structure, was.kind, was.n_lanes)
            footprint.remove(was.structure.times(was.n_lanes), was.peak_bytes)

    def _footprint(self, structure: Structure, kind: DeviceKind, n_lanes: int) -> Footprint:
        sort = (kind, n_lanes > 1, structure.source, len(structure.parts_bytes))
        return self._footprints[sort]


def same(params: Params, kind: DeviceKind) -> Hashable:
    """Equal for equal params on one kind of device."""
    return kind, frozenset(params.items())
