"""Requests that a sweep answers by itself, without a trial that runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from automl.config import StudyConfig
from automl.record.study_directory import StudyDirectory
from automl.record.study_requests import RequestAnswer, wait_for_answer, write_request
from automl.running.trials.disk_space import StartConditions
from automl.running.trials.steering import StudySteering


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StudyDirectory]:
    config = StudyConfig(name="calm-crane", dir=str(tmp_path))
    with StudyDirectory.open(config, must_exist=False) as directory:
        directory.files.config.touch()
        yield directory


def answer(directory: StudyDirectory, kind: str, arguments: dict[str, Any]) -> RequestAnswer:
    """Return what a sweep says that has no trials, and that was asked while it was set up."""
    request = write_request(directory.path, kind, arguments)
    asking = SimpleNamespace(n_trials=9)
    study = SimpleNamespace(by_request={}, suggester=None, n_asked=0)
    outside = SimpleNamespace(end_leases=lambda now: [], leave_free=list)
    parts: Any = SimpleNamespace(directory=directory, study=study, outside=outside)
    loop: Any = SimpleNamespace(stop=None, running={}, asking=asking)
    holds = StartConditions(StudyConfig(name="calm-crane"), directory.path, lambda *told: None)
    nothing: Any = None
    StudySteering(parts, loop, nothing, holds, nothing, nothing).look(0.0)
    return cast(RequestAnswer, wait_for_answer(directory.path, request, 60))


def test_a_pause_that_is_asked_for_while_the_sweep_is_set_up_is_made(
    directory: StudyDirectory,
) -> None:
    answered = answer(directory, "pause", {})
    assert (answered.done, answered.text[:33]) == (True, "no trial starts from now on; 0 ru")


@pytest.mark.parametrize("arguments", [{}, {"points": 1}, {"points": [1]}, {"points": ["lr"]}])
def test_points_that_no_command_writes_are_refused(
    directory: StudyDirectory, arguments: dict[str, Any]
) -> None:
    answered = answer(directory, "enqueue", arguments)
    assert not answered.done
    assert "it cannot be read" in answered.text
