"""The fork server of a test process, with what workers need loaded in it."""

from __future__ import annotations

from multiprocessing import forkserver

import pytest

from automl.execution.process import preload

PRELOADED = "tests.preloaded"
_of_tests: dict[str, object] = {}
"""The server that was started here, by what it has loaded."""


def fork_server_with(module: str = PRELOADED) -> None:
    """One that has loaded the module, and what another test's server had is not there.

    One server serves all that want the same, whatever else began one meanwhile.
    """
    server = vars(forkserver._forkserver)
    pid = server["_forkserver_pid"]
    if pid is not None and _of_tests.get(module) == pid:
        return
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # there for tests, says its comment
    preload(module)
    _of_tests.clear()
    _of_tests[module] = server["_forkserver_pid"]


@pytest.fixture(scope="package", autouse=True)
def workers_start_soon(mlflow_environment: None) -> None:
    """For conftests to import: sweeps that tests call have workers that load nothing."""
    fork_server_with()
