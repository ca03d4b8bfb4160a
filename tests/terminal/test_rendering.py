"""A view as people read it, as text of a fixed width."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from automl.terminal.rendering import (
    best_blocks,
    failure_lines,
    progress_line,
    render_view,
)
from automl.terminal.view import (
    BestRow,
    DeviceRow,
    EnsembleRow,
    FailureRow,
    FamilyRow,
    RunningRow,
    SweepView,
    WaitingRow,
)
from tests.places import placed

UUID = "GPU-8f3a12b4-0000-1111-2222-333344445555"
VIEW = SweepView(
    study="brave-otter",
    directory="/tmp/studies/brave-otter",
    time=0.0,
    n_trials=20,
    metric="val_loss",
    counts={"running": 2, "finished": 3, "pruned": 4, "failed": 1, "waiting": 0},
    seconds=75.0,
    seconds_left=130.0,
)
BEST = BestRow(3, 0.0330119, {"depth": 3, "width": 52, "lr": 0.0283049, "batch_size": 64})


def running(number: int, device: str = "cpu") -> RunningRow:
    return RunningRow(
        number=number,
        device=device,
        params={"depth": 4, "width": 107, "lr": 0.0544712, "batch_size": 64, "optimizer": "adamw"},
        seconds=12.0,
        step=7,
        metrics={"train_loss": 0.123456, "val_loss": 0.234567, "val_error": 0.05},
    )


def text(view: SweepView, width: int) -> str:
    """The view as a screen of `width` columns shows it, without colours."""
    console = Console(file=io.StringIO(), record=True, width=width, highlight=False)
    console.print(render_view(view))
    return console.export_text()


def test_the_head_tells_study_counts_time_and_best() -> None:
    lines = text(replace(VIEW, best=BEST), 120).splitlines()
    assert lines[0].rstrip() == "brave-otter  1:15, about 2:10 left"
    assert lines[1].rstrip().endswith("8/20  3 finished  4 pruned  1 failed  2 running")
    assert lines[2].rstrip() == (
        "best val_loss 0.033012 by trial 3 (depth 3, width 52, lr 0.0283, batch_size 64)"
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1.0, 0.9, 0.6, 0.5), "▁▂▇█"),
        ((0.5, 0.6, 0.9, 1.0), "▁▂▇█"),
        ((1000.0, 100.0, 10.0, 1.0), "▁▃▆█"),  # on a logarithmic scale
        ((-3.0, -3.0, -3.0), "▁▁▁"),
        ((1e308, 0.0, -1e308), "▁▅█"),
        ((5e-324, 5e-324), "▁▁"),
        ((1e-323, 5e-324), "▁█"),
    ],
)
def test_the_best_value_so_far_is_drawn_with_better_values_higher(
    values: tuple[float, ...], expected: str
) -> None:
    assert best_blocks(values) == expected


def test_the_line_of_blocks_is_left_out_where_it_cannot_be_shown() -> None:
    view = replace(VIEW, best=BEST, best_so_far=(1.0, 0.5, 0.0330119))
    assert text(view, 80).splitlines()[3].rstrip() == "▁▂█  1 → 0.033012"
    for encoding in ("ascii", "cp1252"):
        file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
        Console(file=file, width=80).print(render_view(view))
        file.seek(0)
        assert "0.033012 by trial 3" in (shown := file.read())
        assert "→" not in shown
        assert "1 ? 0" not in shown


def test_a_long_study_name_is_shown_whole() -> None:
    name = "x" * 70
    assert name in text(replace(VIEW, study=name), 80)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_what_matters_of_a_running_trial_is_never_cut(width: int) -> None:
    line = text(replace(VIEW, running=(running(17),)), width).splitlines()[-1]
    assert line.split()[:7] == ["17", "cpu", "12", "s", "7", "val_loss", "0.2346"]
    assert len(line) <= width


@pytest.mark.parametrize("metric", ["val_loss", "a_metric_with_a_rather_long_name_of_its_own"])
@pytest.mark.parametrize("device", ["cpu", f"NVIDIA H200 {UUID}"])
@pytest.mark.parametrize("width", [46, 50, 60])
def test_on_a_narrow_screen_the_value_of_the_metric_stays_whole(
    width: int, device: str, metric: str
) -> None:
    row = running(17, device)
    row = replace(row, metrics={"train_loss": 0.123456, metric: 0.234567, "val_error": 0.05})
    view = replace(VIEW, metric=metric, best=BEST, running=(row, running(123)))
    lines = text(view, width).splitlines()
    assert any(line.startswith("17 ") and " 0.2346" in line for line in lines)
    assert "0.033012" in " ".join(lines).split(), "nor is the best one's broken in two"
    assert max(map(len, lines)) <= width


def test_a_wide_screen_shows_all_of_a_running_trial() -> None:
    line = text(replace(VIEW, running=(running(17),)), 160).splitlines()[-1]
    assert "val_loss 0.2346  train_loss 0.1235  val_error 0.05" in line
    assert "depth 4, width 107, lr 0.05447, batch_size 64, optimizer adamw" in line


def test_a_running_trial_shows_what_it_holds_of_what_it_asked_for() -> None:
    rows = tuple(
        replace(running(n), request_bytes=asked, peak_bytes=5 * 2**28)
        for n, asked in ((1, 3 * 2**30), (2, None))
    )
    head, known, unknown = text(replace(VIEW, running=rows), 100).splitlines()[-3:]
    assert "memory" in head
    assert "1.2/3.0 GiB" in known
    assert "1.2/? GiB" in unknown
    narrow = text(replace(VIEW, running=rows), 46)
    assert "GiB" not in narrow
    assert "val_loss 0.2346" in narrow


def test_the_ensemble_stands_with_what_each_family_has_in_it() -> None:
    families = (FamilyRow("boosting", 0.0330119, 0.62), FamilyRow("mlp", 0.05, 0.0))
    view = replace(VIEW, best=BEST, ensemble=EnsembleRow("loss", 0.0312, 3, families))
    lines = [line.rstrip() for line in text(view, 80).splitlines()]
    at = lines.index("ensemble loss 0.0312 of 3 models")
    assert [line.split() for line in lines[at + 1 : at + 4]] == [
        ["family", "best", "in", "the", "ensemble"],
        ["boosting", "0.033012", "62%"],
        ["mlp", "0.05", "–"],
    ]
    assert "; ensemble loss 0.0312 of 3 models" in progress_line(view)
    assert "ensemble" not in text(replace(VIEW, best=BEST), 80)


def test_many_running_trials_are_cut_and_counted() -> None:
    rows = tuple(running(number) for number in range(40))
    shown = text(replace(VIEW, running=rows), 80)
    assert "… and 28 more running" in shown
    assert len(shown.splitlines()) < 24


def test_a_gpu_is_named_by_the_beginning_of_its_uuid() -> None:
    shown = text(replace(VIEW, running=(running(0, f"NVIDIA H200 {UUID}"),)), 80)
    assert "H200 GPU-8f3a12b4 " in shown


def test_waiting_trials_tell_why() -> None:
    reason = "waiting: 11.2 GiB asked, 6.4 GiB room on GPU-8f3a12b4…; 9.1 GiB held by pid 4121"
    rows = (WaitingRow(7, reason), *(WaitingRow(n, "waiting: not looked at") for n in range(8, 40)))
    shown = " ".join(text(replace(VIEW, waiting=rows), 80).split())
    assert f"trial 7 {reason}" in shown
    assert "… and 30 more waiting" in shown


def test_nothing_waits_after_the_end() -> None:
    row = WaitingRow(7, "waiting: 3.0 GiB asked")
    assert "waiting" not in text(replace(VIEW, waiting=(row,), ended="interrupted"), 80)


@pytest.mark.parametrize(("number", "who"), [(None, "next trial"), (9, "trial 9")])
def test_that_all_places_are_taken_is_shown_but_is_no_news(number: int | None, who: str) -> None:
    reason = "waiting: all places are taken, admission.max_concurrent_trials=2"
    view = replace(VIEW, waiting=(WaitingRow(number, reason, as_it_should=True),))
    assert f"{who} {reason}" in text(view, 80)
    assert reason not in progress_line(view)


def test_trouble_with_mlflow_is_shown() -> None:
    shown = text(replace(VIEW, trouble="connection refused", n_undelivered=12), 80)
    assert "MLflow: connection refused; 12 events wait" in shown


@pytest.mark.parametrize("width", [80, 120])
def test_on_several_nodes_every_device_and_trial_names_its_own(width: int) -> None:
    gpu = placed(f"node-b/{UUID}", 2**30, name="NVIDIA H200")
    view = replace(
        VIEW,
        devices=(
            DeviceRow("host", "cpu", 2**34, node="node-a"),
            DeviceRow(UUID, "NVIDIA H200", 2**37, node="node-b"),
        ),
        running=(running(17, placed("node-a/host", 0).label), running(18, gpu.label)),
    )
    lines = text(view, width).splitlines()
    host, on_gpu, head, first, second = lines[-5:]
    assert host.startswith("cpu host of node-a  ")
    assert on_gpu.startswith("H200 GPU-8f3a12b4 of node-b  ")
    assert head.split()[:2] == ["trial", "device"]
    assert first.split()[:4] == ["17", "cpu", "of", "node-a"]
    assert second.split()[:5] == ["18", "H200", "GPU-8f3a12b4", "of", "node-b"]
    assert "val_loss 0.2346" in first


def test_a_refit_names_its_trials_as_the_study_does() -> None:
    view = replace(
        VIEW,
        best=replace(BEST, number=0),
        running=(running(1),),
        waiting=(WaitingRow(2, "waiting: 3.0 GiB asked"),),
        failures=(FailureRow(1, "no table", 1),),
        repeats=(17, 14, 19),
    )
    shown = text(view, 120)
    assert "by trial 17 (" in shown
    assert re.search(r"^14 +cpu", shown, re.MULTILINE)
    assert "trial 19 waiting" in shown
    assert "trial 19 waiting" in progress_line(view)
    assert "(first trial 14)" in " ".join(failure_lines(view))
