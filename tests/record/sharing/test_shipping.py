"""The record takes only some lines of a sweep's own log."""

from __future__ import annotations

from pathlib import Path

from automl.record.sharing.shared_log import accepted_lines, read_lines
from automl.trial import FinishedOutcome, MetricsReported, PaceMeasured
from automl.trial.placement import DeviceKind
from tests.record.sharing.lines import write

REPORT = MetricsReported(0, 1.0, 0, {"val_loss": 0.5})


def test_lines_of_the_current_attempt_are_taken_and_those_of_no_trial(tmp_path: Path) -> None:
    log = tmp_path / "log"
    paced = PaceMeasured(1.0, DeviceKind.CPU, 1.0, 1.0)
    write(log, (REPORT, 1), (REPORT, 2), (paced, None), (REPORT, None))
    lines = read_lines(log, 0)
    assert [line.end for line in accepted_lines(lines, {0: 2})] == [lines[1].end, lines[2].end]
    assert accepted_lines(lines[:1], {}) == [], "a trial that the database does not know"
    assert accepted_lines(lines[:1], {0: None}) == [], "one that has ended"


def test_nothing_comes_after_the_end_of_a_trial(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(log, (REPORT, 1), (FinishedOutcome(0, 2.0, 0.5), 1), (REPORT, 1))
    assert len(accepted_lines(read_lines(log, 0), {0: 1})) == 2


def test_a_line_that_is_being_written_waits_and_a_damaged_one_is_passed_over(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    write(log, (REPORT, 1))
    whole = log.read_bytes()
    log.write_bytes(whole.replace(b"0.5", b"0.6") + whole + whole[:-1])
    lines = read_lines(log, 0)
    assert [line.end for line in lines] == [len(whole), 2 * len(whole)]
    assert [line.end for line in accepted_lines(lines, {0: 1})] == [2 * len(whole)]
    assert read_lines(log, lines[-1].end) == []
