"""A tracking server that gets requests twice, never takes a value, or dies: the runs stay exact."""

from __future__ import annotations

import base64
import json
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

import automl.tracking.deliver.delivery
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.proxy import Proxy
from tests.end_to_end.records import Records
from tests.end_to_end.server import free_port, serve, start_proxy

pytestmark = pytest.mark.slow

N_TRIALS = 4
LOSSES = ["train_loss", "val_loss"]


@dataclass(frozen=True)
class Server:
    """MLflow's own server, for all tests of this module."""

    port: int

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def server(module_program: Program) -> Server:
    port = free_port()
    serve(module_program, port)
    return Server(port)


def words(name: str, uri: str) -> tuple[str, ...]:
    return (
        f"study.name={name}",
        f"study.n_trials={N_TRIALS}",
        f"tracking.uri={uri}",
        "devices.only=cpu",
        "execution=inline",
        "pruner=none",
        *objective_words("reports_thrice"),
    )


def test_requests_that_arrive_twice_leave_no_ghosts(
    folder: Path, call: Call, server: Server
) -> None:
    with Proxy(server.port) as proxy:
        done = call(*words("twice", proxy.uri))
        assert done.code == 0, done.stderr
        assert proxy.n_doubled == 1 + N_TRIALS, "the study's own run, and one per trial"
    Records(folder, "twice", server.uri).check_exact(N_TRIALS, 3, LOSSES)


def test_values_that_a_server_never_takes_do_not_hold_up_the_rest(
    folder: Path, call: Call, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(automl.tracking.deliver.delivery, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(automl.tracking.deliver.delivery, "MAX_DEATHS", 1)
    assert call(*words("odd", "sqlite:///mlflow.db")).code == 0
    records = Records(folder, "odd", server.uri)
    spoil(records.path / "events.log")
    with Proxy(server.port, refused=b'"never_taken"', takes_files=False) as proxy:
        synced = call("sync", "study.name=odd", f"tracking.uri={proxy.uri}")
        assert proxy.n_refused > 0
    assert synced.code == 0, synced.stderr
    assert records.parent().info.status == "FINISHED"
    assert "report.html was not stored: " in records.parent().data.tags["automl.refused"]
    runs = records.trial_runs()
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert records.steps(runs[1], "val_loss") == [0, 2], "of its steps one is out of range"
    assert "val_loss at step 9223372036854775808" in runs[1].data.tags["automl.refused"]
    assert records.steps(runs[2], "val_loss") == [0, 1, 2]
    assert "never_taken at step 1: " in runs[2].data.tags["automl.refused"]
    assert "automl.refused" not in runs[3].data.tags


def spoil(log: Path) -> None:
    """As an older version wrote it: a step beyond all integers; and a name that is not taken."""
    lines = []
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "Reported" and event["step"] == 1:
            if event["trial"] == 1:
                event["step"] = 2**63
            if event["trial"] == 2:
                event["metrics"]["never_taken"] = 1.0
        lines.append(json.dumps(event))
    log.write_text("\n".join(lines) + "\n")
    log.with_suffix(".delivered").unlink()


def test_a_sweep_outlives_its_server(
    program: Program, call: Call, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What dies is the process at its address; the sweep ends well, and `sync` catches up."""
    monkeypatch.setattr(
        automl.tracking.deliver.delivery, "PATIENCE_SECONDS", 1.0
    )  # it is dead for good
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    proxy = start_proxy(program, server.port, port)
    (program.folder / "server.pid").write_text(str(proxy.process.pid))
    done = call(
        "study.name=alone",
        f"study.n_trials={N_TRIALS}",
        f"tracking.uri={uri}",
        "admission.max_concurrent_trials=1",
        "devices.only=cpu",
        *objective_words("kills_the_server"),
    )
    assert done.code == 0, done.stderr
    assert f"alone: {N_TRIALS} finished" in done.stdout
    assert "MLflow has not taken" in done.stdout
    assert "python -m automl sync alone" in done.stdout

    assert proxy.process.wait() == -signal.SIGKILL
    start_proxy(program, server.port, port)
    synced = call("sync", "study.name=alone")
    assert synced.code == 0, synced.stderr
    assert "MLflow has all of study alone" in synced.stdout
    records = Records(program.folder, "alone", uri)
    records.check_exact(N_TRIALS, 3, ["train_loss", "val_loss"])
    for run in records.trial_runs().values():
        assert records.artifacts(run) == {"last.pt", "best.pt"}


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize("by", ["variables", "address"])
def test_a_password_is_used_and_kept_nowhere(
    folder: Path, call: Call, server: Server, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    secret = "s3cret-of-ann"
    with Proxy(server.port, doubles=False, wanted=basic("ann", secret)) as proxy:
        unknown = call(*words(f"asked-{by}", proxy.uri))
        assert unknown.code == 2
        assert unknown.stderr.count("MLFLOW_TRACKING_USERNAME") == 1
        assert not (folder / "studies" / f"asked-{by}" / "events.log").exists()
        uri = proxy.uri
        if by == "variables":
            monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
            monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", secret)
        else:
            uri = uri.replace("://", f"://ann:{secret}@")
        done = call(*words(f"known-{by}", uri))
        assert done.code == 0, done.stderr
    assert secret not in done.stdout + done.stderr
    records = Records(folder, f"known-{by}", server.uri)
    records.check_exact(N_TRIALS, 3, LOSSES)
    stored = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in stored if secret.encode() in path.read_bytes()] == []
    assert secret not in str([run.to_dictionary() for run in records.runs()])
