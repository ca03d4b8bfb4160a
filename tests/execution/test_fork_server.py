"""What the fork server has before its children: their collector works, and passes it by."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path

from automl.execution.worker_process import (
    FORK_SERVER_CONTEXT,
    preload_fork_server,
    start_forked_child,
)
from tests.end_to_end.program import wait_until
from tests.processes import is_running


def tell(ours: Connection) -> None:
    """In a child: whether it collects garbage, and how many objects it leaves to the server."""
    ours.send((gc.isenabled(), gc.get_freeze_count(), os.getppid()))


def nothing() -> None:
    """What a child does that is only to be started."""


def see_two() -> None:
    preload_fork_server("json")
    for _ in range(2):
        ours, theirs = FORK_SERVER_CONTEXT.Pipe()
        child = start_forked_child("tells", tell, theirs)
        collects, n_frozen, server = ours.recv()
        child.join()
        assert child.exitcode == 0
        assert collects
        assert n_frozen > 10_000, "the modules of the server"
        assert server != os.getpid()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0, "here nothing has changed"


def interrupt_two() -> None:
    """Ctrl-C reaches a server that has just been started, by the first and by its successor."""

    def begin() -> None:
        for start in (
            lambda: preload_fork_server("json"),
            lambda: start_forked_child("is nothing", nothing),
        ):
            start()
            server: int = vars(forkserver._forkserver)["_forkserver_pid"]
            os.kill(server, signal.SIGINT)
            ours, theirs = FORK_SERVER_CONTEXT.Pipe()
            child = start_forked_child("tells", tell, theirs)
            assert ours.recv()[-1] == server, "the one that was interrupted"
            child.join()
            os.kill(server, signal.SIGKILL)

    before = signal.getsignal(signal.SIGINT)
    thread = ThreadPoolExecutor().submit(begin)
    thread.result()
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_a_server_that_starts_takes_no_notice_of_ctrl_c() -> None:
    """Nor where a sweep was called in a thread, which may not say what a signal does."""
    subprocess.run([sys.executable, "-c", f"import {__name__} as t; t.interrupt_two()"], check=True)


def test_children_collect_their_own_garbage_alone() -> None:
    """In a process of its own: the server of this one may be running already."""
    # Imported, since no child sees the main module.
    subprocess.run([sys.executable, "-c", f"import {__name__} as t; t.see_two()"], check=True)


def load_for_ever() -> None:
    """Start a server that never comes to its first child, which is asked for, and die."""
    preload_fork_server("never_loaded")
    forkserver.connect_to_new_process([])  # a request that the server does not take
    sys.stdout.write(str(vars(forkserver._forkserver)["_forkserver_pid"]))
    sys.stdout.flush()
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_server_ends_with_its_sweep_even_while_it_loads(tmp_path: Path) -> None:
    (tmp_path / "never_loaded.py").write_text(
        "open('loads', 'w').close()\nsum(range(10**12))"  # no signal's handler is called in it
    )
    sweep = subprocess.Popen(
        [sys.executable, "-c", f"import {__name__} as t; t.load_for_ever()"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until((tmp_path / "loads").exists, "the server loads")
    server, _ = sweep.communicate("die\n")
    try:
        wait_until(lambda: not is_running(int(server)), "the server's end")
    except TimeoutError:
        os.kill(int(server), signal.SIGKILL)
        raise
