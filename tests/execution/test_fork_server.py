"""What the fork server has before its children: their collector works, and passes it by."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from multiprocessing.connection import Connection

from automl.execution.process import CONTEXT, preload, start_child


def tell(ours: Connection) -> None:
    """In a child: whether it collects garbage, and how many objects it leaves to the server."""
    ours.send((gc.isenabled(), gc.get_freeze_count(), os.getppid()))


def see_two() -> None:
    preload("json")
    for _ in range(2):
        ours, theirs = CONTEXT.Pipe()
        child = start_child("tells", tell, theirs)
        collects, n_frozen, server = ours.recv()
        child.join()
        assert child.exitcode == 0
        assert collects
        assert n_frozen > 10_000, "the modules of the server"
        assert server != os.getpid()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0, "here nothing has changed"


def test_children_collect_their_own_garbage_alone() -> None:
    """In a process of its own: the server of this one may be running already."""
    # Imported, since no child sees the main module.
    subprocess.run([sys.executable, "-c", f"import {__name__} as t; t.see_two()"], check=True)
