"""The server of `warm.py`: `python -m tests.warm_server DATABASE FD`, started by it alone.

It has one thread, so its forks are whole. Each job comes over the socket FD with three files; the
answer is a process id. When that socket closes, it ends.
"""

from __future__ import annotations

import array
import gc
import json
import os
import runpy
import shutil
import socket
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from automl.tracking.environment import set_for_delivery
from automl.tracking.lean import load_lean, without_extras
from automl.tracking.uri import TrackingUri

MODULE = "automl.tracking.deliver"
"""What its forks become."""
MESSAGE_BYTES = 128 * 1024


def load(database: Path) -> None:
    """What the delivering process loads, and what opening its first store loads besides."""
    gc.disable()
    set_for_delivery(os.environ)
    load_lean("automl.tracking.study_delivery")
    with tempfile.TemporaryDirectory() as folder, without_extras():
        from automl.tracking.store import open_client

        path = shutil.copyfile(database, Path(folder, "mlflow.db"))
        open_client(TrackingUri(f"sqlite:///{path}", "tracking.uri"))
    gc.freeze()


def serve(requests: socket.socket) -> None:
    """Fork for each job, until nobody can ask any more."""
    size = socket.CMSG_SPACE(3 * array.array("i").itemsize)
    while True:
        text, ancillary, _, _ = requests.recvmsg(MESSAGE_BYTES, size)
        if not text:
            return
        fds = array.array("i", ancillary[0][2]).tolist()
        requests.send(str(orphan(json.loads(text), fds)).encode())
        for fd in fds:
            os.close(fd)


def orphan(job: Mapping[str, Any], fds: Sequence[int]) -> int:
    """A process whose parent has ended: whoever adopts orphans is its parent now."""
    reads, writes = os.pipe()
    if (between := os.fork()) == 0:
        if (child := os.fork()) == 0:
            become(job, fds)
        os.write(writes, str(child).encode())
        os._exit(0)
    os.waitpid(between, 0)
    child = int(os.read(reads, 32))
    os.close(reads)
    os.close(writes)
    return child


def become(job: Mapping[str, Any], fds: Sequence[int]) -> NoReturn:
    """Run the module as a program that was started with these."""
    code: object = 1
    try:
        if job["new_session"]:
            os.setsid()
        for fd, target in zip(fds, (0, 1, 2), strict=True):
            os.dup2(fd, target)
        os.closerange(3, 256)
        os.umask(job["umask"])
        os.chdir(job["folder"])
        os.environ.clear()
        os.environ.update(job["environment"])
        sys.modules.pop(MODULE, None)
        runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as any program does
        traceback.print_exc()
    finally:
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    load(Path(sys.argv[1]))
    serve(socket.socket(fileno=int(sys.argv[2])))
