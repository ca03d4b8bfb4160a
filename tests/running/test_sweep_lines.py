"""Messages about trials that were interrupted: deaths, too little memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from automl.running.loop.messages import AdmittedExecution, PlannedTrial, WaitingTrial
from automl.running.sweep_lines import DeclaredMemoryAdvice, interruption_line
from automl.trial import (
    LOCAL_HOST,
    DeviceShare,
    FailedOutcome,
    InterruptedOutcome,
    OutOfMemoryOutcome,
    Placement,
    RequestSource,
    ResourceRequest,
)


@pytest.mark.parametrize(
    ("n_before", "stopping", "end"),
    [(0, False, "; it goes on in another"), (0, True, ""), (1, False, " (death 2 of 2)")],
)
def test_a_death_is_said_with_what_becomes_of_the_trial(
    n_before: int, stopping: bool, end: str
) -> None:
    execution = replace(RAN_OUT, members={3: WaitingTrial(PlannedTrial(3, {}), deaths=n_before)})
    died = InterruptedOutcome(3, 0.0, "its process died: SIGALRM", by_worker_death=True)
    line = interruption_line(died, execution, is_stopping=stopping)
    assert line == f"trial 3: its process died: SIGALRM{end}"


MIB = 2**20
DECLARED = ResourceRequest(4096 * MIB)
RAN_OUT = AdmittedExecution(
    key=3,
    request=DECLARED,
    placement=Placement((DeviceShare(LOCAL_HOST, "CPU", 4096 * MIB),)),
    kind=None,
    members={3: WaitingTrial(PlannedTrial(3, {}))},
)
ENDED = OutOfMemoryOutcome(3, 0.0, "no room")


@pytest.mark.parametrize(
    ("held", "enough", "seen"), [(0, 6144, ""), (7000, 7350, ", it held 6.8 GiB by then")]
)
def test_a_declared_size_that_is_too_small_is_said_with_the_one_to_declare(
    held: int, enough: int, seen: str
) -> None:
    said = DeclaredMemoryAdvice().line(ENDED, replace(RAN_OUT, peak_bytes=held * MIB))
    assert said == (
        "trial 3 ran out of memory: admission.request=4096MiB is too little for it"
        f"{seen}; declare admission.request={enough}MiB. It runs again with more"
    )


def test_it_is_said_once_and_again_of_a_larger_size() -> None:
    declared = DeclaredMemoryAdvice()
    assert declared.line(ENDED, RAN_OUT) is not None
    assert declared.line(ENDED, RAN_OUT) is None
    assert declared.line(ENDED, replace(RAN_OUT, peak_bytes=2**33)) is not None


@pytest.mark.parametrize(
    "was",
    [
        replace(RAN_OUT, request=ResourceRequest(4096 * MIB, RequestSource.LEARNED)),
        replace(RAN_OUT, request=ResourceRequest(6144 * MIB, RequestSource.RAN_OUT)),
        replace(RAN_OUT, n_lanes=2),
        replace(RAN_OUT, disturbed=True),
    ],
)
def test_it_is_not_said_of_what_was_not_declared_or_not_to_blame(was: AdmittedExecution) -> None:
    assert DeclaredMemoryAdvice().line(ENDED, was) is None
    assert DeclaredMemoryAdvice().line(FailedOutcome(3, 0.0, "odd"), RAN_OUT) is None
