"""A proxy before an MLflow server, with the faults of real ones: what arrives twice, what fails,
what is lost on its way, and what comes late."""

from __future__ import annotations

import http.client
import random
import sys
import threading
from collections import Counter
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

CREATE = "/mlflow/runs/create"


class NetworkFault(Enum):
    """What befalls a request or its reply on the way."""

    DROPPED = "dropped"
    DOUBLED = "doubled"
    LATE = "late"


class BadNetwork:
    """Lets a fault of one kind befall one request in ten, and one reply in ten."""

    def __init__(self, fault: NetworkFault, late_seconds: float, seed: int = 0) -> None:
        self.fault, self.late_seconds = fault, late_seconds
        self.n_struck = Counter[str]()
        """How many of the requests and replies the fault has befallen."""
        self._chance, self._lock = random.Random(seed), threading.Lock()

    def strikes(self, what: str) -> NetworkFault | None:
        """Return what befalls the next `request` or `reply`, if anything."""
        with self._lock:
            if self._chance.random() >= 0.1:
                return None
            self.n_struck[what] += 1
            return self.fault

    def wait(self) -> None:
        """Let as much time pass as what is late takes longer."""
        threading.Event().wait(self.late_seconds)


class Proxy:
    """Passes requests on to the server at `port`; each create is delivered twice, if it `doubles`.

    A request whose body holds a word of `refused` is answered as by a server that fails over it;
    one without `wanted` as its Authorization, where that is given, with 401; and every one with
    `failing`, while that status is set, as by a proxy whose server is away. It listens to the port
    `at` (0: one that is free).
    """

    def __init__(
        self,
        port: int,
        refused: bytes = b"",
        *,
        takes_files: bool = True,
        doubles: bool = True,
        at: int = 0,
        wanted: str | None = None,
        network: BadNetwork | None = None,
    ) -> None:
        self.failing: int | None = None
        self.requests: list[str] = []
        """What arrived: its method and path."""
        self.n_doubled = 0
        self.n_refused = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # both copies of a reply go at once: else one would answer the next call

            def do_GET(self) -> None:
                self._take()

            def do_POST(self) -> None:
                self._take()

            def do_DELETE(self) -> None:
                self._take()

            def do_PUT(self) -> None:
                if takes_files:
                    self._take()
                else:
                    self.rfile.read(int(self.headers.get("Content-Length", 0)))
                    self._answer(501, b"no files here")

            def _take(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                proxy.requests.append(f"{self.command} {self.path}")
                if proxy.failing is not None:
                    self._answer(proxy.failing, b"<html>no upstream</html>")
                    return
                if wanted is not None and self.headers.get("Authorization") != wanted:
                    self._answer(401, b"who is there?")
                    return
                if refused and refused in body:
                    proxy.n_refused += 1
                    self._answer(500, b'{"error_code": "INTERNAL_ERROR", "message": "no such"}')
                    return
                if doubles and self.path.endswith(CREATE):
                    proxy.n_doubled += 1
                    self._pass_on(body)
                if network is None:
                    self._answer(*self._pass_on(body))
                else:
                    self._pass_on_badly(body, network)

            def _pass_on_badly(self, body: bytes, network: BadNetwork) -> None:
                befallen = network.strikes("request")
                if befallen is NetworkFault.LATE:
                    network.wait()
                elif befallen is NetworkFault.DOUBLED:
                    self._pass_on(body)
                elif befallen is NetworkFault.DROPPED:
                    self.close_connection = True
                    return
                answer, befallen = self._pass_on(body), network.strikes("reply")
                if befallen is NetworkFault.DROPPED:
                    self.close_connection = True
                    return
                if befallen is NetworkFault.LATE:
                    network.wait()
                try:
                    for _ in range(2 if befallen is NetworkFault.DOUBLED else 1):
                        self._answer(*answer)
                    self.wfile.flush()
                except OSError:  # it has not waited for so long
                    self.close_connection = True

            def _pass_on(self, body: bytes) -> tuple[int, bytes]:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
                try:
                    headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
                    headers["Host"] = f"127.0.0.1:{port}"
                    connection.request(self.command, self.path, body, headers)
                    response = connection.getresponse()
                    return response.status, response.read()
                finally:
                    connection.close()

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Nothing: tests look at what arrived."""

        self._server = ThreadingHTTPServer(("127.0.0.1", at), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self) -> None:
        self._server.serve_forever()

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


if __name__ == "__main__":  # a server that a test can kill, and have again at once
    Proxy(int(sys.argv[1]), at=int(sys.argv[2]), doubles=False).serve()
