"""What keeps trials from starting: a disk with less free space than the user wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.admission.refusals import RefusalKind
from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.running.loop.messages import TrialStartsHeld
from automl.running.trials.steering import StartConditions


def told(study: StudyConfig, folder: Path, n_looks: int = 2) -> list[TrialStartsHeld]:
    messages: list[TrialStartsHeld] = []
    holds = StartConditions(study, folder, lambda message, now: messages.append(message))
    for _ in range(n_looks):
        holds.look(0.0)
    return messages


def test_a_disk_with_less_space_than_wanted_takes_no_trial(tmp_path: Path) -> None:
    (message,) = told(StudyConfig(min_free_space="4096TiB"), tmp_path)
    assert message.refusal is not None
    assert message.refusal.kind is RefusalKind.HELD
    assert "study.min_free_space=4096TiB" in message.refusal.reason
    assert str(tmp_path) in message.refusal.reason


@pytest.mark.parametrize("space", [None, "1KiB", "auto"])
def test_a_disk_with_enough_space_is_not_spoken_of(tmp_path: Path, space: str | None) -> None:
    assert told(StudyConfig(min_free_space=space), tmp_path) == []


def test_one_gibibyte_stays_free_where_nobody_says_otherwise() -> None:
    assert StudyConfig().min_free_bytes == 2**30
    assert StudyConfig(min_free_space=None).min_free_bytes is None


def test_a_disk_that_cannot_be_asked_holds_nothing_back(tmp_path: Path) -> None:
    assert told(StudyConfig(min_free_space="4096TiB"), tmp_path / "gone") == []


@pytest.mark.parametrize("space", ["0GiB", "much", "-3GiB"])
def test_a_space_that_is_none_is_refused(space: str) -> None:
    with pytest.raises(ConfigError, match=r"study\.min_free_space"):
        StudyConfig(min_free_space=space)
