"""Trials on the CPU and on GPUs in one sweep, and after an interruption."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from automl.trial import DeviceKind, PaceMeasured, TrialStarted
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records
from tests.nvml_stub.stub import NvmlStub

N_EPOCHS = 300
CPU, GPU = DeviceKind.CPU, DeviceKind.GPU
pytestmark = pytest.mark.slow
WORDS = (
    f"training.epochs={N_EPOCHS}",
    "data.n_train=300",
    "data.n_validation=100",
    "space.width.high=32",
    "sampler=random",
    "pruner=none",
    "execution.pack=off",
    "devices.only=nvml",
    "admission.max_concurrent_trials=3",  # two for the GPUs, one for the CPU
    "admission.max_trials_per_device=1",
)


def devices(records: Records) -> dict[int, set[DeviceKind]]:
    """Of each trial, on what it was wherever it was started."""
    found: dict[int, set[DeviceKind]] = {}
    for event in records.events():
        if isinstance(event, TrialStarted):
            found.setdefault(event.trial, set()).add(CPU if event.device == "cpu" else GPU)
    return found


def kinds(records: Records) -> set[DeviceKind]:
    return set().union(*devices(records).values())


def paces(records: Records, *, probes: bool) -> list[PaceMeasured]:
    """What was found of the time of steps."""
    found = [event for event in records.events() if isinstance(event, PaceMeasured)]
    return [pace for pace in found if (pace.execution is None) is probes]


def test_a_trial_keeps_its_kind_of_device_after_an_interruption(
    program: Program, call: Call, loaded_nvml_stub: NvmlStub
) -> None:
    program.environment = loaded_nvml_stub.environment(program.environment)
    records = Records(program.folder, "mixed")
    # However busy this machine is, trials are left when the CPU has been timed.
    first = program.start(
        "study.name=mixed", "study.n_trials=100", *WORDS, "devices.only=[nvml,all]"
    )
    first.wait_until(lambda: CPU in kinds(records), "a trial on the CPU")
    first.signal(signal.SIGINT)
    ended = first.wait()
    assert ended.code == 130
    assert records.interrupted()
    assert kinds(records) == {CPU, GPU}
    probes = paces(records, probes=True)
    if not probes:  # nor is this machine free to
        assert "the CPU could not be timed: no two steps within" in ended.stdout + ended.stderr
        pytest.skip("this machine is too busy to time a step in ten seconds")
    assert {found.kind for found in probes} == {CPU}, "it was timed before it was used"

    n_trials = len(records.optuna_states())
    done = call("resume", "study.name=mixed", f"study.n_trials={n_trials}")
    assert done.code == 0
    assert paces(records, probes=True) == probes, "it is not timed again"
    assert {found.kind for found in paces(records, probes=False)} == {CPU, GPU}
    records.check_exact(n_trials, N_EPOCHS, ["train_loss", "val_loss"])
    assert all(len(where) == 1 for where in devices(records).values())


@pytest.mark.usefixtures("loaded_nvml_stub")
def test_gpus_that_were_named_are_used_alone(folder: Path, call: Call) -> None:
    """devices.only=nvml is the user's word; only devices.only=all goes beyond it."""
    done = call("study.name=named", "devices.only=auto", "study.n_trials=2", *WORDS)
    assert done.code == 0
    assert devices(Records(folder, "named")) == {0: {GPU}, 1: {GPU}}
