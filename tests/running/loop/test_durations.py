"""How long trials are thought to take."""

from __future__ import annotations

import math

from automl.running.loop.messages import AdmittedExecution, PlannedTrial, WaitingTrial
from automl.running.loop.packing import TrialDurations
from automl.trial import DeviceKind, FinishedOutcome, ResourceRequest
from tests.places import placed

WAITING = WaitingTrial(PlannedTrial(0, {}))
HERE = placed("GPU-a", 0)


def after(*seconds: float, progress: float | None = None) -> TrialDurations:
    durations = TrialDurations(lambda number: progress)
    for each in seconds:
        durations.finished(each)
    return durations


def test_nothing_is_known_before_the_first_has_finished() -> None:
    assert after().of(WAITING) == math.inf
    assert after().left(WAITING, DeviceKind.GPU, 5.0) == math.inf


def test_a_new_trial_takes_as_long_as_the_median_of_those_that_finished() -> None:
    assert after(9.0, 1.0, 4.0).of(WAITING) == 4.0


def test_a_smaller_chance_is_that_of_the_quicker_ones() -> None:
    known = after(9.0, 1.0, 7.0, 4.0)
    assert [known.of(WAITING, share) for share in (0.5, 0.25, 0.125)] == [7.0, 4.0, 1.0]


def test_a_trial_that_reports_how_far_it_is_goes_on_as_fast_as_so_far() -> None:
    assert after(5.0, progress=0.25).left(WAITING, DeviceKind.GPU, 10.0) == 30.0
    assert after(5.0, progress=1.0).left(WAITING, DeviceKind.GPU, 10.0) == 0.0


def test_one_that_runs_long_is_compared_with_those_that_took_longer() -> None:
    known = after(1.0, 2.0, 30.0, 40.0, 50.0)
    left = [known.left(WAITING, DeviceKind.GPU, so_far) for so_far in (1.5, 10.0, 60.0)]
    assert left == [38.5, 30.0, 60.0], "the last as long again"


def test_a_pack_ends_with_its_last_trial() -> None:
    members = {n: WaitingTrial(PlannedTrial(n, {})) for n in range(3)}
    pack = AdmittedExecution(0, ResourceRequest(0), HERE, None, members)
    pack.since_seconds = {n: float(n) for n in members}
    pack.outcomes[0] = FinishedOutcome(0, 0.0, 0.0)
    assert after(5.0).end(pack, 3.0) == 7.0
