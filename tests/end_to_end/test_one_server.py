"""Several sweeps at once over one MLflow server: studies of their own, and one that they share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records
from tests.end_to_end.test_shared import check_exact
from tests.tracking.mlflow_server import mlflow_server, postgresql

pytestmark = pytest.mark.slow
N_TRIALS = 8


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgresql() as uri:
        yield uri


def test_four_sweeps_write_to_one_server_and_each_trial_has_one_run(
    tmp_path: Path, postgres: str
) -> None:
    (site := tmp_path / "server").mkdir()
    with mlflow_server(site, postgres, "--artifacts-destination", "files", n_workers=2) as port:
        uri = f"http://127.0.0.1:{port}"
        words = (
            *objective_words("counts"),
            f"study.n_trials={N_TRIALS}",
            f"tracking.uri={uri}",
            "pruner=none",
            "devices.only=cpu",
            "admission.max_concurrent_trials=2",
        )
        shared = f"study.storage='{postgres}'"
        told = {
            "a": ("study.name=one",),
            "b": ("study.name=two",),
            "c": ("study.name=shared", shared),
            "d": ("study.name=shared", shared),
        }
        programs = {}
        for name in told:
            (folder := tmp_path / name).mkdir()
            programs[name] = Program(folder)
        running = [programs[name].start(*more, *words) for name, more in told.items()]
        for sweep in running:
            done = sweep.wait()
            assert (done.code, done.stderr) == (0, "")
        for name, study in (("a", "one"), ("b", "two"), ("c", "shared")):
            check_exact(Records(tmp_path / name, study, uri), N_TRIALS)
