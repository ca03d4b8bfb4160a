"""Objectives that fail: a failure is a result with a cause, and the sweep knows when to give up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.conftest import Call
from tests.end_to_end.program import objective_words
from tests.end_to_end.records import Records

CAUSES = {
    "raises": "ValueError: the rows of trial",
    "exits": "SystemExit: cannot go on",
    "returns_nan": "the objective returned nan: return a finite number",
    "returns_inf": "the objective returned inf: return a finite number",
    "returns_text": "the objective returned '1.5' (str): return a finite number",
    "returns_nothing": "nothing returned and nothing reported",
    "reports_nan": "val_loss was never a finite number",
}


def test_a_failing_trial_is_a_result_and_the_sweep_goes_on(folder: Path, call: Call) -> None:
    how = ",".join([*CAUSES, "well"])
    words = (
        *objective_words("ends_as_told"),
        f"space={{how: {{choices: [{how}]}}}}",
        "sampler=grid",
    )
    done = call("study.name=odd", "study.n_trials=20", "devices.only=cpu", *words)
    assert done.code == 0, done.stderr
    assert "odd: 1 finished, 7 failed" in done.stdout
    records = Records(folder, "odd")
    runs = {run.data.params["how"]: run for run in records.trial_runs().values()}
    assert set(runs) == {*CAUSES, "well"}
    assert runs["well"].info.status == "FINISHED"
    for name, cause in CAUSES.items():
        assert runs[name].info.status == "FAILED"
        assert cause in runs[name].data.tags["automl.cause"]
        assert f"trial {runs[name].data.tags['automl.trial']} failed: {cause}" in done.stdout
    assert "Traceback" in runs["raises"].data.tags["mlflow.note.content"]


def swept(call: Call, name: str, *words: str) -> tuple[int, str, str]:
    done = call(
        f"study.name={name}",
        "study.n_trials=12",
        "devices.only=cpu",
        *objective_words(name),
        *words,
    )
    return done.code, done.stdout, done.stderr


@pytest.mark.usefixtures("folder")
def test_ten_failures_in_a_row_with_one_error_stop_it(call: Call) -> None:
    code, said, error = swept(call, "always_raises", "admission.max_concurrent_trials=1")
    assert code == 1
    assert error.startswith("automl: stopped: ")
    assert "ValueError: the table is gone" in error
    assert "always_raises: 10 failed" in said


@pytest.mark.usefixtures("folder")
def test_all_failing_is_a_failed_sweep(call: Call) -> None:
    code, said, error = swept(call, "raises_differently")
    assert code == 1
    assert "no trial finished; the last error: ValueError: the table of trial" in error
    assert "raises_differently: 12 failed" in said
    _, row = call("list").stdout.splitlines()
    assert row.split()[:4] == ["raises_differently", "failed", "12/12", "12"]


@pytest.mark.parametrize(
    ("name", "wanted", "there"),
    [
        ("looks_up_another_param", "learning_rate", "params: x"),
        ("reports_another_metric", "val_loss", "acc, loss"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_an_objective_that_does_not_fit_stops_after_its_first_trial(
    name: str, wanted: str, there: str, call: Call
) -> None:
    code, said, error = swept(call, name, "admission.max_concurrent_trials=1")
    assert code == 1
    assert f"{name}: 1 failed" in said
    assert wanted in error
    assert there in error


def test_memory_of_the_host_that_runs_out_is_no_failure(folder: Path, call: Call) -> None:
    """The same trial goes on in the same run from its checkpoint, with more, then with all."""
    words = ("study.name=grows", "study.n_trials=1", "devices.only=cpu", "sampler=grid")
    settings = ("admission.request=64MiB", "training.checkpoint_every_seconds=0")
    space = "space={times: {choices: [2]}}"
    done = call(*words, *settings, *objective_words("runs_out_of_memory"), space)
    assert done.code == 0, done.stderr
    assert "declare admission.request=" in done.stdout
    assert done.stdout.count("ran out of memory: admission.request=64MiB is too little") == 1
    records = Records(folder, "grows")
    assert sorted(records.losses()) == [(0, step) for step in range(4)]
    kinds = [type(event).__name__ for event in records.of_trial(0)]
    assert (kinds.count("TrialStarted"), kinds.count("OutOfMemoryOutcome")) == (3, 2)
    assert kinds[-1] == "FinishedOutcome"
    (run,) = records.trial_runs().values()
    assert run.info.status == "FINISHED"
    assert records.steps(run, "val_loss") == [0, 1, 2, 3]


def test_a_study_of_nothing_but_what_fits_nowhere_has_failed(folder: Path, call: Call) -> None:
    """Also when a kill came before the study was told: its event log knows the excess."""
    words = ("study.name=wall", "devices.only=cpu", "study.n_trials=2", "sampler=grid")
    space = "space={times: {choices: [4, 5]}}"
    done = call(*words, *objective_words("always_runs_out"), space)
    assert done.code == 1
    assert "wall: 2 pruned" in done.stdout
    assert "no trial finished; the last error: does not fit, even alone" in done.stderr
    records = Records(folder, "wall")
    told = [trial.constraints for trial in records.optuna_study().trials]
    assert len(told) == 2
    assert all(told)

    journal = records.path / "journal.log"
    lines = journal.read_bytes().splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if b"constraints" in line)
    journal.write_bytes(b"".join(lines[:first]))
    again = call("resume", "study.name=wall")
    assert again.code == 1, again.stderr
    assert "wall: 2 pruned" in again.stdout
    assert [trial.constraints for trial in records.optuna_study().trials] == told
    assert set(records.optuna_states().values()) == {"PRUNED"}
    runs = records.trial_runs().values()
    assert {run.info.status for run in runs} == {"KILLED"}
    assert all("does not fit" in run.data.tags["automl.cause"] for run in runs)
