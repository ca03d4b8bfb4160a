"""Studies that an earlier version began and that were killed go on, and are shown and delivered."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Call
from tests.end_to_end.records import Records

STORED = Path(__file__).parents[1] / "stored_studies"
N_TRIALS = 8


@pytest.mark.parametrize("name", sorted(path.name for path in (STORED / "studies").iterdir()))
def test_a_study_of_before_goes_on(name: str, folder: Path, call: Call) -> None:
    shutil.copytree(STORED, folder, dirs_exist_ok=True)
    assert "interrupted" in call("status", f"study.name={name}").stdout
    synced = call("sync", f"study.name={name}")
    assert (synced.code, synced.stderr) == (0, "")
    resumed = call("resume", f"study.name={name}")
    assert (resumed.code, resumed.stderr) == (0, "")
    records = Records(folder, name)
    assert set(records.outcomes()) == set(range(N_TRIALS))
    assert set(records.trial_runs()) == set(range(N_TRIALS))
    assert records.losses().keys() >= {(number, 0) for number in range(N_TRIALS)}
