"""An MLflow server that dies during a sweep: the sweep ends well, and `sync` catches up."""

from __future__ import annotations

import http.client

import pytest

import automl.tracking.delivery
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, Running, mine
from tests.end_to_end.records import Records
from tests.end_to_end.test_sweep import free_port

N_TRIALS = 4


def test_a_sweep_outlives_its_server(
    program: Program, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automl.tracking.delivery, "PATIENCE_SECONDS", 1.0)  # it is dead for good
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    server = serve(program, port)
    (program.folder / "server.pid").write_text(str(server.process.pid))
    done = call(
        "study.name=alone",
        f"study.n_trials={N_TRIALS}",
        f"tracking.uri={uri}",
        "admission.max_concurrent_trials=1",
        "devices=host",
        *mine("kills_the_server"),
    )
    assert done.code == 0, done.stderr
    assert f"alone: {N_TRIALS} finished" in done.stdout
    assert "MLflow has not taken" in done.stdout
    assert "python -m automl sync study.name=alone" in done.stdout

    server.process.wait()
    serve(program, port)
    synced = call("sync", "study.name=alone")
    assert synced.code == 0, synced.stderr
    assert "MLflow has all of study alone" in synced.stdout
    records = Records(program.folder, "alone", uri)
    records.check_exact(N_TRIALS, 3, ["train_loss", "val_loss"])
    for run in records.trial_runs().values():
        assert records.artifacts(run) == {"last.pt", "best.pt"}


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


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
