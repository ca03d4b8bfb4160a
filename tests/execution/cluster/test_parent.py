"""An agent learns of the end of what started it: of Ray's process on its node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WATCHING = """
from automl.execution.cluster.agent import ParentWatch
parent = ParentWatch()
print("ended" if parent.has_ended(0) else "lives", flush=True)
print("ended" if parent.has_ended(3600) else "lives", flush=True)
"""
STARTING = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1]])
time.sleep(3600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is looked at now and then")
def test_the_end_of_what_started_it_is_known_at_once_even_of_a_zombie() -> None:
    """A look that may take an hour ends with it."""
    command = [sys.executable, "-c", STARTING, WATCHING]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=-1, text=True, env=environment) as starting:
        assert starting.stdout is not None
        assert starting.stdout.readline() == "lives\n"
        os.kill(starting.pid, signal.SIGKILL)
        assert starting.stdout.readline() == "ended\n"
