"""MLflow's own server: few calls, several writers, outages, no room for artifacts.

`tests/end_to_end/test_one_server.py` has one on PostgreSQL.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from automl.config import KeepCheckpoints, TrackingConfig
from automl.errors import ConfigError
from automl.tracking.deliver.artifact_check import PROBE
from automl.tracking.deliver.delivery import DeliverySupervisor
from automl.tracking.deliver.mlflow_runs import MAX_WRITERS
from automl.tracking.mlflow_loading import set_delivery_environment
from automl.tracking.view.run_update import StudyRef
from automl.trial import CheckpointKind
from tests.end_to_end.proxy import Proxy
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import check_exact, deliver
from tests.tracking.mlflow_server import mlflow_server
from tests.tracking.scenes import (
    NAME,
    UUID,
    begin,
    finish,
    report,
    sweep_ended,
    sweep_started,
    trial,
    wait_for,
    write,
    write_checkpoint,
)
from tests.tracking.test_delivery import READY_SECONDS
from tests.tracking.test_lost_answers import killed_often

pytestmark = pytest.mark.slow  # two servers start; `test_proxy.py` has one in the way of a sweep
API = "/api/2.0/mlflow/"


@pytest.fixture(scope="module")
def folder_of_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def port(folder_of_server: Path, empty_database: Path) -> Iterator[int]:
    """One that takes artifacts."""
    folder = folder_of_server
    shutil.copyfile(empty_database, folder / "mlflow.db")
    store = f"sqlite:///{folder / 'mlflow.db'}"
    with mlflow_server(folder, store, "--artifacts-destination", "files") as port:
        yield port


@pytest.fixture
def server(port: int, folder_of_server: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address, for a process set up as the delivering one; the study's experiment is none of a
    test before. A test that fails shows what the server has said meanwhile."""
    log = folder_of_server / "server.log"
    n_before = log.stat().st_size
    set_delivery_environment(environment := dict(os.environ))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    uri = f"http://127.0.0.1:{port}"
    yield uri
    sys.stderr.write(log.read_bytes()[n_before:].decode(errors="replace"))
    client = Shown(uri).client
    experiment = client.get_experiment_by_name(NAME)
    if experiment is not None:
        client.rename_experiment(experiment.experiment_id, f"{NAME} {experiment.experiment_id}")


def test_a_run_is_four_calls(study: Path, port: int, server: str) -> None:
    """Made, written, its file, ended; the study's own run and the search for doubles besides."""
    n_trials = 12
    events = [
        event
        for number in range(n_trials)
        for event in (
            *(begin(number), *[report(number, step) for step in range(4)]),
            *(write_checkpoint(study, number, CheckpointKind.BEST), finish(number)),
        )
    ]
    write(study, sweep_started(), *events, sweep_ended(n_trials))
    with Proxy(port, doubles=False) as proxy:
        assert deliver(study, server=proxy.uri) == []
    calls = Counter(request.split("?")[0] for request in proxy.requests)
    assert calls[f"POST {API}runs/create"] == 1 + n_trials
    assert calls[f"GET {API}runs/get"] == 0
    assert calls[f"POST {API}runs/log-batch"] == 1 + n_trials
    assert calls[f"POST {API}runs/update"] == 1 + n_trials
    assert sum(call.startswith("PUT ") for call in calls.elements()) == n_trials
    shown = Shown(server)
    check_exact(shown, n_trials, 4)
    assert shown.artifacts("trial-00007") == {"best.pt": b"best of 7"}


def test_four_writers_are_at_it_over_http_and_one_in_a_database(
    study: Path, folder: Path, server: str
) -> None:
    writers = set[str]()

    class Seen(MlflowClient):
        def log_batch(self, *args: Any, **kwargs: Any) -> Any:
            writers.add(threading.current_thread().name)
            return super().log_batch(*args, **kwargs)

    events = [event for number in range(12) for event in trial(number, 4)]
    write(study, sweep_started(), *events, sweep_ended(12))
    deliver(study, Seen(f"sqlite:///{folder / 'mlflow.db'}"))
    assert writers == {threading.current_thread().name}
    writers.clear()
    (study / "events.delivered").unlink()
    deliver(study, Seen(server), server=server)
    assert len([name for name in writers if name.startswith("mlflow-writer")]) == MAX_WRITERS
    check_exact(Shown(server), 12, 4)


def test_kill_9_of_several_writers_neither_loses_nor_doubles(study: Path, server: str) -> None:
    n_trials = 10 * MAX_WRITERS
    events = [event for number in range(n_trials) for event in trial(number, 4)]
    write(study, sweep_started(), *events, sweep_ended(n_trials))
    assert killed_often(study, 0.5, server) >= 4
    check_exact(Shown(server), n_trials, 4)


