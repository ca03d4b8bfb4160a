"""How far a sweep goes, as its settings say."""

from __future__ import annotations

import pytest

from automl.config import MANY_TRIALS, StudyConfig
from automl.errors import ConfigError
from automl.running.greeting import how_far


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (StudyConfig(), "to 20 trials"),
        (StudyConfig(n_trials=7), "to 7 trials"),
        (StudyConfig(n_trials=7, timeout_seconds=300), "to 7 trials"),
        (StudyConfig(n_trials=MANY_TRIALS, timeout_seconds=300), "as many trials as 5:00 allow"),
    ],
)
def test_a_time_alone_is_the_limit(study: StudyConfig, said: str) -> None:
    assert how_far(study) == said


def test_no_trials_are_no_study() -> None:
    with pytest.raises(ConfigError, match=r"study\.n_trials=0: must be at least 1"):
        StudyConfig(n_trials=0)
