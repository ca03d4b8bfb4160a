"""What a stranger's words do to a sweep: long ones, unspeakable ones, and those with secrets."""

from __future__ import annotations

import json
import signal

import pytest

from automl.trial import Failed, Reported
from tests.end_to_end.hostile import LONG_WORD
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records


def mine(name: str) -> tuple[str, ...]:
    return ("objective=python", f"objective.target=tests.end_to_end.hostile:{name}", "devices=host")


@pytest.mark.timeout(60)
def test_a_long_word_holds_nobody_up(program: Program) -> None:
    records = Records(program.folder, "long")
    two = ("study.n_trials=2", "admission.max_concurrent_trials=2", "space={x: 1}")
    first = program.start("study.name=long", *two, *mine("one_raises_a_long_word"))

    def n_reports() -> int:
        return sum(isinstance(event, Reported) for event in records.of_trial(0))

    first.wait_until(lambda: 1 in records.outcomes(), "the failure")
    n_before = n_reports()
    first.wait_until(lambda: n_reports() > n_before, "a report of its neighbour")
    first.signal(signal.SIGINT)
    assert first.wait().code == 130
    failed = records.outcomes()[1]
    assert isinstance(failed, Failed)
    assert failed.cause.startswith("ValueError: bad reply: ab01ab01")
    assert "[cut, 400" in failed.cause, "how long it was is said"
    assert len(failed.cause) < 2_000
    assert len(failed.details) < 50_000

    # As a version that did not cut wrote it, and nothing delivered yet.
    log = records.path / "events.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if line["event"] == "Failed":
            line |= {"cause": f"a=b@c {LONG_WORD}", "details": f"a=b@c {LONG_WORD}"}
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (records.path / "events.delivered").unlink()
    resumed = program.run("resume", "study.name=long")
    assert resumed.code == 0, resumed.stderr
    assert "long: 1 finished, 1 failed" in resumed.stdout
    assert records.trial_runs()[1].data.tags["automl.cause"].startswith("a=b@c ab01")
