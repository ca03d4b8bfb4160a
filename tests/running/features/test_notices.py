"""Messages about trials: failures by cause, deaths, too little memory, repeated params."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from automl.record.study_record import record_from_events
from automl.running.features.notices import (
    DeclaredMemoryAdvice,
    RepeatedParams,
    interruption_line,
)
from automl.running.loop.messages import AdmittedExecution, PlannedTrial, WaitingTrial
from automl.terminal.failure_counts import MAX_CAUSES, MAX_SHOWN, FailureCounts
from automl.terminal.rendering import failure_lines
from automl.terminal.view import FailureRow, SweepView
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


def failed(number: int, cause: str) -> FailedOutcome:
    return FailedOutcome(number, 0.0, cause)


def test_causes_are_counted_from_the_most_frequent_on() -> None:
    failures = FailureCounts({})
    for number, cause in enumerate(["row 7 is odd", "no table", "row 12 is odd", "row 7 is odd"]):
        failures.add(failed(number, cause))
    failures.add(failed(2, "row 12 is odd"))  # told twice: taken over, and from the log
    assert failures.rows() == (FailureRow(3, "row 7 is odd", 0), FailureRow(1, "no table", 1))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("<Net object at 0x7f2a10>", "<Net object at 0x55d0ffae>"),
        ("no file /tmp/tmpab_cd3f1/a.npy here", "no file /tmp/run-x8sjq_op/a.npy here"),
        ("'/scratch/me/tmpzz81k_aa/x' is gone", "'/scratch/me/tmpqq81k_ab/x' is gone"),
        ("pid 7 ended by -9", "pid 41207 ended by 15"),
        ("the loss is 0.25.", "the loss is -1.5e-07."),
        (
            "run 6ba7b810-9dad-11d1-80b4-00c04fd430c8 failed",
            "run ffeebbaa-12ab-4cd1-90b4-10c04fd430aa failed",
        ),
    ],
)
def test_what_varies_makes_no_two_causes(first: str, second: str) -> None:
    failures = FailureCounts({})
    for number, cause in enumerate([first, second, "an odd row"]):
        failures.add(failed(number, cause))
    assert failures.rows() == (FailureRow(2, first, 0), FailureRow(1, "an odd row", 2))


def test_failures_of_earlier_sweeps_count() -> None:
    before = record_from_events([failed(4, "no table")])
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
    assert DeclaredMemoryAdvice().line(failed(3, "odd"), RAN_OUT) is None


def test_the_first_repeat_is_said_and_no_other() -> None:
    repeated = RepeatedParams([])
    trials = [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.2}, {"lr": 0.1}]
    lines = [repeated.line(number, params) for number, params in enumerate(trials)]
    assert [line is not None for line in lines] == [False, False, False, True, False]
    assert str(lines[3]).startswith("trial 3 has the params of trial 1 and trains them again")


def test_a_study_that_goes_on_knows_its_trials_of_before() -> None:
    line = RepeatedParams([{"lr": 0.1}, {"lr": 0.1}]).line(2, {"lr": 0.1})
    assert str(line).startswith("trial 2 has the params of trial 0")
