"""The failed trials of a study by cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.record.study_record import record_from_events
from automl.terminal.failure_counts import MAX_CAUSES, MAX_SHOWN, FailureCounts
from automl.terminal.rendering import failure_lines
from automl.terminal.view import FailureRow, SweepView
from automl.trial import FailedOutcome


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
