"""MLflow's server behind a bad network, or away for a while: one run per trial, every step once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.proxy import BadNetwork, NetworkFault, Proxy
from tests.end_to_end.records import Records
from tests.end_to_end.server import free_port, serve, start_proxy
from tests.faults.conftest import N_POINTS, NotePromise, sample

pytestmark = pytest.mark.slow

N_TRIALS = 500 if N_POINTS > 1 else 30
CLIENT_SECONDS = 1
"""MLflow's client waits so long for an answer; what is late comes later."""


@pytest.fixture(scope="module")
def port(module_program: Program) -> int:
    """MLflow's own server, for all tests of this module."""
    port = free_port()
    serve(module_program, port)
    return port


def words(name: str, uri: str, n_trials: int, objective: str) -> tuple[str, ...]:
    return (
        f"study.name={name}",
        f"study.n_trials={n_trials}",
        f"tracking.uri={uri}",
        "sampler=random",
        "pruner=none",
        "devices.only=cpu",
        *objective_words(objective)[:2],
        "space={x: {low: 0.0, high: 1.0}}",
    )


def check_whole(
    records: Records, n_trials: int, n_epochs: int, losses: Sequence[str] = ("val_loss",)
) -> None:
    """One run per trial, with its params, each step of each metric once, and its final state."""
    records.check_exact(n_trials, n_epochs, losses)
    runs = records.trial_runs()
    for number, params in records.params().items():
        assert runs[number].data.params == {"x": str(params["x"])}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", sample([*NetworkFault], 1), ids=lambda fault: fault.value)
def test_a_bad_network_loses_and_doubles_nothing(
    program: Program, port: int, fault: NetworkFault, note_promise: NotePromise
) -> None:
    program.environment["MLFLOW_HTTP_REQUEST_TIMEOUT"] = str(CLIENT_SECONDS)
    network = BadNetwork(fault, late_seconds=1.3 * CLIENT_SECONDS)
    records = Records(program.folder, fault.value, f"http://127.0.0.1:{port}")
    with Proxy(port, doubles=False, network=network) as proxy:
        running = program.start(*words(fault.value, proxy.uri, N_TRIALS, "reports_thrice"))
        running.process.wait(3000)
        done = running.wait()
    is_whole = done.code == 0 and len(records.trial_runs()) == N_TRIALS
    note_promise(f"one request and reply in ten {fault.value}", N_TRIALS, int(not is_whole))
    assert (done.code, done.stderr) == (0, "")
    assert min(network.n_struck["request"], network.n_struck["reply"]) > 0
    assert len(proxy.requests) < 10 * N_TRIALS, "delivered anew"
    check_whole(records, N_TRIALS, 3, ["train_loss", "val_loss"])


@pytest.mark.parametrize("when", sample(["start", "middle", "end"], 2))
def test_a_server_that_is_down_for_a_while_gets_all(
    program: Program, port: int, when: str, note_promise: NotePromise
) -> None:
    """What is down is the address: the sweep is refused, goes on, or waits at its end."""
    name, n_trials, address = f"down-{when}", 12, free_port()
    told = words(name, f"http://127.0.0.1:{address}", n_trials, "waits_half_way")
    records = Records(program.folder, name, f"http://127.0.0.1:{port}")
    if when == "start":
        refused = program.start(*told).wait()
        assert refused.code == 2
        assert f"127.0.0.1:{address}" in refused.stderr
        assert not (records.path / "events.log").exists()
    proxy = start_proxy(program, port, address)
    running = program.start(*told)
    running.wait_until(lambda: records.n_lines() > 5, "some reports")
    if when != "start":
        proxy.kill()
    (records.path / "go on").touch()
    if when == "middle":
        running.wait_until(lambda: len(records.outcomes()) > n_trials // 2, "half of the trials")
    if when == "end":
        running.wait_until(lambda: "delivering " in running.stdout, "the end")
    if when != "start":
        start_proxy(program, port, address)
    done = running.wait()
    note_promise(f"MLflow's server down at the {when}", 1, int("has not taken" in done.stdout))
    assert (done.code, done.stderr) == (0, "")
    assert "has not taken" not in done.stdout
    check_whole(records, n_trials, 4)
