"""Studies that an earlier version began and that were killed go on, and are shown and delivered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Call
from tests.end_to_end.records import Records

STORED = Path(__file__).parents[1] / "stored_studies"
N_TRIALS = 8


NAMES = sorted(path.name for path in (STORED / "studies").iterdir())


@pytest.mark.parametrize(
    "name",
    [n if n == "table" else pytest.param(n, marks=pytest.mark.slow) for n in NAMES],
)
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


@pytest.fixture
def older(folder: Path) -> str:
    """A study begun before layers could grow and a split had a seed."""
    shutil.copytree(STORED, folder, dirs_exist_ok=True)
    journal = folder / "studies" / "disc" / "journal.log"
    lines = journal.read_text("utf-8").splitlines()
    (at,) = (n for n, line in enumerate(lines) if '"identity"' in line)
    begun = json.loads(lines[at])
    identity = begun["user_attr"]["automl"]["identity"]
    del begun["crc"], identity["model"]["growth"], identity["data"]["split_seed"]
    lines[at] = json.dumps(begun)
    journal.write_text("\n".join(lines) + "\n", "utf-8")
    return "study.name=disc"


def test_a_study_without_a_setting_of_today_goes_on_with_its_default(
    older: str, folder: Path, call: Call
) -> None:
    refused = call("resume", older, "model.growth=doubling", "space=doubling")
    assert refused.code == 2
    assert 'model.growth: not set in the study, "doubling" now' in refused.stderr
    assert "split_seed" not in refused.stderr
    resumed = call("resume", older)
    assert (resumed.code, resumed.stderr) == (0, "")
    assert set(Records(folder, "disc").outcomes()) == set(range(N_TRIALS))
