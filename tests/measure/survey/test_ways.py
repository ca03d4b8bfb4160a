"""The ways in which people write loops: surveyed unchanged, and close to what they really take."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.measure.survey.survey_result import SurveyResult
from automl.measure.survey.survey_run import survey_objective
from tests.measure.survey.truth import really_allocated
from tests.measure.survey.ways import WAYS
from tests.models.conftest import make_spec

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", WAYS)
def test_a_way_is_surveyed_close_to_what_it_takes(name: str, tmp_path: Path) -> None:
    objective, error = WAYS[name]
    survey = survey_objective(objective, make_spec(tmp_path), "val_loss")
    assert isinstance(survey, SurveyResult), survey
    really = really_allocated(objective, tmp_path).peak_allocated_bytes
    assert survey.allocated_bytes == pytest.approx(really, rel=error)
    assert survey.n_steps >= 3 or name == "functional"
