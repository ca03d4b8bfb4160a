"""Trials that do not stop when they are told to; and the study that such a sweep holds."""

from __future__ import annotations

import signal

import psutil
import pytest

from automl.record.studies import read_study
from tests.end_to_end.conftest import Call, snapshot
from tests.end_to_end.program import Program, Running, objective_words
from tests.end_to_end.records import Records

WORDS = (
    "study.name=stuck",
    "study.n_trials=3",
    "admission.max_concurrent_trials=1",
    "devices.only=cpu",
    *objective_words("never_returns"),
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


@pytest.mark.slow
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
    assert "go on with: python -m automl resume stuck" in ended.stdout
    assert len(records.interrupted()) == 1, "left behind by its thread, or ended with its worker"
    assert {n: run.info.status for n, run in records.trial_runs().items()} == {0: "SCHEDULED"}
    assert records.optuna_states() == {0: "RUNNING"}


def processes_of(running: Running) -> list[psutil.Process]:
    sweep = psutil.Process(running.process.pid)
    return [sweep, *sweep.children(recursive=True)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_batch_system_s_signal_to_every_process_stops_it_in_order(
    program: Program, number: signal.Signals
) -> None:
    """As Slurm's `--signal` and `scancel` send it, and `timeout`, which sends it twice."""
    records = Records(program.folder, "job")
    words = (
        "study.name=job",
        "study.n_trials=4",
        "devices.only=cpu",
        "sampler=random",
        "pruner=none",
    )
    small = ("training.epochs=4000", "data.n_train=300", "data.n_validation=100")
    # From a start of its own: a fork has the tests' fork server, which the signal does not reach.
    running = program.start_module("automl", *words, *small, "admission.max_concurrent_trials=2")
    running.wait_until(lambda: records.n_lines() > 10, "ten events")
    everybody = processes_of(running)
    assert len(everybody) > 3, "fork server, workers, the deliverer"
    for process in (everybody[0], *everybody):
        process.send_signal(number)
    ended = running.wait()
    assert (ended.code, ended.stderr) == (143, "")
    assert f"{number.name}: " in ended.stdout
    assert "go on with: python -m automl resume job" in ended.stdout
    interrupted = records.interrupted()
    assert interrupted
    record = read_study(records.path)
    assert all(not record.trials[e.trial].n_deaths for e in interrupted), "none died of it"
    assert all(record.trials[e.trial].checkpoints for e in interrupted)
    status = {n: run.info.status for n, run in records.trial_runs().items()}
    assert {status[e.trial] for e in interrupted} == {"SCHEDULED"}, "the deliverer ended its work"
