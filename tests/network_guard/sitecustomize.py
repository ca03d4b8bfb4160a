"""Refuses, in each process of the tests, every connection that leaves this machine.

A look-up of a name elsewhere is refused as well: without a network it would be all that there is of
a connection. Python imports this as it starts, where `PYTHONPATH` names its folder;
`tests/conftest.py` imports it as well. What was refused is a line of the file that the variable
`LOG` names. Only what Python itself asks for is seen: not the libraries that call the system by
themselves, as libpq and Ray do. Its own imports wait until something connects, since it runs in
each of many processes.
"""

from __future__ import annotations

import os
import sys
from functools import cache

LOG = "AUTOML_TESTS_NETWORK"
UNROUTED = "192.0.2.0/24"
"""Addresses that are nobody's, which tests name as servers that cannot be reached (RFC 5737)."""
RESERVED = (".example", ".invalid", ".test")
"""Ends of names that are nobody's (RFC 2606)."""
RAY_DASHBOARD = os.path.join("ray", "dashboard", "dashboard.py")
"""End of the path of Ray's own process on a head, which asks the cloud's metadata where it runs."""


@cache
def is_allowed(host: str) -> bool:
    """Return whether an address or name is of this machine, or of nobody."""
    import ipaddress
    import socket

    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host in ("localhost", socket.gethostname()) or host.endswith(RESERVED)
    if address.is_loopback or address.is_unspecified or address in ipaddress.ip_network(UNROUTED):
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))  # only an address of this machine can be bound
        except OSError:
            return False
    return True


def _host(event: str, arguments: tuple[object, ...]) -> str | None:
    """Return the host that an audit event of Python is about; None: it reaches no other machine."""
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        name = arguments[0]
        return name.decode() if isinstance(name, bytes) else str(name or "localhost")
    if event not in ("socket.connect", "socket.sendto"):
        return None
    import socket

    connection, address = arguments
    is_stream = getattr(connection, "type", None) == socket.SOCK_STREAM
    only_asks_for_the_route = event == "socket.connect" and not is_stream
    return str(address[0]) if isinstance(address, tuple) and not only_asks_for_the_route else None


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if not event.startswith("socket."):
        return
    host = _host(event, arguments)
    if host is None or is_allowed(host):
        return
    import traceback

    is_ray = sys.argv[0].endswith(RAY_DASHBOARD)
    if not is_ray and (path := os.environ.get(LOG)):
        caller = traceback.extract_stack(limit=4)[0]
        with open(path, "a") as log:
            log.write(f"{host} by {sys.argv[:3]}, {caller.filename}:{caller.lineno}\n")
    raise PermissionError(f"a test connected to {host}, which is not this machine")


sys.addaudithook(_refuse)
