"""Trials on a part of a large table, and on more of its rows, within a time limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from automl.record.studies import read_study
from automl.trial import ROWS_PARAM
from tests.end_to_end.conftest import Call

pytestmark = pytest.mark.slow


def test_a_trial_on_more_rows_gets_as_many_as_the_paces_of_the_sweep_promise(
    folder: Path, call: Call
) -> None:
    """Not all of them, which would take some hundred times as long as the sweep."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120_000, 3)).round(2), columns=[*"abc"])
    frame.assign(y=frame.a * frame.b > 0).to_csv("table.csv", index=False)
    words = ("table=table.csv", "target=y", "timeout=20", "space.rows=400")
    done = call(
        *words, "model.families=[boosting]", "name=a", "study.finish=none", "devices.only=cpu"
    )
    assert (done.code, done.stderr) == (0, "")
    trials = read_study(folder / "studies" / "a").trials.values()
    n_rows = [int(str(trial.params[ROWS_PARAM])) for trial in trials]
    first = next(n for n in n_rows if n != 400)
    assert 400 < first < 108_000
