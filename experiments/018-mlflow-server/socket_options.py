"""Milliseconds of a call over a kept connection, by what the client sets on its socket, and when.

python experiments/018-mlflow-server/socket_options.py
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import urllib3
from urllib3.connection import HTTPConnection

HERE = Path(__file__).parent
N_CALLS = 60
QUICK_ACK = (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


class Plain(HTTPConnection):
    """As urllib3 has it: TCP_NODELAY, nothing else."""


class AtConnect(HTTPConnection):
    """TCP_QUICKACK once, when the connection is made."""

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(*QUICK_ACK)


class BeforeEachRequest(HTTPConnection):
    """TCP_QUICKACK before a request is sent."""

    def putrequest(self, *args: object, **kwargs: object) -> None:
        if self.sock is not None:
            self.sock.setsockopt(*QUICK_ACK)
        super().putrequest(*args, **kwargs)  # type: ignore[arg-type]


class BeforeEachAnswer(HTTPConnection):
    """TCP_QUICKACK when a request is sent and before its answer is read."""

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        self.sock.setsockopt(*QUICK_ACK)
        return super().getresponse()


class NewEachTime(HTTPConnection):
    """No kept connection."""


@contextmanager
def serving(n_workers: int) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    words = ["answers:app", "--port", str(port), "--workers", str(n_workers)]
    command = [sys.executable, "-m", "uvicorn", *words, "--log-level", "error", "--no-access-log"]
    with subprocess.Popen(command, cwd=HERE) as server:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield port
        finally:
            server.terminate()


def milliseconds(port: int, kind: type[HTTPConnection]) -> float:
    """The median call of `N_CALLS` over one connection, the first ten apart."""
    headers = {"Connection": "close"} if kind is NewEachTime else {}
    seconds = []
    with urllib3.HTTPConnectionPool("127.0.0.1", port, headers=headers) as pool:
        pool.ConnectionCls = kind
        for _ in range(N_CALLS):
            begun = time.perf_counter()
            pool.request("POST", "/", body=b'{"a": 1}')
            seconds.append(time.perf_counter() - begun)
    return 1000 * median(seconds[10:])


def main() -> None:
    kinds = (Plain, AtConnect, BeforeEachRequest, BeforeEachAnswer, NewEachTime)
    say = sys.stdout.write
    say("| workers | " + " | ".join(kind.__name__ for kind in kinds) + " |\n")
    say("|---|" + "---|" * len(kinds) + "\n")
    for n_workers in (1, 2, 4):
        with serving(n_workers) as port:
            figures = [f"{milliseconds(port, kind):.1f}" for kind in kinds]
        say(f"| {n_workers} | " + " | ".join(figures) + " |\n")


if __name__ == "__main__":
    main()
