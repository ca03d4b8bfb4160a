"""The UI's own server: it shows the runs, takes events over HTTP, is gone, is back, and ends."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from automl.config import TrackingConfig
from automl.errors import AutoMLError, ConfigError
from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
from automl.tracking.deliver.delivery import DeliverySupervisor
from automl.tracking.view.ui import serve_ui
from automl.trial import CheckpointKind
from tests.end_to_end.program import ROOT
from tests.end_to_end.server import answers
from tests.processes import is_running
from tests.tracking.conftest import Shown
from tests.tracking.scenes import (
    NAME,
    begin,
    finish,
    free_port,
    report,
    sweep_ended,
    sweep_started,
    trial,
    wait_for,
    write,
    write_checkpoint,
)
from tests.tracking.test_delivery import READY_SECONDS

SERVE = """
import sys
from automl.config import TrackingConfig
from automl.tracking.view.ui import serve_ui
sys.exit(serve_ui(TrackingConfig(), int(sys.argv[1])))
"""


@contextmanager
def ui(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """`serve_ui` in a process of its own, as the command runs it; it has said its address."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(port)], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            said = next(line for line in process.stdout if line.startswith("MLflow UI"))
            address = f"http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning"
            assert said == f"MLflow UI: {address} (Ctrl-C ends it)\n"
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(300)


def status(port: int, path: str, host: str | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
        return connection.getresponse().status
    finally:
        connection.close()


def processes_below(pid: int) -> set[int]:
    """All descendants of a process, from /proc."""
    found: set[int] = set()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found |= {child} | processes_below(child)
    return found


def listened_at(pids: set[int]) -> set[tuple[str, int]]:
    """Return the addresses at which processes take connections."""
    connections = [c for pid in pids for c in psutil.Process(pid).net_connections()]
    return {(c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN}


@contextmanager
def proxy(server: int, port: int) -> Iterator[None]:
    """A process that answers at `port` by the server; at the end it dies as by `kill -9`."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.end_to_end.proxy", str(server), str(port)], cwd=ROOT
    ) as process:
        try:
            wait_for(lambda: answers(port), "the proxy's answer")
            yield
        finally:
            process.kill()


@pytest.mark.slow
def test_a_sweep_outlives_its_server(folder: Path, study: Path) -> None:
    """What dies and comes back in mid-sweep is a proxy, as MLflow's server takes 5 s of a core to
    start; that is one start for all that is to be said of it, so one test."""
    port, at = free_port(), free_port()
    uri = f"http://127.0.0.1:{at}"
    with ui(folder, port) as server:
        below = processes_below(server.pid)
        assert below
        assert status(port, "/") == 200
        assert listened_at(below) == {("127.0.0.1", port)}
        evil = "10.evil.example"
        path = "/api/2.0/mlflow/experiments/get?experiment_id=0"
        assert (status(port, path), status(port, path, evil)) == (200, 403)
        with pytest.raises(ConfigError, match=rf"port={port}: it cannot be used"):
            serve_ui(TrackingConfig(), port)
        with proxy(port, at):
            delivery = DeliverySupervisor.start(study, TrackingConfig(uri=uri))
            delivery.wait_ready(READY_SECONDS)
            write(study, sweep_started(), *trial(0), begin(1), report(1, 0))
            wait_for(lambda: delivery.lag() == 0, "the first trial is delivered", READY_SECONDS)
            assert Shown(uri).run("trial-00001").info.status == "RUNNING"

        checkpoint = write_checkpoint(study, 1, CheckpointKind.BEST)
        write(study, report(1, 1), checkpoint, finish(1), sweep_ended(2))
        wait_for(lambda: delivery.trouble() is not None, "the dead server is noticed")
        assert "refused" in str(delivery.trouble())
        assert delivery.lag() == 4

        with proxy(port, at):
            assert delivery.drain(READY_SECONDS)
            assert delivery.trouble() is None
            shown = Shown(uri)
            names = {run.info.run_name for run in shown.runs()}
            assert names == {NAME, "trial-00000", "trial-00001"}
            assert len(shown.runs()) == 3
            assert [step for step, _, _ in shown.history("trial-00001", "val_loss")] == [0, 1]
            assert shown.artifacts("trial-00001") == {"best.pt": b"best of 1"}
    wait_for(lambda: not any(map(is_running, below)), "all of the server ends")
    assert server.returncode == 0


def test_a_tracking_server_has_its_own_ui(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    server = f"127.0.0.1:{free_port()}"
    config, said = TrackingConfig(uri=f"http://ann:s3cret@{server}/"), list[str]()
    address = f"http://{server}/#/experiments?workflowType=machine_learning"
    assert serve_ui(config, 5000, said.append) == 0
    assert said == [f"MLflow's own server shows the runs: {address}"]
    assert serve_ui(config, 5000, said.append, study=study) == 0
    assert said[1] == (
        f"study {NAME} has no runs there yet; they get there with: python -m automl sync "
        f"study.name={NAME}"
    )
    confirmed = DeliveryConfirmations.open(study / "events.log", 0.0)
    confirmed.note_study("uuid", "3", "9f")
    confirmed.close()
    assert serve_ui(config, 5000, said.append, study=study) == 0
    assert "refused" in said[3]
    assert "s3cret" not in said[3]
    assert said[4] == said[2] == said[0]


@pytest.mark.slow
def test_a_server_that_does_not_start_says_why(folder: Path) -> None:
    (folder / "text.db").write_text("this is no database " * 100)
    with pytest.raises(AutoMLError, match="did not start"):
        serve_ui(TrackingConfig(uri="sqlite:///text.db"), free_port())
