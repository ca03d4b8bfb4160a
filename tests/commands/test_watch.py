"""`devices watch=true` where stdout is no terminal: one picture, of what is at work."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from pathlib import Path

import pytest

from automl.commands.command_call import CommandCall
from automl.commands.devices import living_sweeps, run, snapshots_until_cluster_lost
from automl.config import Config, DevicesConfig
from automl.config.command_arguments import DevicesArguments
from automl.errors import AutoMLError
from automl.record.study_directory import StudyDirectory
from automl.terminal.devices_view import WatchSnapshot
from automl.terminal.view import SweepView, WaitingRow, write_view
from tests.commands.conftest import config
from tests.nvml_stub.fixtures import LARGE, SMALL, loaded_nvml_stub, nvml_library, nvml_stub
from tests.nvml_stub.stub import GIB, NvmlStub

__all__ = ["loaded_nvml_stub", "nvml_library", "nvml_stub"]
VIEW = SweepView("brave-otter", "x", 1.0, 20, "val_loss", waiting=(WaitingRow(3, "waiting: long"),))


def watching(folder: Path) -> Config:
    devices = DevicesConfig("nvml")
    return replace(config(folder), devices=devices)


def test_the_devices_and_the_sweeps_at_work(
    loaded_nvml_stub: NvmlStub, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded_nvml_stub.gpu(LARGE).use(6 * GIB)
    loaded_nvml_stub.gpu(LARGE).heat(211.4, 64)
    again = config(study.parent, study.name).study
    with StudyDirectory.open(again, must_exist=True) as directory:
        write_view(directory.files.status, VIEW)
        call = CommandCall(watching(study.parent), arguments=DevicesArguments(watch=True))
        assert run(call) == 0
        assert living_sweeps(study.parent) == [VIEW]
    shown = capsys.readouterr().out
    assert "Stub T4 GPU-bbbb2222  NVML 0  load 0%\n" in shown
    assert "Stub A10 GPU-aaaa1111  NVML 1  load 0%  211 W  64 °C\n" in shown
    assert "others 6.0  free 18.0 of 24.0 GiB" in shown
    assert "trial 3 waiting: long" in shown


def test_what_is_at_work_no_more_or_cannot_be_read_is_left_out(study: Path) -> None:
    write_view(study / "status.json", VIEW)
    assert living_sweeps(study.parent) == [], "it was killed"
    again = config(study.parent, study.name).study
    with StudyDirectory.open(again, must_exist=True) as directory:
        write_view(directory.files.status, replace(VIEW, ended="done"))
        assert living_sweeps(study.parent) == []
        directory.files.status.write_text("{")
        assert living_sweeps(study.parent) == []
    assert living_sweeps(study.parent / "nowhere") == []


def test_a_gpu_has_its_numbers_before_its_uuid(
    loaded_nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{LARGE},{SMALL}")
    assert run(CommandCall(Config(devices=DevicesConfig("nvml")))) == 0
    head, small, large = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["CUDA", "NVML", "device"]
    assert small.split()[:3] == ["1", "0", SMALL]
    assert large.split()[:3] == ["0", "1", LARGE]


def test_where_the_cluster_is_lost_meanwhile_it_ends_and_says_so() -> None:
    """Else Ray itself ends the process, a minute later."""
    errors = iter([None, AutoMLError("the Ray cluster is lost")])
    shown = WatchSnapshot(1.0, [], [], "studies")
    seen = snapshots_until_cluster_lost(repeat(shown), lambda: next(errors))
    assert next(seen) is shown
    with pytest.raises(AutoMLError, match="the Ray cluster is lost"):
        next(seen)
