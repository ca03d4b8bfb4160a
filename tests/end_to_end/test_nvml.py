"""A driver that shows full GPUs: trials wait, everybody can see why, and go when there is room."""

from __future__ import annotations

import os
import re
from itertools import pairwise

import pytest

from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, mine
from tests.end_to_end.records import Records
from tests.nvml_stub.fixtures import LARGE, SMALL
from tests.nvml_stub.stub import GIB, NvmlStub


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


@pytest.mark.parametrize(("survey", "together"), [("auto", True), ("off", False)])
def test_what_was_surveyed_shares_a_gpu_and_what_was_not_has_it_to_itself(
    program: Program, nvml_stub: NvmlStub, survey: str, together: bool
) -> None:
    """Nothing is declared: the survey alone tells that two fit."""
    program.environment = nvml_stub.environment(program.environment)
    done = program.run(
        "study.name=nets",
        "study.n_trials=2",
        "devices=nvml",
        f"devices.only=[{LARGE}]",
        "devices.interval_seconds=0.1",
        "pruner=none",
        f"admission.survey={survey}",
        "admission.max_concurrent_trials=2",
        "objective=python",
        "objective.target=tests.end_to_end.objectives:trains_a_network",
        "space={width: {choices: [8, 16]}, lr: {low: 0.001, high: 0.01}}",
    )
    assert (done.code, done.stderr) == (0, "")
    records = Records(program.folder, "nets")
    spans = []
    for number in range(2):
        events = records.of_trial(number)
        spans.append((events[0].time, events[-1].time))
    spans.sort()
    assert any(begin < end for (_, end), (begin, _) in pairwise(spans)) is together
