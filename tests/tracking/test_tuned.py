"""Figures of an export's tuning stand on the study's run, by the rows of a call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from automl.trial import ExportTuned
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import deliver
from tests.tracking.scenes import BEGUN, NAME, sweep_ended, sweep_started, trial, write

EVENT = ExportTuned(
    BEGUN + 1000,
    model="trial-00000",
    chosen="onnx, 1 thread",
    figures={
        "onnx, 1 thread": {"p50_seconds": 1e-5, "rows_per_second@1": 9e4, "rows_per_second@16": 1e6}
    },
)
SWEEP = (sweep_started(), *trial(0), sweep_ended(1))


def test_figures_stand_on_the_studys_run(study: Path, shown: Shown) -> None:
    write(study, *SWEEP)
    deliver(study)
    before = shown.run(NAME).info
    write(study, EVENT, replace(EVENT, time=BEGUN + 2000, chosen="", figures={}))
    assert deliver(study) == []
    run = shown.run(NAME)
    assert (run.info.status, run.info.end_time) == (before.status, before.end_time)
    assert run.data.metrics["export_p50_seconds_onnx_1_thread"] == 1e-5
    time_ms = (int(BEGUN) + 1000) * 1000
    assert shown.history(NAME, "export_rows_per_second_onnx_1_thread") == [
        (1, time_ms, 9e4),
        (16, time_ms, 1e6),
    ]
    assert run.data.tags["automl.export"] == "trial-00000: none chosen"
    assert len(shown.runs()) == 2


def test_a_strangers_figures_cannot_stop_the_delivery(study: Path, shown: Shown) -> None:
    odd = {"a" * 400: {"rows_per_second@99999999999999999999": 1.0, "": 2.0, "x@-1": float("inf")}}
    write(study, *SWEEP, replace(EVENT, figures=odd, model="m" * 9000))
    assert deliver(study) == []
    assert "trial-00000" in {run.info.run_name for run in shown.runs()}
