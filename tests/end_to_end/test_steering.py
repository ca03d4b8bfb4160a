"""Commands that steer a sweep while it runs: enqueue, stop, pause and resume."""

from __future__ import annotations

import pytest

from automl.running.display.view import load_view
from automl.trial import FinishedOutcome, InterruptedOutcome, PrunedOutcome
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import OBJECTIVES, Done, Program
from tests.end_to_end.records import Records

NAME = "study.name=steered"
WORDS = (
    NAME,
    "study.n_trials=6",
    "objective=python",
    f"objective.target={OBJECTIVES}:reports_until_told",
    "space={x: {low: 0.0, high: 1.0}}",
    "admission.max_concurrent_trials=1",
    "devices=host",
    "pruner=none",
    "tracking.store=none",
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
    assert "params.x=7.0: must be numbers from 0.0 to 1.0 (space.x)" in refused.stderr
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
    assert InterruptedOutcome not in map(type, records.events())
