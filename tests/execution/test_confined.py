"""Code that nobody vouches for, called in a process of which nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from automl.execution.child_calls import ProcessConfinement, call_confined, stream_confined
from automl.trial import ProcessEntry
from tests.execution.supervised import wait_until
from tests.processes import is_running

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

ENDS = ProcessEntry(f"{__name__}:leave_a_daemon")


def leave_a_daemon(config: object) -> list[int]:
    daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
    return [os.getppid(), os.getpid(), daemon.pid]


def stream_and_leave_a_daemon(config: object) -> Iterator[list[int]]:
    yield leave_a_daemon(config)


def hang_with_a_daemon(folder: str) -> None:
    pids = " ".join(map(str, leave_a_daemon(None)))
    Path(folder, "pids.part").write_text(pids)
    Path(folder, "pids.part").rename(Path(folder, "pids"))
    time.sleep(600)


def test_nothing_that_it_started_is_left() -> None:
    pids = call_confined(ENDS, ProcessConfinement())
    assert isinstance(pids, list)
    assert not any(map(is_running, pids))


def test_nothing_is_left_though_nobody_asks_for_more() -> None:
    entry = ProcessEntry(f"{__name__}:stream_and_leave_a_daemon")
    with closing(stream_confined(entry, ProcessConfinement())) as items:
        pids = next(items)
        assert isinstance(pids, list)
        assert wait_until(lambda: not is_running(pids[0]), 60), "what supervises it"
        assert not any(map(is_running, pids))


CALLING = f"""
import sys
from automl.execution.child_calls import ProcessConfinement, call_confined
from automl.execution.worker_process import preload_fork_server
from automl.trial import ProcessEntry
if __name__ == "__main__":
    preload_fork_server()
    entry = ProcessEntry("{__name__}:hang_with_a_daemon", sys.argv[1])
    call_confined(entry, ProcessConfinement(600))
"""


def test_nothing_outlives_a_caller_that_is_killed(tmp_path: Path) -> None:
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLING, str(tmp_path)], cwd=Path(__file__).parents[2]
    )
    assert wait_until((tmp_path / "pids").exists, 60), "it never began"
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert all(map(is_running, pids))
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    assert wait_until(lambda: not any(map(is_running, pids)), 5.0)
