"""What belongs to a sweep leaves signals that ask to stop to it; what a user starts does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = """
import os, signal, subprocess, sys, time
from automl.record.stop_signals import ignore_stop_signals
ignore_stop_signals()
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    os.kill(os.getpid(), number)
"""
FORKED = """
codes = set()
for _ in range(50):  # ended before it can do anything
    pid = os.fork()
    if pid == 0:
        time.sleep(10)
        os._exit(1)
    os.kill(pid, signal.SIGTERM)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(*codes)
"""
STARTED = """
child = subprocess.Popen(["sleep", "60"])
child.terminate()
print(child.wait(300))
"""


@pytest.mark.parametrize("then", [FORKED, STARTED], ids=["forked", "started"])
def test_it_lives_on_and_can_end_what_it_starts(then: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + then], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "-15\n", "")