@pytest.mark.parametrize("status", [503, 200])
def test_a_proxy_whose_server_is_away_is_waited_for(
    study: Path, port: int, server: str, status: int
) -> None:
    """200 is a page of the proxy's own, such as that of a login."""
    with Proxy(port, doubles=False) as proxy:
        delivery = DeliverySupervisor.start(study, TrackingConfig(uri=proxy.uri))
        with delivery:
            delivery.wait_ready(READY_SECONDS)
            write(study, sweep_started(), *trial(0, 4))
            wait_for(lambda: delivery.lag() == 0, "the first trial is delivered", READY_SECONDS)
            proxy.failing = status
            write(study, *trial(1, 4), *trial(2, 4), sweep_ended(3))
            wait_for(lambda: delivery.trouble() is not None, "the outage is noticed")
            proxy.failing = None
            assert delivery.drain(READY_SECONDS)
            assert delivery.trouble() is None
    check_exact(Shown(server), 3, 4)


def refusal(study: Path, uri: str, checkpoints: KeepCheckpoints = KeepCheckpoints.all) -> str:
    """What a sweep is told before its first trial; empty: it can begin."""
    config = TrackingConfig(uri=uri, checkpoints=checkpoints)
    ref = StudyRef(UUID, NAME)
    with DeliverySupervisor.start(study, config, study=ref, before_trials=True) as delivery:
        try:
            delivery.wait_ready(READY_SECONDS)
        except ConfigError as error:
            return str(error)
    return ""


def test_a_proxy_that_passes_no_files_is_told_before_the_first_trial(
    study: Path, port: int, server: str
) -> None:
    with Proxy(port, takes_files=False) as proxy:
        said = refusal(study, proxy.uri)
        beginning = f"tracking.uri={proxy.uri}: this server takes no artifacts of study {NAME} ("
        assert said.startswith(f"{beginning}501 ")
        assert "--no-serve-artifacts" in said
        assert "tracking.checkpoints=none" in said
        assert refusal(study, proxy.uri, KeepCheckpoints.none) == ""
        assert not [request for request in proxy.requests if "runs/create" in request]
    assert Shown(server).client.get_experiment_by_name(NAME) is None, "its place would be for ever"
    with Proxy(port) as proxy:
        assert refusal(study, proxy.uri) == ""
        files = [request for request in proxy.requests if PROBE in request]
        assert [request.split()[0] for request in files] == ["PUT", "DELETE"]


def test_a_process_that_begins_again_refuses_no_artifacts(
    study: Path, port: int, server: str
) -> None:
    """Trials run by then: what is wrong now is told, and they go on."""
    write(study, sweep_started())
    with Proxy(port, doubles=False) as proxy:
        config, ref = TrackingConfig(uri=proxy.uri), StudyRef(UUID, NAME)
        with DeliverySupervisor.start(study, config, study=ref, before_trials=True) as delivery:
            delivery.wait_ready(READY_SECONDS)
            wait_for(lambda: delivery.lag() == 0, "the sweep's begin is delivered", READY_SECONDS)
            assert delivery._process is not None
            os.kill(delivery._process.pid, signal.SIGKILL)
            n_probes = sum(PROBE in request for request in proxy.requests)
            write(study, *trial(0, 4), sweep_ended(1))
            wait_for(lambda: delivery.lag() == 0, "all is delivered", READY_SECONDS)
        assert sum(PROBE in request for request in proxy.requests) == n_probes
    check_exact(Shown(server), 1, 4)


def test_a_server_with_artifacts_on_its_own_disk(
    study: Path, tmp_path: Path, empty_database: Path
) -> None:
    """They are written where this machine has that disk; where it has not, that is told first."""
    folder = tmp_path / "server"
    folder.mkdir()
    root = folder / "root"
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    store, words = f"sqlite:///{tmp_path / 'mlflow.db'}", ("--no-serve-artifacts",)
    with mlflow_server(folder, store, *words, "--default-artifact-root", str(root)) as port:
        server = f"http://127.0.0.1:{port}"
        assert refusal(study, server) == ""
        checkpoint = write_checkpoint(study, 0, CheckpointKind.BEST)
        write(study, sweep_started(), begin(0), report(0, 0), checkpoint, finish(0))
        assert deliver(study, server=server) == []
        assert [path.read_bytes() for path in root.rglob("best.pt")] == [b"best of 0"]
        folder.rename(tmp_path / "elsewhere")  # as if it were another machine's
        said = refusal(study, server)
        assert f"(they would lie at {root}/" in said
        assert "tracking.checkpoints=none" in said
        checkpoint = write_checkpoint(study, 1, CheckpointKind.BEST)
        write(study, begin(1), report(1, 0), checkpoint, finish(1), sweep_ended(2))
        (refused,) = deliver(study, server=server)
        assert "best.pt was not stored: artifacts lie at " in refused
        assert not root.exists(), "no folder of that name is made here"
        assert Shown(server).run("trial-00001").info.status == "FINISHED"
