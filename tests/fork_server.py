"""The fork server of a test process, with what workers need loaded in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from multiprocessing import forkserver

import pytest

from automl.execution import worker_process
from automl.execution.worker_process import preload_fork_server

PRELOADED = "tests.preloaded"


@dataclass(frozen=True)
class _Started:
    """A server that was started here: children have its modules and its environment."""

    module: str
    pid: int
    of_mlflow: dict[str, str]

    def serves(self, module: str) -> bool:
        wanted = _of_mlflow().items()
        alive = self.pid == vars(forkserver._forkserver)["_forkserver_pid"]
        return alive and self.module == module and wanted <= self.of_mlflow.items()


_started: list[_Started] = []
"""The last, if there is one."""


def fork_server_with(module: str = PRELOADED) -> None:
    """One that has loaded the module, and what another test's server had is not there.

    One server serves all that want the same, whatever module asks for it next.
    """
    if any(server.serves(module) for server in _started):
        return
    while worker_process._kept_pipes:  # a server waits until this process has closed its pipe
        os.close(worker_process._kept_pipes.popitem()[1])
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # there for tests, says its comment
    preload_fork_server(module)
    pid = vars(forkserver._forkserver)["_forkserver_pid"]
    _started[:] = [_Started(module, pid, _of_mlflow())]


def _of_mlflow() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("MLFLOW_")}


@pytest.fixture(scope="package", autouse=True)
def workers_start_soon(mlflow_environment: None) -> None:
    """For conftests to import: sweeps that tests call have workers that load nothing."""
    fork_server_with()
