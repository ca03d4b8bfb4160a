"""The CPU is timed, for real, before trials of the built-in network go there."""

from __future__ import annotations

import pytest

from automl.running.loop.messages import CpuProbed
from automl.running.loop.trial_paces import DevicePaceModel
from automl.running.prepare.preparation import prepare_study
from automl.running.prepare.prepared_config import PreparedStudy
from automl.running.trials.cpu_probe import CpuProber, open_cpu_prober, probe_cpu
from automl.trial import DeviceKind
from tests.running.prepare.test_prepare import small

PATIENT_SECONDS = 120.0
"""A machine with much else to do."""
SPACE = {"width": {"low": 4, "high": 256}, "depth": 2, "batch_size": 50, "lr": 0.1}


def prepared() -> PreparedStudy:
    return prepare_study(small(SPACE))


def chooser_of(prepared: PreparedStudy) -> DevicePaceModel:
    return DevicePaceModel(prepared.work, frozenset(DeviceKind))


def test_a_small_a_middle_and_a_large_trial_tell_what_steps_take() -> None:
    here = prepared()
    found = probe_cpu(here, total_seconds=PATIENT_SECONDS)
    widths = [params["width"] for params, _ in found.steps]
    assert widths[0] == 4
    assert widths[-1] == 256
    assert len(widths) == 3
    assert all(seconds > 0 for _, seconds in found.steps)
    chooser = chooser_of(here)
    chooser.probed(found)
    largest = here.work(found.steps[-1][0])
    assert largest is not None
    assert chooser.paces.most_timed(DeviceKind.CPU) == largest.step_flops
    assert open_cpu_prober(here, chooser, lambda found: None) is None, "it is known"


def test_where_there_is_no_time_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert probe_cpu(prepared(), total_seconds=0.0) == CpuProbed()
    assert "the CPU could not be timed: no two steps within 0 s" in caplog.text


def test_who_leaves_ends_it() -> None:
    """The prober answers all the same, since trials wait for it."""
    posted: list[CpuProbed] = []
    here = prepared()
    chooser = chooser_of(here)
    prober = open_cpu_prober(here, chooser, posted.append)
    assert isinstance(prober, CpuProber)
    assert chooser.is_probing
    with prober:
        pass
    assert posted == [CpuProbed()]


def test_where_nobody_chooses_nothing_is_timed() -> None:
    assert open_cpu_prober(prepared(), None, lambda found: None) is None
