"""What a Ray cluster's nodes cannot take is said before the first trial, and nothing is begun."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.program import Program, mine
from tests.end_to_end.refused import refused
from tests.end_to_end.test_ray import agents, of_ray
from tests.execution.cluster.clusters import ray_cluster

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Ray's own
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
WORDS = ("study.name=refused", "study.n_trials=2", "tracking.store=none", *mine("counts"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(1) as made:
        yield made


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
