"""Failed trials by cause: counted, bounded, and told with the place where to read on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from automl.record.study_record import fold_events
from automl.running.display.failures import (
    MAX_CAUSES,
    MAX_SHOWN,
    DeclaredMemoryAdvice,
    FailureCounts,
)
from automl.running.display.rendering import failure_lines
from automl.running.display.view import FailureRow, SweepView
from automl.running.loop.messages import AdmittedExecution, PlannedTrial, TrialEnded, WaitingTrial
from automl.trial import (
    HOST,
    DeviceShare,
    FailedOutcome,
    OutOfMemoryOutcome,
    Placement,
    RequestSource,
    ResourceRequest,
)


def failed(number: int, cause: str) -> FailedOutcome:
    return FailedOutcome(number, 0.0, cause)


def test_causes_are_counted_from_the_most_frequent_on() -> None:
    failures = FailureCounts({})
    for number, cause in enumerate(["row 7 is odd", "no table", "row 12 is odd", "row 7 is odd"]):
        failures.add(failed(number, cause))
    failures.add(failed(2, "row 12 is odd"))  # told twice: taken over, and from the log
    assert failures.rows() == (FailureRow(3, "row 7 is odd", 0), FailureRow(1, "no table", 1))


def test_failures_of_earlier_sweeps_count() -> None:
    before = fold_events([failed(4, "no table")])
    assert FailureCounts(before.trials).rows() == (FailureRow(1, "no table", 4),)


def test_ten_thousand_causes_are_not_kept() -> None:
    failures = FailureCounts({})
    for number in range(10_000):
        word = "".join(chr(ord("a") + int(digit)) for digit in f"{number:05d}")
        failures.add(failed(number, f"{word} {'x' * 10_000}"))
    assert len(failures._rows) == MAX_CAUSES
    assert len(failures.rows()) == MAX_SHOWN
    assert sum(len(row.cause) for row in failures.rows()) < 2_000


def test_the_lines_say_where_to_read_on(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "trial-00002.log").touch()
    rows = (FailureRow(3, "no table", 2), FailureRow(1, "odd", 5))
    view = SweepView("s", str(tmp_path), 0.0, 20, "loss", counts={"failed": 6}, failures=rows)
    lines = list(failure_lines(view))
    assert lines[0] == "failed by cause"
    assert lines[1].startswith("  3 times  no table (first trial 2, see ")
    assert lines[1].endswith("/logs/trial-00002.log)")
    assert lines[2:] == ["  1 time  odd (first trial 5)", "  and 2 more of other causes"]


MIB = 2**20
DECLARED = ResourceRequest(4096 * MIB)
RAN_OUT = AdmittedExecution(
    key=3,
    request=DECLARED,
    placement=Placement((DeviceShare(HOST, "CPU", 4096 * MIB),)),
    kind=None,
    members={3: WaitingTrial(PlannedTrial(3, {}))},
)
ENDED = TrialEnded(OutOfMemoryOutcome(3, 0.0, "no room"))


@pytest.mark.parametrize(
    ("held", "enough", "seen"), [(0, 6144, ""), (7000, 7350, ", it held 6.8 GiB by then")]
)
def test_a_declared_size_that_is_too_small_is_said_with_the_one_to_declare(
    held: int, enough: int, seen: str
) -> None:
    said = DeclaredMemoryAdvice().line(ENDED, [replace(RAN_OUT, peak_bytes=held * MIB)])
    assert said == (
        "trial 3 ran out of memory: admission.request=4096MiB is too little for it"
        f"{seen}; declare admission.request={enough}MiB. It runs again with more"
    )


def test_it_is_said_once_and_again_of_a_larger_size() -> None:
    declared = DeclaredMemoryAdvice()
    assert declared.line(ENDED, [RAN_OUT]) is not None
    assert declared.line(ENDED, [RAN_OUT]) is None
    assert declared.line(ENDED, [replace(RAN_OUT, peak_bytes=2**33)]) is not None


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
    assert DeclaredMemoryAdvice().line(ENDED, [was]) is None
    assert DeclaredMemoryAdvice().line(TrialEnded(failed(3, "odd")), [RAN_OUT]) is None
