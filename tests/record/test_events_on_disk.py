"""What is left of the event log after kills, power cuts, full and failing disks, flipped bits."""

from __future__ import annotations

import errno
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from automl.errors import StorageError
from automl.record.event_log import EventLog
from automl.trial import (
    Event,
    MetricsReported,
    SweepEnded,
    SweepStarted,
    TrialOutcome,
)
from tests.flips import one_bit_flipped, unsealed
from tests.lossy_disk import LossyDisk, no_room_beyond
from tests.record.every_event import EVENTS, events_of
from tests.tracking.scenes import finish, report, sweep_started


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


def test_what_append_has_taken_survives_kill_9(path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from automl.record.event_log import EventLog\n"
        "from tests.tracking.scenes import report\n"
        "log = EventLog.open(pathlib.Path(sys.argv[1]))\n"
        "for step in range(10**6):\n"
        "    log.append(report(0, step))\n"
        "    print(step, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) == 500:
                writer.kill()
                break
        last = int((line + writer.stdout.read()).split()[-1])
    steps = [event.step for event in events_of(path) if isinstance(event, MetricsReported)]
    assert steps == list(range(len(steps)))
    assert len(steps) > last


def test_a_full_disk_is_told_and_stays_told(path: Path) -> None:
    """No byte beyond 4,000 can be written to a file in that process."""
    code = (
        "import sys, pathlib, resource\n"
        "from automl.errors import StorageError\n"
        "from automl.record.event_log import EventLog\n"
        "from tests.tracking.scenes import begin, report\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        "log = EventLog.open(pathlib.Path(sys.argv[1]))\n"
        "n, told = 0, []\n"
        "for event in [*(report(0, step) for step in range(99)), begin(1)]:\n"
        "    try:\n"
        "        n += log.append(event)\n"
        "    except StorageError as error:\n"
        "        told.append(str(error))\n"
        "log.close()\n"
        "import json; print(json.dumps([n, told]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    n_taken, told = json.loads(done.stdout)
    assert 0 < n_taken < 99
    assert len(told) == 100 - n_taken
    assert all("make room" in message and str(path) in message for message in told)
    assert len(events_of(path)) == n_taken
    with EventLog.open(path) as log:  # room was made: the torn line is cut, and on it goes
        assert log.append(report(0, n_taken))
    assert len(events_of(path)) == n_taken + 1


def left_of(disk: LossyDisk, path: Path) -> list[Event]:
    """The events that are still there after a power cut now."""
    return events_of(disk.after_power_cut() / path.name)


@pytest.mark.parametrize(
    "event",
    [event for event in EVENTS if isinstance(event, TrialOutcome | SweepStarted | SweepEnded)],
)
def test_what_must_not_be_lost_is_on_disk_when_append_returns(
    event: Event, path: Path, lossy_disk: LossyDisk
) -> None:
    with EventLog.open(path) as log:
        log.append(report(0, 0))
        log.append(event)
        assert left_of(lossy_disk, path) == [report(0, 0), event]


def test_a_report_gets_to_disk_by_itself(path: Path, lossy_disk: LossyDisk) -> None:
    with EventLog.open(path) as log:
        for step in range(3):
            log.append(report(0, step))
            while lossy_disk.flushed.get(timeout=300) != path:
                pass
            assert lossy_disk.content(path) == path.read_bytes()


def test_a_write_that_failed_refuses_everything_after(path: Path) -> None:
    """There is room again, but half of a line is in the file: nothing may be glued onto it."""
    with EventLog.open(path) as log:
        log.append(report(0, 0))
        with (
            no_room_beyond(path.stat().st_size + 20),
            pytest.raises(StorageError, match=r"File too large.*make room"),
        ):
            log.append(report(0, 1))
        for event in (report(0, 1), report(0, 0), finish(0), sweep_started()):
            with pytest.raises(StorageError, match="File too large"):
                log.append(event)
    assert events_of(path) == [report(0, 0)]
    with EventLog.open(path) as log:
        log.append(report(0, 1))
    assert events_of(path) == [report(0, 0), report(0, 1)]


def test_an_outcome_whose_flush_failed_is_not_taken(path: Path, lossy_disk: LossyDisk) -> None:
    with EventLog.open(path) as log:
        lossy_disk.fail_next_flush(OSError(errno.EIO, "Input/output error"))
        for _ in range(2):
            with pytest.raises(StorageError, match=r"events\.log cannot be written \(Input/output"):
                log.append(finish(0))


def test_a_flush_that_failed_refuses_everything_after(path: Path, lossy_disk: LossyDisk) -> None:
    with EventLog.open(path) as log:
        lossy_disk.fail_next_flush(OSError(errno.EIO, "Input/output error"))
        log.append(report(0, 0))
        (thread,) = (thread for thread in threading.enumerate() if thread.name == "events.log")
        thread.join(timeout=300)  # it ends with the first failure
        with pytest.raises(StorageError, match=r"events\.log cannot be written \(Input/output"):
            log.append(report(0, 1))


def test_a_last_flush_that_failed_is_told_by_close(path: Path, lossy_disk: LossyDisk) -> None:
    log = EventLog.open(path)
    lossy_disk.fail_next_flush(OSError(errno.EIO, "Input/output error"))
    log.append(report(0, 0))
    with pytest.raises(StorageError, match=r"events\.log cannot be written \(Input/output"):
        log.close()
    log.close()


def test_a_flipped_bit_costs_its_line_and_changes_none(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EventLog.open(path) as log:
        for event in EVENTS:
            log.append(event)
    for content in one_bit_flipped(path.read_bytes(), 300):
        path.write_bytes(content)
        with caplog.at_level(logging.WARNING):
            events = events_of(path)
        left = iter(EVENTS)
        assert all(event in left for event in events), "in their order, and none is another"
        if len(events) < len(EVENTS) - 1:  # a lost newline costs the line after it, too
            assert "is no event and is left out" in caplog.text
        caplog.clear()


def test_a_flipped_bit_of_a_log_without_checksums_is_no_error(path: Path) -> None:
    with EventLog.open(path) as log:
        for event in EVENTS:
            log.append(event)
    assert unsealed(path.read_bytes()) != path.read_bytes()
    for content in one_bit_flipped(unsealed(path.read_bytes()), 300):
        path.write_bytes(content)
        EventLog.open(path).close()
