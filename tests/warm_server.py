"""The servers of `warm_start.py`: `python -P -m tests.warm_server KIND DATABASE FD`, started by it
alone.

One has one thread, so its forks are whole. Each job comes over the socket FD with three files; the
answer is a process id. When that socket closes, it ends.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from multiprocessing import forkserver, util
from pathlib import Path
from typing import Any, NoReturn

from automl.tracking.mlflow_loading import load_lean, set_delivery_environment, without_extras
from automl.tracking.tracking_uri import TrackingUri

DELIVERER = "automl.tracking.deliver.process"
PROGRAM = "automl"
"""The modules that the forks of a server become."""
STOPPED = "AUTOML_TESTS_STOPPED"
"""The variable by which a program begins stopped, for a tracer; SIGCONT lets it go on."""
MESSAGE_BYTES = 128 * 1024
_LOADED = {
    DELIVERER: (DELIVERER, "automl.tracking.deliver.study_delivery"),
    PROGRAM: ("tests.preloaded", "automl.running.run_sweep", "automl.cli.command_steps", "hydra"),
}
"""What a fork of each kind begins with: imported, and never run."""
_STATELESS = ("automl.config", "automl.errors", "automl.trial")
"""Parts that hold classes alone. Nearly all of their import is the making of dataclasses."""


def load(kind: str, database: Path) -> None:
    """What the module loads, and what opening its first store loads besides."""
    gc.disable()
    before = dict(os.environ)
    set_delivery_environment(os.environ)
    load_lean("automl.tracking.deliver.study_delivery")
    with tempfile.TemporaryDirectory() as folder, without_extras():
        from automl.tracking.mlflow_store import open_client

        path = shutil.copyfile(database, Path(folder, "mlflow.db"))
        open_client(TrackingUri(f"sqlite:///{path}", "tracking.uri"))
    os.environ.clear()
    os.environ.update(before)
    forget_ours()  # what has just run; to load modules of ours anew takes a program 0.9 s of a core
    for module in _LOADED[kind]:
        importlib.import_module(module)
    gc.freeze()


def serve(kind: str, requests: socket.socket) -> None:
    """Fork for each job, until nobody can ask any more."""
    size = socket.CMSG_SPACE(3 * array.array("i").itemsize)
    while True:
        text, ancillary, _, _ = requests.recvmsg(MESSAGE_BYTES, size)
        if not text:
            return
        fds = array.array("i", ancillary[0][2]).tolist()
        requests.send(str(orphan(kind, json.loads(text), fds)).encode())
        for fd in fds:
            os.close(fd)


def orphan(kind: str, job: Mapping[str, Any], fds: Sequence[int]) -> int:
    """A process whose parent has ended: whoever adopts orphans is its parent now."""
    reads, writes = os.pipe()
    if (between := os.fork()) == 0:
        if (child := os.fork()) == 0:
            become(kind, job, fds)
        os.write(writes, str(child).encode())
        os._exit(0)
    os.waitpid(between, 0)
    child = int(os.read(reads, 32))
    os.close(reads)
    os.close(writes)
    return child


def become(kind: str, job: Mapping[str, Any], fds: Sequence[int]) -> NoReturn:
    """Run the module as a program that was started with these."""
    with ending():
        if job["new_session"]:
            os.setsid()
        take_files(fds, ())
        os.umask(job["umask"])
        os.chdir(job["folder"])
        os.environ.clear()
        os.environ.update(job["environment"])
        if os.environ.pop(STOPPED, None):
            os.kill(os.getpid(), signal.SIGSTOP)
        if kind == PROGRAM:
            gc.enable()
            sys.path.insert(0, job["folder"])
            fork_children()
        run(kind, job["words"])
    raise AssertionError("it has ended")


def take_files(fds: Sequence[int], kept: Collection[int]) -> None:
    """Standard input, output and error, and no others but those kept."""
    for fd, target in zip(fds, (0, 1, 2), strict=True):
        if fd != target:
            os.dup2(fd, target)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in kept:
            with contextlib.suppress(OSError):  # that of the listing is closed already
                os.close(fd)


def run(module: str, words: Sequence[str]) -> None:
    """As `python -m MODULE WORDS` does."""
    sys.modules.pop(module if module != PROGRAM else f"{PROGRAM}.__main__", None)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def forget_ours() -> None:
    """What modules of ours have in memory is not for who begins; the vocabulary has nothing."""
    for name in [name for name in sys.modules if f"{name}.".startswith("automl.")]:
        if not name.startswith(_STATELESS):
            del sys.modules[name]


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """This process ends with the block, as a program does with its main module."""
    code: object = 1
    try:
        atexit._clear()
        atexit.register(util._exit_function)  # type: ignore[attr-defined]
        yield
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:  # noqa: BLE001  as the interpreter tells of it
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 1)


# --- in a program that was forked -----------------------------------------------------------------


def fork_children() -> None:
    """Its delivering process and its fork server are forked from it too, while it has begun nothing
    but to count the seconds of loading; what it starts later is started as ever."""
    import _posixsubprocess

    real = _posixsubprocess.fork_exec

    def fork_exec(args: Sequence[Any], *rest: Any) -> int:
        words = [os.fsdecode(word) for word in args[1:]]
        delivers = words == ["-P", "-m", DELIVERER]
        serves = bool(words) and words[-1].startswith("from multiprocessing.forkserver import main")
        if not (may_fork() and (delivers or serves)):
            return int(real(args, *rest))
        # A signal waits: Python ignores what its handler raises in the hooks that follow a fork.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        pid = os.fork()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if pid != 0:
            return pid
        with ending():
            start_by(real)
            begin(*rest)
            forget_ours()  # the program has run some of it
            run(DELIVERER, ()) if delivers else serve_workers(words[-1])
        raise AssertionError("it has ended")

    start_by(fork_exec)


def may_fork() -> bool:
    """Return whether no thread may hold a lock: there is none but those that wait to say that a
    step takes long."""
    others = [thread for thread in threading.enumerate() if thread.name != "long-step"]
    return len(others) == 1 and len(os.listdir("/proc/self/task")) == threading.active_count()


def start_by(fork_exec: Any) -> None:
    """How this process starts others from now on."""
    import _posixsubprocess

    for module, name in ((_posixsubprocess, "fork_exec"), (subprocess, "_fork_exec")):
        setattr(module, name, fork_exec)


def begin(*rest: Any) -> None:
    """What a program that was started with these arguments of `fork_exec`'s begins with."""
    kept, environment, pipes = rest[2], rest[4], (rest[5], rest[8], rest[10])
    error_pipe, new_session = rest[12], rest[14]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    files = [own if fd == -1 else fd for own, fd in enumerate(pipes)]
    take_files(files, set(kept) - {error_pipe})  # whose end says that it has begun
    if new_session:
        os.setsid()
    if environment is not None:
        os.environ.clear()
        os.environ.update(dict(os.fsdecode(entry).split("=", 1) for entry in environment))


def serve_workers(code: str) -> None:
    """Be the fork server whose program is `code`."""
    forkserver._forkserver.__init__()  # type: ignore[misc]  # this process has none of its own
    exec(code, {"__name__": "__main__"})


if __name__ == "__main__":
    load(sys.argv[1], Path(sys.argv[2]))
    serve(sys.argv[1], socket.socket(fileno=int(sys.argv[3])))
