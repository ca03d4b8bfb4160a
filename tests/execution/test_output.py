"""The end of a failed trial's own file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from automl.execution.trial_output import append_failure
from automl.trial import FailedOutcome

PRINTS = """
import pathlib, sys
from automl.execution.trial_output import StandardStreams
StandardStreams().print_to(sys.argv[1])
print("a word", flush=True)
pathlib.Path(sys.argv[2]).touch()
"""


def test_without_a_file_for_its_output_a_trial_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    words = [str(tmp_path / "logs" / "a.log"), str(tmp_path / "done")]
    done = subprocess.run([sys.executable, "-c", PRINTS, *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert "does not take what the trial prints (File exists)" in done.stderr
    assert (tmp_path / "done").exists()


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
