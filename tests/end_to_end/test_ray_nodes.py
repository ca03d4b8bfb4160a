"""The nodes of a Ray cluster: their devices, and what they cannot take, said before the first
trial."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.program import Program, objective_words, wait_until
from tests.end_to_end.refused import refused
from tests.end_to_end.test_ray import SECRET, agents, of_ray, secrets_in
from tests.execution.cluster.clusters import ray_cluster

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Ray's own
    pytest.mark.slow,
]
WORDS = (
    "study.name=refused",
    "study.n_trials=2",
    "tracking.uri=none",
    *objective_words("counts"),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(2) as made:
        yield made


def names_of(cluster: Any) -> set[str]:
    """Both nodes are on this machine: one of them has its host's name, the other a longer one."""
    nodes = cluster.global_state.node_table()
    hosts = {node["NodeManagerHostname"] for node in nodes}
    return hosts | {f"{node['NodeManagerHostname']}-{node['NodeID'][:6]}" for node in nodes}


def check_nothing_left(program: Program, cluster: Any) -> None:
    wait_until(lambda: not agents(), "the end of its agents")
    jobs = cluster.global_state.job_table()
    assert not [job for job in jobs if "automl" in job["Entrypoint"] and not job["IsDead"]]
    assert not secrets_in(Path(cluster.head_node.get_session_dir_path()))
    assert SECRET not in str(jobs)
    assert not (program.folder / "studies").exists()


@pytest.mark.parametrize("watch", [False, True], ids=["once", "watched"])
def test_each_node_is_named_with_what_it_has(program: Program, cluster: Any, watch: bool) -> None:
    (program.folder / "mine.py").write_text(f"# {SECRET}: no code of the user's is wanted there")
    words = (*of_ray(program, cluster), f"tracking.uri=http://ann:{SECRET}@x.example")
    program.environment["MLFLOW_TRACKING_PASSWORD"] = SECRET
    done = program.start("devices", *words, f"watch={str(watch).lower()}").wait()
    assert (done.code, done.stderr) == (0, "")
    if watch:
        found = re.findall(r"^cpu host of (\S+)", done.stdout, re.MULTILINE)
        assert done.stdout.count(" GiB\n") == 2, "a bar each"
    else:
        head, *rows = done.stdout.splitlines()
        assert head.split()[:4] == ["node", "device", "total", "free"]
        found = [row.split()[0] for row in rows]
        assert all(row.split()[1:3] == ["host", "cpu"] for row in rows)
    assert len(found) == len(set(found)) == 2
    assert set(found) <= names_of(cluster)
    check_nothing_left(program, cluster)


def test_where_no_cluster_is_it_says_what_a_sweep_says(program: Program) -> None:
    words = ("execution=ray", "ray.address=127.0.0.1:1")
    said = refused(program, "devices", *words)
    assert "ray.address=127.0.0.1:1: no Ray cluster there" in said
    assert said == refused(program, "devices", "watch=true", *words)
    assert said == refused(program, "study.name=refused", *words)


def check_nothing_begun(program: Program, cluster: Any) -> None:
    assert not (program.folder / "studies" / "refused").exists()
    assert not agents()
    jobs = cluster.global_state.job_table()
    assert not [job for job in jobs if "automl" in job["Entrypoint"] and not job["IsDead"]]


def test_a_working_directory_too_large_is_refused_and_its_largest_files_named(
    program: Program, cluster: Any
) -> None:
    for n in range(1, 8):
        with (program.folder / f"{n}.bin").open("wb") as file:
            file.truncate(n * 2**20)  # takes no disk
    said = refused(program, *WORDS, *of_ray(program, cluster), "ray.max_code=20MiB")
    assert "is 28 MiB, and at most 20 go to the nodes" in said
    assert "allow more by ray.max_code" in said
    largest = ", ".join(f"{n}.bin ({n} MiB)" for n in range(7, 2, -1))
    assert said.rstrip().endswith(f": {largest}.")
    check_nothing_begun(program, cluster)


def test_a_node_with_another_version_is_refused_and_named(
    program: Program, cluster: Any, tmp_path: Path
) -> None:
    """It finds another automl's metadata first; the head has the sweep's."""
    (metadata := tmp_path / "older" / "automl_sweep-0.0.1.dist-info").mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: automl-sweep\nVersion: 0.0.1\n"
    )
    node = cluster.add_node(env_vars={"PYTHONPATH": str(metadata.parent)})
    try:
        said = refused(program, *WORDS, *of_ray(program, cluster))
    finally:
        cluster.remove_node(node)
    names = (socket.gethostname(), f"{socket.gethostname()}-{node.node_id[:6]}")
    assert any(f"node {name} has automl-sweep 0.0.1" in said for name in names)
    assert f"(here {version('automl-sweep')}): install the same versions on every node." in said
    check_nothing_begun(program, cluster)
