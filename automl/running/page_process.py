"""The process that makes a study's page again and again; only `live_page.py` starts it.

It holds no lock of the study, and reads its event log as the `report` command does. The end of its
standard input means that the sweep broke off or was killed: it makes the last page, and ends.
"""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path

from automl.record.stop_signals import ignore_stop_signals
from automl.record.studies import is_at_work
from automl.running.features.live_page import MIN_INTERVAL_SECONDS, interval_seconds
from automl.running.features.report_page import make_report

NICENESS = 19
"""Niceness of the process: it runs where nothing else wants the CPU."""
RELEASE_SECONDS = 60.0
"""Longest time, in seconds, that a sweep which broke off is expected to hold its study."""


def main(directory: Path) -> None:
    """Make pages until the input ends, and then the last one. Raises AutoMLError."""
    ignore_stop_signals()
    os.nice(NICENESS)
    pause_seconds, spent_seconds, is_over = MIN_INTERVAL_SECONDS, 0.0, False
    while not is_over:
        with suppress(FileExistsError):  # `report` writes the same page just now
            make_report(directory, is_running=True, refresh_seconds=pause_seconds)
        cost_seconds = time.process_time() - spent_seconds
        spent_seconds += cost_seconds
        pause_seconds = interval_seconds(cost_seconds)
        is_over = bool(select.select([sys.stdin], [], [], pause_seconds)[0])
    until_seconds = time.monotonic() + RELEASE_SECONDS
    while (is_running := is_at_work(directory) is True) and time.monotonic() < until_seconds:
        time.sleep(0.2)
    make_report(directory, is_running=is_running)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
