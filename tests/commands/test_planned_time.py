"""`plan`: says what a sweep would do, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import automl.commands.gain
from automl.cli import main
from tests.end_to_end.conftest import snapshot

ALIKE = "space={depth: 1, width: 16, batch_size: 64, lr: 0.01}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_plan_says_what_runs_and_leaves_no_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", ALIKE, "n_trials=7", "devices.only=cpu"]) == 0
    assert snapshot(folder) == {}
    out = capsys.readouterr().out
    assert "to 7 trials" in out
    assert "built-in training of mlp" in out
    assert "arithmetic on its params" in out
    assert "how long a trial takes is not known before one has run" in out


@pytest.mark.slow
def test_a_measured_plan_tells_the_time_by_what_it_timed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automl.commands.gain, "WAY_SECONDS", 5.0)
    words = ["plan", "--json", ALIKE, "n_trials=6", "devices.only=cpu", "measure=true"]
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    first = answer["timings"][0]["timing"]["trial_seconds"]
    assert answer["time"]["trial_seconds"] == pytest.approx(first)
    assert answer["time"]["n_left"] == 6
