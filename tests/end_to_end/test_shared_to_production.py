"""The winner of a study in PostgreSQL goes where any other goes."""

from __future__ import annotations

import pytest

from automl.record.studies import read_study
from automl.record.study_files import StudyFiles
from tests.end_to_end.test_shared import Machines, database, machines, postgres

__all__ = ["database", "machines", "postgres"]

STUDY = "study.name=shared"
DISC = ("data.n_train=200", "data.n_validation=200", "training.epochs=2", "sampler=random")


@pytest.mark.slow
def test_the_winner_of_a_shared_study_is_scored_refitted_and_exported(machines: Machines) -> None:
    words = (*machines.shared(2), *DISC)
    swept = machines["a"].call(*words)
    assert (swept.code, swept.stderr) == (0, "")
    for command in (["evaluate"], ["refit"], ["export"], ["status"]):
        done = machines["a"].call(*command, STUDY)
        assert (done.code, done.stderr) == (0, ""), command
    path = machines.records("a").path
    assert (path / "refit.pt").exists()
    assert [*path.glob("exports/*")], sorted(p.name for p in path.iterdir())
    # What was scored here is in the database, and the copies still agree with it.
    database = next(word for word in words if word.startswith("study.storage="))
    assert machines["b"].call("status", STUDY, database).code == 0
    here, there = (read_study(machines.records(name).path) for name in "ab")
    assert here.evaluations
    assert here.evaluations == there.evaluations
    # Another goes on with it; what it found is the winner here, too.
    assert machines["b"].call("resume", STUDY, "study.n_trials=4").code == 0
    assert machines["a"].call("evaluate", STUDY).code == 0
    assert len(read_study(path).trials) == 4


@pytest.mark.slow
def test_who_registers_makes_no_second_run(machines: Machines) -> None:
    pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
    assert machines["a"].call(*machines.shared(2), *DISC).code == 0
    records = machines.records("a")
    runs = records.trial_runs()
    StudyFiles(records.path).delivered.unlink()  # the database knows them
    done = machines["a"].call("export", "format=registry", STUDY)
    assert (done.code, done.stderr) == (0, "")
    assert "version 1" in done.stdout
    after = records.trial_runs()
    assert {n: run.info.run_id for n, run in after.items()} == {
        n: run.info.run_id for n, run in runs.items()
    }


@pytest.mark.slow
def test_a_refit_by_other_settings_is_refused(machines: Machines) -> None:
    assert machines["a"].call(*machines.shared(2), *DISC).code == 0
    done = machines["a"].call("refit", STUDY, "study.seed=7")
    assert done.code == 2
    assert "study.seed: 0 in the study, 7 now" in done.stderr
