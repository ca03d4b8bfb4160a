"""What makes the programs of these tests cheap (`tests/warm.py`): they load no library."""

from __future__ import annotations

import psutil
import pytest

from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records

pytestmark = pytest.mark.slow


def test_each_process_of_a_forked_sweep_is_forked(program: Program) -> None:
    """A sweep that loads its libraries takes three times as much of a core."""
    records = Records(program.folder, "warm")
    running = program.start(
        "study.name=warm", "devices.only=cpu", *objective_words("waits_half_way")
    )
    running.wait_until(lambda: bool(records.losses()), "a report")
    processes = psutil.Process(running.process.pid).children(recursive=True)
    commands = [" ".join(process.cmdline()) for process in processes]
    started = [words for words in commands if "tests.warm_server" not in words]
    assert len(commands) - len(started) >= 3  # the deliverer, the fork server and a worker
    assert all("multiprocessing.resource_tracker" in words for words in started), started
