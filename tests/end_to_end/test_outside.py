"""Trials that somebody asks for and tells the results of, beside a sweep and without one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from automl.trial import FinishedOutcome, TrialStarted
from tests.end_to_end.program import OBJECTIVES, Program
from tests.end_to_end.records import Records

pytestmark = pytest.mark.slow

NAME = "study.name=lab"
SPACE = "space={temperature: {low: 20.0, high: 80.0}}"


def answer(program: Program, *words: str) -> Any:
    """Return the answer to a command that must succeed."""
    done = program.call(*words, NAME, "--json")
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)


def asked(program: Program, *words: str) -> list[int]:
    return [trial["trial"] for trial in answer(program, "ask", *words)["trials"]]


def test_a_study_is_begun_and_continued_by_ask_alone(program: Program) -> None:
    words = ("ask", SPACE, "study.metric=yield", "study.direction=maximize")
    first = answer(program, *words)
    assert (first["metric"], first["direction"]) == ("yield", "maximize")
    assert set(first["trials"][0]["params"]) == {"temperature"}
    again = program.call(*words, NAME)
    assert again.stdout.startswith('trial 1 {"temperature": ')
    said = program.call("tell", NAME, "trial=0", "value=0.31")
    assert (said.code, said.stdout) == (0, "trial 0 finished with 0.31\n")

    for wrong in ("study.direction=minimize", "space={temperature: {low: 20.0, high: 90.0}}"):
        refused = program.call("ask", NAME, wrong)
        assert refused.code == 2
        assert "not as the study has it" in refused.stderr
    unknown = program.call("ask", "study.name=lap")
    assert unknown.code == 2
    assert "no such study in studies; there are: lab. Begin it with its space" in unknown.stderr
    assert program.call("tell", "study.name=lap", "trial=0", "value=1").code == 2
    assert not (program.folder / "studies" / "lap").exists()
    assert program.call("sweep", "objective=outside", "study.name=empty").code == 2

    assert answer(program, "status")["best"]["value"] == 0.31
    assert answer(program, "trials")["trials"][0]["state"] == "finished"
    assert program.call("report", NAME).code == 0
    assert program.call("refit", NAME).code == 2


def test_a_study_that_a_sweep_keeps_open_survives_its_kill(program: Program) -> None:
    records = Records(program.folder, "lab")
    sweep = program.start("objective=outside", SPACE, NAME, "study.n_trials=4", "devices.only=cpu")
    sweep.wait_until(lambda: records.n_lines() > 0, "the sweep's begin")
    assert asked(program, "n=2") == [0, 1]
    answer(program, "tell", "trial=0", "value=0.5")
    sweep.wait_until(  # it writes its status once a second
        lambda: answer(program, "status")["counts"]["running"] == 1, "one that runs"
    )
    sweep.kill()
    counts = answer(program, "status")["counts"]
    assert (counts["finished"], counts["running"], counts["interrupted"]) == (1, 1, 0)
    answer(program, "tell", "trial=1", "value=0.25")
    assert asked(program, "lease=0.001") == [2]

    sweep = program.start("resume", NAME)
    sweep.wait_until(lambda: len(records.interrupted()) == 1, "the end of the lease")
    assert asked(program, "n=5") == [2, 3]
    answer(program, "tell", "trial=3", "step=0", "value=4.0")
    assert answer(program, "stop", "trial=3")["answer"] == "trial 3 pruned with 4"
    assert answer(program, "tell", "trial=3", "step=1", "value=4.0")["prune"]
    answer(program, "tell", "trial=2", "value=1.5")
    assert sweep.wait().code == 0

    assert records.optuna_states() == {0: "COMPLETE", 1: "COMPLETE", 2: "COMPLETE", 3: "PRUNED"}
    runs = records.trial_runs()
    assert [runs[n].data.metrics["value"] for n in range(4)] == [0.5, 0.25, 1.5, 4.0]
    assert [runs[n].info.status for n in range(4)] == [*["FINISHED"] * 3, "KILLED"]
    assert records.parent().data.metrics["trials_finished"] == 3


def test_a_sweep_waits_for_trials_outside_and_runs_what_is_given_back(program: Program) -> None:
    records = Records(program.folder, "lab")
    sweep = program.start(
        *(NAME, "study.n_trials=4", "space={x: {low: 0.0, high: 1.0}}", "devices.only=cpu"),
        *("objective=python", f"objective.target={OBJECTIVES}:reports_until_told", "pruner=none"),
        *("admission.max_concurrent_trials=1", "tracking.uri=none"),
    )
    sweep.wait_until(lambda: records.n_lines() > 3, "a trial that reports")
    out, back = asked(program, "n=2")
    refused = program.call("tell", NAME, "trial=0", "value=1")
    assert "the study's own sweep has it" in refused.stderr
    answer(program, "tell", f"trial={back}", "state=interrupted")
    (records.path / "go on").touch()
    sweep.wait_until(lambda: len(records.outcomes()) == 3, "all trials but the one outside")
    answer(program, "tell", f"trial={out}", "value=-1.0")
    assert sweep.wait().code == 0

    outcomes = records.outcomes()
    assert all(isinstance(outcome, FinishedOutcome) for outcome in outcomes.values())
    starts = [event for event in records.events() if isinstance(event, TrialStarted)]
    where = {n: [s.device for s in starts if s.trial == n] for n in range(4)}
    assert (where[out], where[back]) == (["outside"], ["outside", "cpu"])
    assert answer(program, "status")["best"]["number"] == out
