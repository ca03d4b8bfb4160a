"""A driver that shows full GPUs: trials wait, everybody can see why, and go when there is room."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, mine
from tests.end_to_end.records import Records
from tests.nvml_stub.fixtures import LARGE, SMALL
from tests.nvml_stub.stub import GIB, GPU_IS_LOST, NvmlStub


def test_trials_wait_while_the_gpus_are_full(
    program: Program, call: Call, nvml_stub: NvmlStub
) -> None:
    for uuid in (SMALL, LARGE):
        nvml_stub.gpu(uuid).fill()
        nvml_stub.gpu(uuid).host([(os.getpid(), 7 * GIB)])
    program.environment = nvml_stub.environment(program.environment)
    sweep = program.start(
        "study.name=waits",
        "study.n_trials=3",
        "devices=nvml",
        "devices.interval_seconds=0.1",
        "admission.request=2GiB",
        *mine("counts"),
    )
    records = Records(program.folder, "waits")
    sweep.wait_until((records.path / "status.json").exists, "a first status")
    sweep.wait_until(lambda: "waiting: " in call("status", "study.name=waits").stdout, "the reason")
    shown = " ".join(call("status", "study.name=waits").stdout.split())
    assert re.search(r"waiting: \d\.\d GiB asked, 0\.0 GiB room on GPU-", shown), shown
    assert f"held by pid {os.getpid()}" in shown
    assert records.params() == {}, "no trial has started"

    nvml_stub.gpu(LARGE).empty()
    done = sweep.wait()
    assert (done.code, done.stderr) == (0, "")
    assert "waits: 3 finished" in done.stdout
    devices = {run.data.tags["automl.device"] for run in records.trial_runs().values()}
    assert devices == {f"Stub A10 {LARGE}"}


def test_trials_of_a_gpu_that_is_lost_go_on_elsewhere(
    program: Program, nvml_stub: NvmlStub
) -> None:
    program.environment = nvml_stub.environment(program.environment)
    sweep = program.start(
        "study.name=loses",
        "study.n_trials=4",
        "devices=nvml",
        "devices.interval_seconds=0.1",
        "admission.request=1GiB",
        *mine("falls_off"),
    )
    records = Records(program.folder, "loses")
    folder = records.path
    sweep.wait_until(lambda: len(list(folder.glob("on-*"))) == 4, "all run")
    assert len(list(folder.glob(f"on-{LARGE}-*"))) == 2
    nvml_stub.gpu(LARGE).fail(GPU_IS_LOST)
    write_whole(folder / "lost", LARGE)
    done = sweep.wait()
    assert (done.code, done.stderr) == (0, "")
    assert "loses: 4 finished" in done.stdout
    assert done.stdout.count(f"{LARGE} (Stub A10) takes no new trial: GPU is lost") == 1
    devices = {run.data.tags["automl.device"] for run in records.trial_runs().values()}
    assert devices == {f"Stub T4 {SMALL}"}


def write_whole(path: Path, text: str) -> None:
    """At once, for those that look for it."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)
