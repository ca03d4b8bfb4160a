"""Trials that do not stop when they are told to; and the study that such a sweep holds."""

from __future__ import annotations

import signal

from tests.end_to_end.conftest import Call, snapshot
from tests.end_to_end.program import Program, mine
from tests.end_to_end.records import Records

WORDS = (
    "study.name=stuck",
    "study.n_trials=3",
    "admission.max_concurrent_trials=1",
    "devices=host",
    *mine("never_returns"),
)
DELIVERY = ("events.delivered", "delivery.log")


def what_counts(records: Records) -> dict[str, bytes]:
    """The study's files, but for those of the process that delivers it, which goes on meanwhile."""
    files = snapshot(records.path)
    return {name: files[name] for name in files if name not in DELIVERY}


def n_hanging(records: Records) -> int:
    """How often its first trial has come to the point where it hangs."""
    path = records.path / "checkpoints" / "trial-00000" / "hangs"
    return path.read_text().count("again") if path.exists() else 0


def test_trials_that_hang_hold_nobody_up(program: Program, call: Call) -> None:
    records = Records(program.folder, "stuck")
    first = program.start(*WORDS)
    first.wait_until(lambda: n_hanging(records) == 1, "a trial that hangs")

    first.signal(signal.SIGSTOP)  # so that it writes nothing while we look
    before = what_counts(records)
    refused = call("study.name=stuck", *WORDS)
    assert what_counts(records) == before
    first.signal(signal.SIGCONT)
    assert refused.code == 2
    assert f"another sweep works on this study (pid {first.process.pid} of " in refused.stderr
    assert "choose another study.name" in refused.stderr

    first.signal(signal.SIGINT)
    first.wait_until(lambda: "once more: at once" in first.stdout, "the word about Ctrl-C")
    first.signal(signal.SIGINT)
    assert first.wait().code == 130

    second = program.start("resume", "study.name=stuck", "study.grace_seconds=0.3")
    second.wait_until(lambda: n_hanging(records) == 2, "the trial, hanging again")
    second.signal(signal.SIGTERM)
    ended = second.wait()
    assert ended.code == 143
    assert "go on with: python -m automl resume study.name=stuck" in ended.stdout
    assert len(records.interrupted()) == 1, "left behind by its thread, or ended with its worker"
    assert {n: run.info.status for n, run in records.trial_runs().items()} == {0: "SCHEDULED"}
    assert records.optuna_states() == {0: "RUNNING"}
