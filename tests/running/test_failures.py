"""Failed trials by cause: counted, bounded, and told with the place where to read on."""

from __future__ import annotations

from pathlib import Path

from automl.record.study import fold
from automl.running.failures import MAX_CAUSES, MAX_SHOWN, Failures
from automl.running.rendering import failure_lines
from automl.running.view import FailureRow, SweepView
from automl.trial import Failed


def failed(number: int, cause: str) -> Failed:
    return Failed(number, 0.0, cause)


def test_causes_are_counted_from_the_most_frequent_on() -> None:
    failures = Failures({})
    for number, cause in enumerate(["row 7 is odd", "no table", "row 12 is odd", "row 7 is odd"]):
        failures.add(failed(number, cause))
    failures.add(failed(2, "row 12 is odd"))  # told twice: taken over, and from the log
    assert failures.rows() == (FailureRow(3, "row 7 is odd", 0), FailureRow(1, "no table", 1))


def test_failures_of_earlier_sweeps_count() -> None:
    before = fold([failed(4, "no table")])
    assert Failures(before.trials).rows() == (FailureRow(1, "no table", 4),)


def test_ten_thousand_causes_are_not_kept() -> None:
    failures = Failures({})
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
