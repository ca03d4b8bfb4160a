"""The file that says what MLflow has: never more than it has, and one process at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from automl.errors import StudyInUseError
from automl.tracking.deliver.confirmed_offset import (
    DeliveredRuns,
    DeliveryConfirmations,
    is_fully_delivered,
    read_delivered_runs,
)
from tests.flips import one_bit_flipped, unsealed


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


def reopened(log: Path) -> DeliveryConfirmations:
    return DeliveryConfirmations.open(log, wait_seconds=0.0)


def test_what_was_noted_is_there_again(log: Path) -> None:
    first = reopened(log)
    assert (first.offset, first.parent, first.runs) == (0, None, {})
    first.note_study("5b7c", "3", "parent-id")
    first.note_run(7, "run-7")
    first.confirm(10**12)
    first.note_run(8, "run-8")
    first.close()
    second = reopened(log)
    assert (second.offset, second.experiment, second.parent) == (10**12, "3", "parent-id")
    assert second.runs == {7: "run-7", 8: "run-8"}
    second.close()


def test_all_is_delivered_once_the_last_byte_is(log: Path) -> None:
    log.write_bytes(b"0123456789")
    assert not is_fully_delivered(log), "nothing was"
    confirmed = reopened(log)
    for offset, whole in ((9, False), (10, True)):
        confirmed.confirm(offset)
        assert is_fully_delivered(log) is whole
    confirmed.close()
    path = log.with_suffix(".delivered")
    path.write_bytes(path.read_bytes().replace(b"10", b"1O", 1))
    assert not is_fully_delivered(log), "a damaged file tells nothing"


def test_confirming_often_does_not_let_the_file_grow(log: Path) -> None:
    confirmed = reopened(log)
    size = os.stat(log.with_suffix(".delivered")).st_size
    for offset in range(1000):
        confirmed.confirm(offset)
    confirmed.close()
    assert os.stat(log.with_suffix(".delivered")).st_size == size


def test_a_torn_or_broken_file_costs_what_is_torn_only(log: Path) -> None:
    confirmed = reopened(log)
    confirmed.confirm(500)
    confirmed.note_run(7, "run-7")
    confirmed.close()
    path = log.with_suffix(".delivered")
    path.write_bytes(path.read_bytes() + b'{"trial": 8, "ru')
    confirmed = reopened(log)
    assert (confirmed.offset, confirmed.runs) == (500, {7: "run-7"})
    confirmed.note_run(9, "run-9")
    confirmed.close()
    confirmed = reopened(log)
    assert confirmed.runs == {7: "run-7", 9: "run-9"}
    confirmed.close()
    path.write_bytes(b"\0" * 300)
    confirmed = reopened(log)
    assert (confirmed.offset, confirmed.runs) == (0, {})
    confirmed.close()


def test_a_reset_forgets_everything(log: Path) -> None:
    confirmed = reopened(log)
    confirmed.note_run(7, "run-7")
    confirmed.confirm(500)
    confirmed.reset()
    confirmed.close()
    confirmed = reopened(log)
    assert (confirmed.offset, confirmed.parent, confirmed.runs) == (0, None, {})
    confirmed.close()


def test_a_second_holder_is_told_who_has_it(log: Path) -> None:
    confirmed = reopened(log)
    with pytest.raises(StudyInUseError, match=str(os.getpid())):
        reopened(log)
    confirmed.close()
    reopened(log).close()


@pytest.fixture
def noted(log: Path) -> Path:
    """A file that says 500, and two runs."""
    confirmed = reopened(log)
    confirmed.note_study("study-uuid", "3", "parent-id")
    for number in (7, 8):
        confirmed.note_run(number, f"run-{number}")
    confirmed.confirm(500)
    confirmed.close()
    return log.with_suffix(".delivered")


def test_a_flipped_bit_is_delivered_again_and_never_another_value(noted: Path, log: Path) -> None:
    for content in one_bit_flipped(noted.read_bytes(), 300):
        noted.write_bytes(content)
        confirmed = reopened(log)
        assert confirmed.offset in (0, 500)
        assert confirmed.runs.items() <= {7: "run-7", 8: "run-8"}.items()
        assert (confirmed.experiment, confirmed.parent) in ((None, None), ("3", "parent-id"))
        confirmed.note_run(9, "run-9")
        confirmed.close()
        confirmed = reopened(log)
        assert confirmed.runs[9] == "run-9"
        confirmed.close()


def test_a_file_without_checksums_is_taken_as_it_is(noted: Path, log: Path) -> None:
    noted.write_bytes(unsealed(noted.read_bytes()))
    for _ in range(2):
        confirmed = reopened(log)
        assert (confirmed.offset, confirmed.runs) == (500, {7: "run-7", 8: "run-8"})
        assert (confirmed.experiment, confirmed.parent) == ("3", "parent-id")
        confirmed.close()
        assert noted.read_bytes() != unsealed(noted.read_bytes())


def test_where_a_study_was_delivered_is_read_without_the_lock(log: Path) -> None:
    assert read_delivered_runs(log) is None
    confirmed = reopened(log)
    assert read_delivered_runs(log) is None
    confirmed.note_study("uuid", "1/../?a=\x1b[2J", "9f")
    assert read_delivered_runs(log) is None, "what goes into an address is an id"
    confirmed.note_study("uuid", "2", "ab")
    confirmed.note_run(0, "3c")
    assert read_delivered_runs(log) == DeliveredRuns("2", "ab", {0: "3c"})
    with log.with_suffix(".delivered").open("ab") as file:
        file.write(b'{"experiment": "3", "par')
    assert read_delivered_runs(log) == DeliveredRuns("2", "ab", {0: "3c"})
    confirmed.close()
