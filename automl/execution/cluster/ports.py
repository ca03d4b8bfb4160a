"""What a TCP port tells of the process behind it, and of its machine: `HOST:PORT`."""

from __future__ import annotations

import socket
from contextlib import suppress

_CONNECT_SECONDS = 2.0


def listen(host: str) -> socket.socket | None:
    """A port that takes connections as long as this process lives; nothing is ever said there.
    None: the machine does not know itself by that name."""
    with suppress(OSError):
        return socket.create_server((host, 0))
    return None


def address_of(listening: socket.socket) -> str:
    """For others."""
    host, port, *_ = listening.getsockname()
    return f"{host}:{port}"


def answers(address: str) -> bool:
    """Whether a connection is taken there now."""
    try:
        _connect(address)
    except OSError:
        return False
    return True


def refuses(address: str) -> bool:
    """Whether the machine says that no process listens there. One that is cut off says nothing."""
    try:
        _connect(address)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
