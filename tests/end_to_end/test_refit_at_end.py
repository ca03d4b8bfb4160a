"""A sweep over any family with one hold-out ends with its ensemble, trained again on all rows."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import automl
from automl.record.studies import read_study
from automl.trial import TrialOutcome
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program
from tests.end_to_end.tables import AUTO, wine_like

pytestmark = pytest.mark.slow

NAME = "study.name=a"
BY_ITSELF = (NAME, *AUTO[:-1], "admission.max_concurrent_trials=1")
"""A member at a time, so that it can be met in the midst."""
FILE = Path("studies/a/refit.pt")
LINE = "trained again on all 240 rows: studies/a/refit.pt"


@pytest.fixture
def table(folder: Path) -> Path:
    wine_like().to_csv(folder / "wine.csv", index=False)
    return folder


def refits(folder: Path) -> list[Path]:
    return sorted((folder / "studies" / "a" / "refits").glob("*"))


def ended(folder: Path) -> dict[int, TrialOutcome | None]:
    """Members of the refit, if it has begun."""
    found = [one for one in refits(folder) if (one / "events.log").exists()]
    trials = [trial for one in found for trial in read_study(one).trials.values()]
    return {trial.number: trial.outcome for trial in trials if trial.state.is_final}


def in_its_midst(folder: Path) -> Callable[[], bool]:
    return lambda: len(ended(folder)) >= 1


def test_the_sweep_ends_with_it_and_all_that_takes_a_model_takes_it(
    table: Path, call: Call
) -> None:
    done = call(*BY_ITSELF)
    assert (done.code, done.stderr) == (0, "")
    assert LINE in done.stdout
    said = " ".join(done.stdout.split())
    assert re.search(r"60 test ensemble 0\.\d+ .* its refit 0\.\d+ .* mean ", said)
    made = read_study(table / "studies" / "a").best_ensemble
    assert made is not None
    model = automl.load(FILE)
    assert model.params == {f"trial-{n:05d}": weight for n, weight in made.members.items()}
    assert model.refitted is not None
    assert model.refitted.rows == "train+validation"
    assert LINE.partition(": ")[2] in call("status", NAME).stdout
    done = call("evaluate", NAME)
    assert done.code == 0, done.stderr
    assert read_study(table / "studies" / "a").evaluations[-1].models[0] == "refit-ensemble"
    # Nothing has ended since, so that the sweep that goes on trains nothing and leaves the file.
    before = FILE.stat().st_mtime_ns
    assert "refit, as it was: studies/a/refit.pt" in call("resume", NAME).stdout
    assert FILE.stat().st_mtime_ns == before


def test_killed_in_its_midst_the_study_goes_on_with_what_is_left(
    table: Path, program: Program, call: Call
) -> None:
    running = program.start(*BY_ITSELF)
    running.wait_until(in_its_midst(table), "a member")
    running.kill()
    assert not FILE.exists()
    before = ended(table)
    done = call("resume", NAME)
    assert (done.code, done.stderr) == (0, "")
    assert LINE in done.stdout
    assert len(refits(table)) == 1
    assert before.items() <= ended(table).items(), "what had ended is not done again"
    killed = automl.load(FILE).predict(wine_like())
    FILE.unlink()
    assert call("refit", NAME).code == 0
    np.testing.assert_array_equal(automl.load(FILE).predict(wine_like()), killed)


def test_interrupted_it_leaves_the_ensemble(table: Path, program: Program, call: Call) -> None:
    running = program.start(*BY_ITSELF)
    running.wait_until(in_its_midst(table), "a member")
    running.signal(signal.SIGTERM)
    done = running.wait()
    assert done.code == 143
    again = "python -m automl refit a"
    assert f"not trained again on all rows (interrupted); do it by: {again}" in done.stdout
    assert "ensemble: studies/a/ensemble.pt" in done.stdout
    assert not FILE.exists()
    assert call(*again.split()[3:]).code == 0
    assert FILE.exists()


def test_where_it_is_not_wanted_nothing_is_said_of_it(table: Path, call: Call) -> None:
    done = call(
        *BY_ITSELF, "study.finish=[ensemble,plots]", "study.n_trials=2", "training.epochs=2"
    )
    assert (done.code, done.stderr) == (0, "")
    assert "ensemble: studies/a/ensemble.pt" in done.stdout
    assert "trained again" not in done.stdout
    assert not refits(table)


def test_what_it_cannot_be_done_with_is_said(table: Path, call: Call) -> None:
    done = call(*BY_ITSELF, "study.finish=ensemble", "study.n_trials=2", "training.epochs=2")
    assert (done.code, done.stderr) == (0, "")
    done = call("resume", NAME, "study.finish=auto", "study.timeout_seconds=1e-3")
    assert done.code == 0
    assert re.search(
        r"not trained again on all rows \(that takes about .*, and of study.timeout_seconds=0.001 "
        r"0 s are left\); do it by: python -m automl refit a",
        done.stdout,
    )
    assert "no trial ended" not in done.stdout, "none was wanted"
