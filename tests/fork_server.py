"""The fork server of a test process, started anew where a module needs certain libraries in it."""

from __future__ import annotations

from multiprocessing import forkserver

from automl.execution.process import preload


def fork_server_with(module: str) -> None:
    """One that has loaded the module, and what another test's server had is not there.

    Else each child loads by itself what the server lacks: torch in 2 s, what surveys need in 1.4 s.
    """
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # there for tests, says its comment
    preload(module)
