"""Answers over kept connections are acknowledged at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from mlflow.utils.request_utils import _get_request_session
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from automl.tracking.mlflow_loading import (
    QuickConnection,
    QuickHttpsConnection,
    quicken_answers,
)


@contextmanager
def answering(n: int) -> Iterator[int]:
    """The port of a server that answers `n` requests over one connection, each in two pieces."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for _ in range(n):
                    while b"\r\n\r\n" not in connection.recv(4096):
                        pass
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
                    connection.sendall(b"{}")
                assert connection.recv(1) == b"", "the client closes it"

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield int(listener.getsockname()[1])
        serving.join()


class Watched(socket.socket):
    """A socket that notes what is done with it."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected.family, connected.type, connected.proto, connected.detach())
        self.done: list[str] = []

    def sendall(self, *args: Any) -> None:
        self.done.append("asks")
        super().sendall(*args)

    def setsockopt(self, *args: Any) -> None:
        if args == (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1):
            self.done.append("acknowledges at once")
        super().setsockopt(*args)

    def recv_into(self, *args: Any) -> int:
        self.done.append("reads")
        return super().recv_into(*args)


def test_each_answer_of_a_kept_connection_is_acknowledged_at_once() -> None:
    """Set before a request is sent, it does not hold until the answer comes."""
    with answering(3) as port:
        connection = QuickConnection("127.0.0.1", port)
        connection.connect()
        assert isinstance(connection.sock, socket.socket)
        connection.sock = watched = Watched(connection.sock)
        for _ in range(3):
            watched.done.clear()
            connection.request("GET", "/")
            assert connection.getresponse().data == b"{}"
            assert watched.done[:3] == ["asks", "acknowledges at once", "reads"]
        connection.close()


def test_mlflows_own_sessions_are_made_of_such_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for pool in (HTTPConnectionPool, HTTPSConnectionPool):
        monkeypatch.setattr(pool, "ConnectionCls", pool.ConnectionCls)  # put back at the end
    quicken_answers()
    session = _get_request_session(0, 0, 0.0, (), False, True)  # type: ignore[no-untyped-call]
    for scheme, kind in (("http", QuickConnection), ("https", QuickHttpsConnection)):
        adapter = session.get_adapter(f"{scheme}://127.0.0.1")
        pool = adapter.poolmanager.connection_from_host("127.0.0.1", 80, scheme)
        assert pool.ConnectionCls is kind
