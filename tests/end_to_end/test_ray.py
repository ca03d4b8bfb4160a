"""Whole sweeps on a Ray cluster of two nodes: what users see, and what is left when one is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from automl.trial import InterruptedOutcome, MetricsReported, TrialStarted
from tests.end_to_end.objectives import N_EPOCHS
from tests.end_to_end.program import Program, objective_words, wait_until
from tests.end_to_end.records import Records
from tests.end_to_end.trouble import trouble
from tests.execution.cluster.clusters import ray_cluster

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
SECRET = "hunter2hunter2"
ON_RAY = ("execution=ray", "devices.only=cpu", "pruner=none", "training.checkpoint_every_seconds=0")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(2) as made:
        yield made


def of_ray(program: Program, cluster: Any) -> tuple[str, ...]:
    program.environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    return (*ON_RAY, f"ray.address={cluster.address}")


def agents() -> list[psutil.Process]:
    """Return the running agents of the cluster that this process has started."""
    return [process for process in psutil.Process().children(recursive=True) if is_agent(process)]


def is_agent(process: psutil.Process) -> bool:
    """Return False for a process that has ended, too: a zombie has no command line."""
    try:
        return "AgentActor" in "".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_sweep_uses_all_nodes_and_loses_nothing_with_an_agent(
    program: Program, cluster: Any
) -> None:
    records = Records(program.folder, "on-ray")
    words = ("study.name=on-ray", "study.n_trials=6", f"tracking.uri=http://ann:{SECRET}@x.example")
    sweep = program.start_module(
        "automl",
        *words,
        "tracking.uri=none",
        *of_ray(program, cluster),
        *objective_words("counts"),
    )
    sweep.wait_until(lambda: records.n_lines() > 30, "some reports")
    agents()[0].kill()
    done = sweep.wait()
    assert (done.code, trouble(done)) == (0, "")
    assert "on-ray: 6 finished" in done.stdout
    devices = {e.device for e in records.events() if isinstance(e, TrialStarted)}
    assert len(devices) == 2
    assert all(device.startswith("cpu of ") for device in devices)
    lost = [e for e in records.events() if isinstance(e, InterruptedOutcome)]
    assert 1 <= len(lost) <= 4, "what ran there, and none that was started there since"
    assert all(e.node_lost and not e.by_worker_death for e in lost)
    check_went_on(records)
    wait_until(lambda: not agents(), "their end")  # Ray ends an actor some time after the sweep
    assert not secrets_in(Path(cluster.head_node.get_session_dir_path()))
    jobs = str(cluster.global_state.job_table())
    assert "python -m automl'" in jobs, "without its words"
    assert SECRET not in jobs


@pytest.mark.slow
def test_a_sweep_that_is_killed_leaves_nothing_on_the_nodes_and_goes_on(
    program: Program, cluster: Any
) -> None:
    records = Records(program.folder, "killed")
    words = ("study.name=killed", "study.n_trials=4", "tracking.uri=none")
    sweep = program.start(*words, *of_ray(program, cluster), *objective_words("counts"))
    sweep.wait_until(lambda: records.n_lines() > 12, "some reports")
    ours = {child.pid for agent in agents() for child in agent.children(recursive=True)}
    assert ours
    sweep.kill()
    wait_until(lambda: not any(map(psutil.pid_exists, ours)) and not agents(), "their end")
    resumed = ("resume", "study.name=killed", ON_RAY[0], f"ray.address={cluster.address}")
    done = program.start(*resumed).wait()
    assert (done.code, trouble(done)) == (0, "")
    assert "killed: 4 finished" in done.stdout
    check_went_on(records)


CALLS = (
    "CoreWorkerService.grpc_{side}.PushTask",
    "NodeManagerService.grpc_{side}.RequestWorkerLease",
    "ActorInfoGcsService.grpc_{side}.CreateActor",
    "ActorInfoGcsService.grpc_{side}.GetActorInfo",
    "InternalKVGcsService.grpc_{side}.InternalKVGet",
)
"""Calls of Ray's processes; these do not survive it themselves if all ("*") are late."""
FIRST = {"num_failures": 3, "req_failure_prob": 50, "resp_failure_prob": 50}
"""Of the first three calls of each process, each is lost, or its answer is."""
RAY_FAULTS = {
    "lost": (
        "RAY_testing_rpc_failure",
        json.dumps({call.format(side="client"): FIRST for call in CALLS}),
    ),
    "late": (
        "RAY_testing_asio_delay_us",
        ",".join(f"{call.format(side='server')}=0:300000" for call in CALLS),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", RAY_FAULTS)
def test_a_sweep_ends_well_on_a_ray_that_loses_or_delays_calls(
    program: Program, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    name, value = RAY_FAULTS[fault]
    monkeypatch.setenv(name, value)
    program.environment[name] = value
    records = Records(program.folder, "faulty")
    words = ("study.name=faulty", "study.n_trials=6", "tracking.uri=none")
    with ray_cluster(2) as cluster:
        sweep = program.start(*words, *of_ray(program, cluster), *objective_words("counts"))
        sweep.process.wait(300)
        done = sweep.wait()
    told = [line for line in trouble(done).splitlines() if "RAY_testing" not in line]
    assert (done.code, [line for line in told if "rpc_chaos.cc" not in line]) == (0, [])
    assert "faulty: 6 finished" in done.stdout
    check_went_on(records)
    assert records.optuna_states() == dict.fromkeys(range(6), "COMPLETE")


@pytest.mark.slow
def test_small_trials_train_in_packs(program: Program, cluster: Any) -> None:
    words = ("study.name=packs", "study.n_trials=24", "training.epochs=3", "data=disc")
    there = ("tracking.uri=none", "sampler=random", *of_ray(program, cluster))
    done = program.start(*words, *there).wait()
    assert (done.code, trouble(done)) == (0, "")
    assert "packs: 24 finished" in done.stdout


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("ray://127.0.0.1:10001", "Start the sweep on the head node"),
        ("127.0.0.1:1", "no Ray cluster there"),
        ("somewhere", "must be auto"),
    ],
)
def test_an_address_that_cannot_be_is_refused_and_nothing_begun(
    program: Program, address: str, says: str
) -> None:
    done = program.call("execution=ray", f"ray.address={address}", "study.name=refused")
    assert done.code == 2
    assert says in done.stderr
    assert f"ray.address={address}" in done.stderr
    assert not (program.folder / "studies" / "refused").exists()


def check_went_on(records: Records) -> None:
    """Each epoch is recorded once, and trained once, but for one at each loss."""
    for number in records.params():
        steps = [e.step for e in records.of_trial(number) if isinstance(e, MetricsReported)]
        assert steps == list(range(N_EPOCHS))
        folder = records.path / "checkpoints" / f"trial-{number:05d}"
        epochs = [int(line) for line in (folder / "trained").read_text().split()]
        n_starts = sum(isinstance(e, TrialStarted) for e in records.of_trial(number))
        assert sorted(set(epochs)) == list(range(N_EPOCHS))
        assert len(epochs) - N_EPOCHS < n_starts


def secrets_in(folder: Path) -> list[str]:
    """Files of Ray's that have it."""
    found = []
    for top, _, names in os.walk(folder):
        for name in names:
            path = Path(top, name)
            if path.is_file() and SECRET.encode() in path.read_bytes():
                found.append(str(path))
    return found
