"""The end of a failed trial's own file."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.execution.trial_output import append_failure
from automl.trial import FailedOutcome


@pytest.mark.parametrize("before", ["", "a line\n", "50 %"])
def test_why_it_failed_begins_a_line(before: str, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "trial-00003.log"
    if before:
        path.parent.mkdir()
        path.write_text(before)
    append_failure(path, FailedOutcome(3, 0.0, "ValueError: x", "Traceback:\n  token=s3cret\n"))
    printed = before if before.endswith("\n") or not before else f"{before}\n"
    assert path.read_text(encoding="utf-8") == f"{printed}Traceback:\n  token=***\n"


def test_without_a_traceback_it_is_the_cause(tmp_path: Path) -> None:
    append_failure(tmp_path / "a.log", FailedOutcome(3, 0.0, "took too long"))
    assert (tmp_path / "a.log").read_text() == "took too long\n"


def test_a_disk_that_takes_nothing_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").touch()
    append_failure(tmp_path / "logs" / "a.log", FailedOutcome(3, 0.0, "took too long"))
    assert "does not take why the trial failed" in caplog.text
