"""MLflow's own server, and the proxy before it that a test may kill in its place."""

from __future__ import annotations

import http.client
import socket

from tests.end_to_end.program import Program, Running


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def serve(program: Program, port: int) -> Running:
    """MLflow's own server over the folder's database, when it answers."""
    server = program.start_module(
        "mlflow",
        "server",
        *("--backend-store-uri", "sqlite:///mlflow.db"),
        *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
    )
    server.wait_until(lambda: answers(port), "the server's answer")
    return server


def start_proxy(program: Program, server: int, port: int) -> Running:
    """A process that passes requests to `port` on to the server's, when it answers."""
    proxy = program.start_module("tests.end_to_end.proxy", str(server), str(port))
    proxy.wait_until(lambda: answers(port), "the proxy's answer")
    return proxy


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
