"""What a program of another environment is given of its trial's run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
from automl.tracking.inside.process import ForeignPrograms

URI = "sqlite:////tmp/mlflow.db"


class StoppedError(Exception):
    """Raised by a trial that need not go on."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


@pytest.fixture
def confirmed(log: Path) -> Iterator[DeliveryConfirmations]:
    file = DeliveryConfirmations.open(log, wait_seconds=0.0)
    yield file
    file.close()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Of an environment with MLflow."""
    (tmp_path / "lib/python3.12/site-packages/mlflow_skinny-2.1.dist-info").mkdir(parents=True)
    return tmp_path / "bin" / "python"


def stopped() -> None:
    raise StoppedError


def test_it_joins_the_run_of_its_trial(
    log: Path, confirmed: DeliveryConfirmations, program: Path
) -> None:
    joining = ForeignPrograms(URI, redirect=True)
    confirmed.note_study("5b7c", "3", "9f")
    confirmed.note_run(1, "a0")

    def appears() -> None:
        confirmed.note_run(0, "d9c1")

    assert joining.variables(program, log, 0, ask=appears) == {
        "MLFLOW_TRACKING_URI": URI,
        "MLFLOW_RUN_ID": "d9c1",
    }
    with pytest.raises(StoppedError):
        joining.variables(program, log, 2, ask=stopped)


def test_it_waits_for_the_store_that_both_would_make(
    log: Path, confirmed: DeliveryConfirmations, program: Path
) -> None:
    following = ForeignPrograms(URI, redirect=False)
    with pytest.raises(StoppedError):
        following.variables(program, log, 0, ask=stopped)

    def appears() -> None:
        confirmed.note_study("5b7c", "3", "9f")

    assert following.variables(program, log, 0, ask=appears) == {}
    assert following.variables(program, log.with_name("other"), 1, ask=stopped) == {}, "once"


@pytest.mark.parametrize("redirect", [False, True])
def test_without_mlflow_nothing_is_waited_for(redirect: bool, log: Path, tmp_path: Path) -> None:
    program = tmp_path / "none" / "bin" / "sh"
    assert ForeignPrograms(URI, redirect=redirect).variables(program, log, 0, ask=stopped) == {}
