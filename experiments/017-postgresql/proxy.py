"""A network between a sweep and its PostgreSQL: it delays what is asked, and cuts connections.

    python experiments/017-postgresql/proxy.py PORT DELAY_SECONDS

passes on to that port of loopback, and prints the port that it listens to.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from contextlib import suppress

_CHUNK_BYTES = 2**16
_AT_ONCE = struct.pack("ii", 1, 0)
"""For SO_LINGER: closed by a reset, as a network that is gone never says goodbye."""


class Proxy:
    """Listens from its making on; `serve` takes connections until the process ends."""

    def __init__(self, port: int, delay_seconds: float = 0.0) -> None:
        self._to, self._delay_seconds = port, delay_seconds
        """The delay is on the way to the server alone: one for a question and its answer."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._is_cut = False

    def start(self) -> Proxy:
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def serve(self) -> None:
        while True:
            client, _ = self._listening.accept()
            if self._is_cut:
                _reset(client)
                continue
            server = socket.create_connection(("127.0.0.1", self._to))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open |= {client, server}
            for source, sink, delay in ((client, server, self._delay_seconds), (server, client, 0)):
                words = (source, sink, float(delay))
                threading.Thread(target=self._pass_on, args=words, daemon=True).start()

    def cut(self, seconds: float) -> None:
        """All connections, and new ones for so long."""
        self._is_cut = True
        for end in list(self._open):
            _reset(end)
        time.sleep(seconds)
        self._is_cut = False

    def _pass_on(self, source: socket.socket, sink: socket.socket, delay_seconds: float) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                if delay_seconds:
                    time.sleep(delay_seconds)
                sink.sendall(data)
        for end in (source, sink):
            self._open.discard(end)
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _reset(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    proxy = Proxy(int(sys.argv[1]), float(sys.argv[2]))
    sys.stdout.write(f"{proxy.port}\n")
    sys.stdout.flush()
    proxy.serve()
