"""A Ray cluster that another job uses, too: a sweep trains on what Ray counts as its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from automl.trial import TrialStarted
from tests.end_to_end.program import Program, objective_words, wait_until
from tests.end_to_end.records import Records
from tests.end_to_end.trouble import trouble
from tests.execution.cluster.clusters import ROOT, ray_cluster
from tests.nvml_stub.fixtures import LARGE, SMALL
from tests.nvml_stub.stub import NvmlStub

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Ray's own
    pytest.mark.slow,
]
ON_RAY = ("execution=ray", "ray.claim=true", "pruner=none", "admission.survey=off")

OTHER_JOB = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False)

@ray.remote(num_gpus=1, num_cpus=0)
class Other:
    def number(self):
        return ray.get_gpu_ids()[0]

other = Other.remote()
print(ray.get(other.number.remote()), flush=True)
for line in sys.stdin:
    print(ray.available_resources().get(line.strip(), 0), flush=True)
"""


class OtherJob:
    """It holds a GPU, and sees what of the cluster is free."""

    def __init__(self, address: str) -> None:
        command = [sys.executable, "-c", OTHER_JOB, address]
        self.process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
        self.gpu = int(float(self._line()))
        """By its number."""

    def free(self, resource: str) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{resource}\n")
        self.process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(300)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def other_job(address: str) -> Iterator[OtherJob]:
    job = OtherJob(address)
    try:
        yield job
    finally:
        job.close()


@contextmanager
def cluster_of(environment: dict[str, str], **head: Any) -> Iterator[Any]:
    """Its processes run in that environment."""
    before = dict(os.environ)
    os.environ |= environment
    try:
        with ray_cluster(1, **head) as made:
            yield made
    finally:
        os.environ.clear()
        os.environ |= before


def test_a_sweep_trains_on_no_gpu_but_those_that_it_holds(
    program: Program, nvml_stub: NvmlStub
) -> None:
    program.environment |= nvml_stub.environment(program.environment)
    program.environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    records = Records(program.folder, "claims")
    seen = nvml_stub.environment({"PYTHONPATH": str(ROOT)})
    with cluster_of(seen, num_gpus=2) as cluster, other_job(cluster.address) as job:
        sweep = program.start(
            *("study.name=claims", "study.n_trials=3", "tracking.uri=none"),
            *(
                *ON_RAY,
                "devices.only=nvml",
                "admission.request=1GiB",
                f"ray.address={cluster.address}",
                *objective_words("counts"),
            ),
        )
        sweep.wait_until(lambda: records.n_lines() > 12, "some reports")
        assert job.free("GPU") == 0, "Ray gives it to nobody else"
        done = sweep.wait()
        assert (done.code, trouble(done)) == (0, "")
        assert "claims: 3 finished" in done.stdout
        wait_until(lambda: job.free("GPU") == 1, "the end of its claims")
    (device,) = {e.device for e in records.events() if isinstance(e, TrialStarted)}
    assert (SMALL, LARGE)[1 - job.gpu] in device


def test_a_sweep_trains_on_no_more_of_the_cpus_than_it_holds(program: Program) -> None:
    program.environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    records = Records(program.folder, "shares")
    with cluster_of({}, num_gpus=1, num_cpus=1) as cluster, other_job(cluster.address) as job:
        sweep = program.start(
            *("study.name=shares", "study.n_trials=3", "tracking.uri=none"),
            *(
                *ON_RAY,
                "devices.only=cpu",
                f"ray.address={cluster.address}",
                *objective_words("counts"),
            ),
        )
        sweep.wait_until(lambda: records.n_lines() > 12, "some reports")
        assert job.free("CPU") == 0
        done = sweep.wait()
        assert (done.code, trouble(done)) == (0, "")
        assert "shares: 3 finished" in done.stdout
        wait_until(lambda: job.free("CPU") == 1, "the end of its claims")
