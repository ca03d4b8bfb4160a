"""The fork server of a test process, with all that its children may want: who starts it decides."""

from __future__ import annotations

import pytest

from automl.execution.process import preload


@pytest.fixture(scope="session")
def fork_server() -> None:
    """One that lacks torch, or what surveys need of it, costs each child 2 s, or 1.4 s."""
    preload("automl.training.session", "automl.training.survey.child", "automl.training.gain.child")
