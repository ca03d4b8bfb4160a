"""No credential of a sweep reaches the Ray cluster that it trains on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records
from tests.end_to_end.server import free_port, serve
from tests.end_to_end.test_ray import agents, of_ray
from tests.end_to_end.trouble import trouble
from tests.execution.cluster.clusters import ray_cluster
from tests.execution.cluster.memory import in_memory, in_stores, pids_of
from tests.postgres import Server, postgres

__all__ = ["postgres"]
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Ray's own
    pytest.mark.slow,
]
OF_DATABASE, OF_MLFLOW = "hunter2hunter2", "correct-horse-battery"
SENT = b"tests.end_to_end.objectives"
"""What a sweep does send to each node."""
IN_JOBS = b"python -m automl"
"""What it calls itself in Ray's list of jobs."""


def test_no_password_is_in_rays_files_jobs_stores_or_processes(
    program: Program, postgres: Server
) -> None:
    """The database's is in its address, MLflow's in the environment. Searched while trials run, and
    when all has ended; each search finds what is known to be there."""
    url = postgres.url(postgres.new_database())
    url = url.replace("postgres@", f"postgres:{OF_DATABASE}@")
    serve(program, port := free_port())
    told = {"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": OF_MLFLOW}
    program.environment |= told
    with ray_cluster(2) as cluster:
        check_sweep(program, cluster, url, f"tracking.uri=http://127.0.0.1:{port}")


def check_sweep(program: Program, cluster: Any, url: str, tracking: str) -> None:
    records = Records(program.folder, "secret")
    sweep = program.start_module(
        *("automl", "study.name=secret", "study.n_trials=20", f"study.storage='{url}'", tracking),
        *(*of_ray(program, cluster), *objective_words("counts")),
    )
    sweep.wait_until(lambda: records.n_lines() > 12, "some reports")
    trained_by = [process for agent in agents() for process in (agent, *agent.children())]
    assert trained_by
    for password in (OF_DATABASE.encode(), OF_MLFLOW.encode()):
        assert in_memory(sweep.process.pid, password)
        assert not any(in_memory(process.pid, password) for process in trained_by)
    check_ray_knows_none(cluster)
    done = sweep.wait()
    assert (done.code, trouble(done)) == (0, "")
    assert len(records.trial_runs()) == 20
    check_ray_knows_none(cluster)


def check_ray_knows_none(cluster: Any) -> None:
    (head,) = pids_of(cluster, "gcs_server")
    session = Path(cluster.head_node.get_session_dir_path())
    jobs = str(cluster.global_state.job_table())
    assert in_stores(cluster, SENT)
    assert in_memory(head, IN_JOBS)
    assert files_with(session, b"AgentActor")
    assert IN_JOBS.decode() in jobs
    for password in (OF_DATABASE, OF_MLFLOW):
        assert not in_stores(cluster, password.encode())
        assert not in_memory(head, password.encode())
        assert not files_with(session, password.encode())
        assert password not in jobs


@pytest.mark.parametrize("kind", ["ray", "workers"])
def test_a_password_that_would_go_to_each_node_is_refused(program: Program, kind: str) -> None:
    """With redirect a program of another environment delivers to MLflow by itself."""
    done = program.call(
        *("study.name=sent", "study.n_trials=1", f"execution={kind}", "devices.only=cpu"),
        *("tracking.inside=redirect", f"tracking.uri=http://ann:{OF_MLFLOW}@127.0.0.1:1"),
        *("ray.address=local", *objective_words("reports_thrice")),
    )
    assert OF_MLFLOW not in done.stderr
    if kind == "ray":
        assert done.code == 2
        assert "MLFLOW_TRACKING_PASSWORD" in done.stderr
        assert not (program.folder / "studies" / "sent").exists()
    else:
        assert "MLFLOW_TRACKING_PASSWORD" not in done.stderr


def files_with(folder: Path, text: bytes) -> list[str]:
    found = []
    for top, _, names in os.walk(folder):
        for name in names:
            path = Path(top, name)
            if path.is_file() and text in path.read_bytes():
                found.append(str(path))
    return found
