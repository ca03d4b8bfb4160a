"""The end of a worker: what was registered for it is called, and what the worker started is ended.

A process of multiprocessing's calls no `atexit` hook (before Python 3.14), and has those of the
server that it was forked from, which are not its own.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import sys
import weakref
from multiprocessing import util
from typing import Any, NoReturn

from automl.execution.descendants import adopt_orphans
from automl.execution.isolation.left import end_processes, started
from automl.execution.streams import flush


def begin_life() -> None:
    """Before anything of the user's runs. What the hooks below do is done last, in their order from
    the last to the first."""
    adopt_orphans()
    # The server's own method, forkserver, is that of its children, who may then say no other; a
    # DataLoader would begin with a server of its own, and take no data set that is not picklable.
    multiprocessing.set_start_method(None, force=True)
    for inherited in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # no other way
        inherited.atexit = False
    atexit._clear()
    atexit.register(util._exit_function)  # type: ignore[attr-defined]  # as multiprocessing does where it calls hooks
    atexit.register(end_processes, started)
    atexit.register(logging.shutdown)
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]  # ours was cleared


def end_life() -> NoReturn:
    """Call what was registered, and end. It waits for no thread that a user's code left behind."""
    _dismiss_compiler(sys.modules.get("torch._inductor.async_compile"))
    atexit._run_exitfuncs()  # what one raises is printed, and the next is called
    for stream in (sys.stdout, sys.stderr):
        flush(stream)
    os._exit(0)


def _dismiss_compiler(module: Any) -> None:
    """torch's would wait many seconds for its processes, twice, which have nothing to write."""
    if module is not None:
        atexit.unregister(module.shutdown_compile_workers)
        for pool in module._pool_set:
            pool.running = False
