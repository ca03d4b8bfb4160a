"""Trials on the CPU and on GPUs in one sweep, and after an interruption."""

from __future__ import annotations

import signal

import pytest

from automl.trial import Started
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records
from tests.nvml_stub.stub import NvmlStub

N_TRIALS, N_EPOCHS = 6, 60
WORDS = (
    f"study.n_trials={N_TRIALS}",
    f"training.epochs={N_EPOCHS}",
    "data.n_train=300",
    "data.n_validation=100",
    "space.width.high=32",
    "sampler=random",
    "pruner=none",
    "execution.pack=off",
    "devices=nvml",
    "devices.interval_seconds=0.1",
    "admission.max_concurrent_trials=3",  # two for the GPUs, one for the CPU
)


def devices(records: Records) -> dict[int, set[bool]]:
    """Of each trial, whether it was on the CPU, wherever it was started."""
    found: dict[int, set[bool]] = {}
    for event in records.events():
        if isinstance(event, Started):
            found.setdefault(event.trial, set()).add(event.device == "cpu")
    return found


def test_a_trial_keeps_its_kind_of_device_after_an_interruption(
    program: Program, nvml_stub: NvmlStub
) -> None:
    program.environment = nvml_stub.environment(program.environment)
    records = Records(program.folder, "mixed")
    first = program.start("study.name=mixed", "devices.choose=all", *WORDS)
    first.wait_until(lambda: records.n_lines() > 20, "twenty events")
    first.signal(signal.SIGINT)
    assert first.wait().code == 130
    before = devices(records)
    assert records.interrupted()
    assert {True, False} == set().union(*before.values())

    done = program.run("resume", "study.name=mixed")
    assert done.code == 0
    records.check_exact(N_TRIALS, N_EPOCHS, ["train_loss", "val_loss"])
    assert all(len(kinds) == 1 for kinds in devices(records).values())


@pytest.mark.parametrize("choose", ["gpu", "auto"])
def test_gpus_that_were_named_are_used_alone(
    program: Program, nvml_stub: NvmlStub, choose: str
) -> None:
    """devices=nvml is the user's word; only devices.choose=all goes beyond it."""
    program.environment = nvml_stub.environment(program.environment)
    words = [w for w in WORDS if not w.startswith("study.n_trials")]
    done = program.run("study.name=named", f"devices.choose={choose}", "study.n_trials=2", *words)
    assert done.code == 0
    assert devices(Records(program.folder, "named")) == {0: {False}, 1: {False}}
