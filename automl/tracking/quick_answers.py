"""Answers of a server over kept connections without the wait of a delayed acknowledgement.

uvicorn writes an answer in two pieces, and of several of its workers none sets TCP_NODELAY: the
second piece waits until the first is acknowledged, which Linux does 40 ms later. TCP_QUICKACK has
it done at once; it does not last, so it is set before each answer (at the connection's begin, or
before each request, it changes nothing: `experiments/018-mlflow-server/socket_options.py`).
"""

from __future__ import annotations

import socket

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import HTTPResponse


class QuickConnection(HTTPConnection):
    """Plain HTTP."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3's own
        _acknowledge_at_once(self.sock)
        return super().getresponse()


class QuickHttpsConnection(HTTPSConnection):
    """HTTP over TLS, where the wait is the same."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3's own
        _acknowledge_at_once(self.sock)
        return super().getresponse()


def quicken_answers() -> None:
    """For all of this process from now on: MLflow makes its sessions where nobody can reach."""
    HTTPConnectionPool.ConnectionCls = QuickConnection
    HTTPSConnectionPool.ConnectionCls = QuickHttpsConnection


def _acknowledge_at_once(connection: socket.socket | None) -> None:
    if connection is not None and hasattr(socket, "TCP_QUICKACK"):  # Linux
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
