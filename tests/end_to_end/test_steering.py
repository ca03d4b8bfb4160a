"""Commands that steer a sweep while it runs: enqueue, stop, pause and resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.terminal.view import load_view
from automl.trial import FinishedOutcome, InterruptedOutcome, PrunedOutcome, StudyEdited
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import OBJECTIVES, Done, Program
from tests.end_to_end.records import Records
from tests.end_to_end.test_shared import Machines, machines
from tests.postgres import database, postgres

__all__ = ["database", "machines", "postgres"]

NAME = "study.name=steered"
WORDS = (
    NAME,
    "study.n_trials=6",
    "objective=python",
    f"objective.target={OBJECTIVES}:reports_until_told",
    "space={x: {low: 0.0, high: 1.0}}",
    "admission.max_concurrent_trials=1",
    "devices.only=cpu",
    "pruner=none",
    "tracking.uri=none",
)


@pytest.mark.slow
def test_a_running_sweep_does_what_commands_ask_for(program: Program, call: Call) -> None:
    records = Records(program.folder, "steered")

    def ask(*words: str) -> Done:
        return call(*words, NAME)

    def reasons() -> str:
        return "".join(row.reason for row in load_view(records.path / "status.json").waiting)

    sweep = program.start(*WORDS)
    sweep.wait_until(lambda: records.n_lines() > 3, "a trial that reports")

    assert "trial " in ask("enqueue", "params={x: 0.25}").stdout
    refused = ask("enqueue", "params={x: 7.0}")
    assert refused.code == 2
    assert "params.x=7.0: must be numbers 0.0..1.0 (space.x)" in refused.stderr
    assert "outside=true" in refused.stderr
    far = ask("enqueue", "params={x: 7.0}", "outside=true")
    number = int(far.stdout.split()[1].rstrip(":"))

    assert ask("pause").code == 0
    assert ask("stop", "trial=0").code == 0
    sweep.wait_until(
        lambda: any(isinstance(e, PrunedOutcome) for e in records.of_trial(0)), "a pruned trial"
    )
    sweep.wait_until(lambda: "the sweep is paused" in reasons(), "the reason of the pause")
    assert ask("stop", f"trial={number}").code == 0
    assert ask("stop", "trial=0").code == 2, "it has ended"
    (records.path / "go on").touch()
    before = {*records.outcomes()}
    assert ask("resume").code == 0
    assert sweep.wait().code == 0

    assert before == {0, number}, "nothing started meanwhile"
    assert records.params()[number] == {"x": 7.0}
    assert [n for n, params in records.params().items() if params == {"x": 0.25}] == [number - 1]
    ends = {n: type(records.of_trial(n)[-1]) for n in range(6)}
    assert ends == dict.fromkeys(range(6), FinishedOutcome) | dict.fromkeys(
        (0, number), PrunedOutcome
    )
    assert ask("stop", "trial=1").code == 2
    assert ask("pause").code == 2

    assert " n_trials=7" in ask("enqueue", "params={x: 0.75}").stdout, "all 6 have ended"
    assert "they wait for a larger total" in ask("resume").stdout
    assert ask("resume", "study.n_trials=7").code == 0
    assert records.params()[6] == {"x": 0.75}
    assert InterruptedOutcome not in map(type, records.events())


@pytest.mark.slow
def test_commands_reach_the_sweeps_of_a_shared_study_from_any_machine(
    machines: Machines, database: str
) -> None:
    """One of them is killed in between: nothing is lost, and nothing is done twice."""
    words = (
        *machines.shared(6),
        *("objective=python", f"objective.target={OBJECTIVES}:reports_until_told"),
        *("space={x: {low: 0.0, high: 1.0}}", "admission.max_concurrent_trials=1"),
        *("tracking.uri=none", "sampler=random"),
    )
    known = ("study.name=shared", f"study.storage='{database}'")
    records = {name: machines.records(name) for name in "ab"}
    first = machines["a"].start(*words)
    first.wait_until(lambda: 0 in records["a"].params(), "its trial")
    second = machines["b"].start(*words)
    second.wait_until(lambda: 1 in records["b"].params(), "its trial")

    def ask(*command: str) -> Done:
        done = machines["c"].call(*command, *known)
        assert (done.code, done.stderr) == (0, "")
        return done

    paused = ask("pause").stdout.splitlines()
    assert [line.partition(": ")[2][:36] for line in paused] == [
        "no trial starts from now on; 1 runni"
    ] * 2
    assert ask("stop", "trial=1").stdout == "at its next report trial 1 is pruned\n"
    second.wait_until(
        lambda: any(isinstance(e, PrunedOutcome) for e in records["a"].of_trial(1)),
        "a pruned trial, which the other sweep knows of",
    )
    assert ask("enqueue", "params={x: 0.25}").stdout.startswith("trial 2: ")
    edited = ask("edit", "space.x={low: 2.0, high: 3.0}").stdout
    assert edited == "space.x.low: 0.0 → 2.0\nspace.x.high: 1.0 → 3.0\n"
    second.kill()
    machines.lapse()
    resumed = machines["a"].call("resume", "study.name=shared")
    assert (resumed.code, resumed.stdout, resumed.stderr) == (0, "trials start again\n", "")
    (records["a"].path / "go on").touch()
    done = first.wait()
    assert (done.code, done.stderr) == (0, "")

    assert ask("edit", "study.n_trials=7").stdout == "study.n_trials: 6 → 7\n"
    Path(machines["c"].folder, "studies", "shared", "go on").touch()
    assert machines["c"].call("resume", *known).code == 0
    ended = machines.records("c")
    assert sorted(ended.outcomes()) == [*range(7)]
    xs = [float(str(params["x"])) for _, params in sorted(ended.params().items())]
    assert xs[2] == 0.25
    assert [2.0 <= x <= 3.0 for x in xs] == [False] * 3 + [True] * 4
    assert [e.n_trials for e in ended.events() if isinstance(e, StudyEdited)] == [3, 6]
