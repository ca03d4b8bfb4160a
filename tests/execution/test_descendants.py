"""The processes below a process, seen while they come and go."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from automl.execution.process_tree import find_descendants, kill_descendants

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def test_of_one_that_has_ended_there_are_none() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
        assert find_descendants(ended.pid) == []
        kill_descendants(ended.pid)


def test_all_below_are_found_parents_first_and_ended() -> None:
    tree = "sleep 600 & sh -c 'sleep 600 & echo ready; wait' & wait"
    with subprocess.Popen(["sh", "-c", tree], stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        assert top.stdout.readline() == "ready\n"
        found = find_descendants(top.pid)
        assert len(found) == 3
        places = {pid: place for place, pid in enumerate(found)}
        parents = {pid: psutil.Process(pid).ppid() for pid in found}
        assert all(places.get(parent, -1) < places[pid] for pid, parent in parents.items())
        kill_descendants(top.pid)
        assert find_descendants(top.pid) == []
        top.wait()
